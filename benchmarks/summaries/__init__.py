"""Summaries of real conversations: what they save, and which values the tool calls after them have to do without."""
