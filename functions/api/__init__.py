"""Lambda entry points of the API. What a cold start makes stays, so it is not searched for garbage on the way (docs/adr/0041)."""

import gc

gc.set_threshold(100_000)
