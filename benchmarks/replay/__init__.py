"""Replays of conversations over HTTP: each message by itself, a window before each reply, every answer checked."""
