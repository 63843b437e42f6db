"""Turnlog under the interfaces of agent frameworks. Each module needs its framework, and is imported by who uses it."""
