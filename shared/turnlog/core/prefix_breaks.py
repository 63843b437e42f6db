"""Why a window does not begin as the one before it: a closed set of codes."""

from __future__ import annotations

from typing import Literal, TypeAlias

BreakReason: TypeAlias = Literal[
    "first",
    "tools",
    "system",
    "policy",
    "budget",
    "summary",
    "not_read",
    "open_call",
    "settled",
    "late_result",
    "crossing",
    "past_loop",
    "age",
    "evicted",
    "stub",
    "fold",
    "joined",
]
"""`first`: there was no window before. `tools`, `policy`: the session's settings have changed. `system`: so has the system
text. `budget`: it has changed, or what is made to fit it. `summary`: there is a new one. `not_read`: older messages are read
no more. `open_call`: a call waited and is sent now; `settled`: it is sent with a neutral result. `late_result`: a result takes
the place of another. `crossing`: loops have become digests at the high mark. `past_loop`: so has a loop because it has ended.
`age`: a loop is out by its age; `evicted`: by another limit, or by a step of a user's own. `stub`, `fold`: results are cut, or
steps of a long loop told in a note. `joined`: the format puts what has come since together with what was sent, and tells it
otherwise."""
