"""What the session's course depends on, of one message: enough to pair calls, find loops and build digests.

Facts are taken from a `Message`, or from the card of a payload that is stored out of line; both give the same.
"""

from __future__ import annotations

from turnlog.domain.messages import Message, Role, ToolResult
from turnlog.domain.refs import call_key, result_key
from turnlog.domain.values import dataclass


@dataclass(frozen=True, slots=True)
class CallFact:
    key: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ResultFact:
    """``text`` is the result's beginning (all of it for a message at hand), ``chars`` its length."""

    key: str
    name: str
    by_name: bool
    is_error: bool
    text: str = ""
    chars: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """``chars`` is the length of the text; ``head`` its beginning (all of it for a message at hand)."""

    role: Role
    head: str
    chars: int
    calls: tuple[CallFact, ...] = ()
    results: tuple[ResultFact, ...] = ()
    ledger: tuple[str, ...] = ()
    given_role: str = ""
    name: str = ""


def facts_of(message: Message) -> Facts:
    """The facts of a message, but for its ledger, which is read where it is needed.

    A message of an unknown role is never sent, so what it calls or answers pairs with nothing.
    """
    text, is_known = message.text, message.role != "unknown"
    return Facts(
        role=message.role,
        head=text,
        chars=len(text),
        calls=tuple(CallFact(call_key(call), call.name, call.arguments) for call in message.tool_calls if is_known),
        results=tuple(_result_fact(result) for result in message.tool_results if is_known),
        given_role=message.given_role,
        name=message.name,
    )


def _result_fact(result: ToolResult) -> ResultFact:
    text = result.text
    return ResultFact(result_key(result), result.name, result.by_name, result.is_error, text, len(text))
