"""The same conversations through Turnlog and its peers, metered side by side. Run by ``make bench-peers``."""
