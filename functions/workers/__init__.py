"""Lambda entry points of queues and of the schedule."""

import gc

# What a cold start makes stays: it is not searched for garbage forty times on the way (docs/contributing/adr/0041).
gc.set_threshold(100_000)
