"""`turnlog context`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from turnlog.cli.options import Budget, Connection, Format, Json, Policy, Session, connected, opened, policy_value
from turnlog.cli.screen import STYLES, console, number, picture, plain, print_json, table
from turnlog.sessions.context_models import WindowAnswer

ChangeKind: TypeAlias = Literal["came", "went", "level", "tokens"]
_Key: TypeAlias = tuple[str, int | str | None, int]


class PartLike(Protocol):
    """A part of a manifest, here or as an answer."""

    @property
    def kind(self) -> str: ...
    @property
    def level(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def loop(self) -> int | None: ...
    @property
    def first(self) -> int | None: ...
    @property
    def last(self) -> int | None: ...
    @property
    def reason(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """One part that is not the same. ``before`` None: it came; ``after`` None: it went; else its level or its tokens changed."""

    change: ChangeKind
    before: PartLike | None
    after: PartLike | None

    @property
    def part(self) -> PartLike:
        found = self.after if self.after is not None else self.before
        assert found is not None  # noqa: S101 - one of them is there
        return found

    @property
    def tokens(self) -> int:
        """How many tokens more it takes."""
        return (self.after.tokens if self.after is not None else 0) - (
            self.before.tokens if self.before is not None else 0
        )


def compare(before: Sequence[PartLike], after: Sequence[PartLike]) -> tuple[Change, ...]:
    """The changes from one window to the other, in the order of the later one; what went comes where it was, or last.

    A loop's messages are compared only where the loop is whole in both: else the loop itself says it. A part that is out in
    both, or unchanged, is no change.
    """
    whole = _whole_loops(before) & _whole_loops(after)
    old, new = dict(_keyed(before, whole)), dict(_keyed(after, whole))
    changes = list[Change]()
    for key in _merged(list(old), list(new)):
        change = _change(old.get(key), new.get(key))
        if change is not None:
            changes.append(change)
    return tuple(changes)


def _change(before: PartLike | None, after: PartLike | None) -> Change | None:
    if before is None or after is None:
        return Change("came" if before is None else "went", before, after)
    if before.level != after.level:
        return Change("level", before, after)
    return Change("tokens", before, after) if before.tokens != after.tokens else None


def _whole_loops(parts: Iterable[PartLike]) -> set[int | None]:
    return {part.loop for part in parts if part.kind == "loop" and part.level == "whole"}


def _keyed(parts: Iterable[PartLike], whole: set[int | None]) -> Iterator[tuple[_Key, PartLike]]:
    """Parts by what they are: a loop by its number, a message by its position, a line by its reason."""
    seen = Counter[tuple[str, int | str | None]]()
    for part in parts:
        if part.kind == "message" and part.loop is not None and part.loop not in whole:
            continue
        name = part.loop if part.kind == "loop" else part.first if part.kind == "message" else None
        key = (part.kind, part.reason if part.kind == "line" else name)
        seen[key] += 1
        yield (*key, seen[key]), part


def _merged(old: Sequence[_Key], new: Sequence[_Key]) -> Iterator[_Key]:
    """The keys of both in the order of ``new``; each that only ``old`` has follows the one that it followed there."""
    known, behind = set(new), dict[_Key | None, list[_Key]]()
    anchor: _Key | None = None
    for key in old:
        if key in known:
            anchor = key
        else:
            behind.setdefault(anchor, []).append(key)
    yield from behind.get(None, ())
    for key in new:
        yield key
        yield from behind.get(key, ())


_STYLES = {"came": "green", "went": "red", "level": "yellow", "tokens": "bright_black"}


def difference(before: WindowAnswer, after: WindowAnswer, *, title: str | None = None) -> RenderableType:
    """The changes in the order in which the later window is sent, and both totals."""
    changes = compare(before.manifest.parts, after.manifest.parts)
    headings = [("part", "left"), ("positions", "left"), ("change", "left"), ("level", "left"), ("tokens", "right")]
    made = table(title, [*headings, ("why", "left")])
    for one in changes:
        part = one.part
        style = _STYLES[one.change]
        made.add_row(
            f"loop {part.loop}" if part.kind == "loop" else part.kind,
            _positions(one),
            Text(one.change, style=style),
            _levels(one),
            f"{one.tokens:+,}",
            Text(part.reason or "", style="dim"),
        )
    line = Text(f"head {before.head} -> {after.head}: {number(before.tokens)} -> {number(after.tokens)} tokens")
    line.append(f" ({after.tokens - before.tokens:+,})")
    return Group(made, Text(), line) if changes else Group(Text("no difference"), line)


def _positions(change: Change) -> str:
    part = change.part
    if part.first is None:
        return ""
    return str(part.first) if part.last in (None, part.first) else f"{part.first}–{part.last}"


def _levels(change: Change) -> Text:
    levels = [part.level for part in (change.before, change.after) if part is not None]
    shown = Text()
    for at, level in enumerate(dict.fromkeys(levels)):
        shown.append(" -> " if at else "").append(level, style=STYLES.get(level, ""))
    return shown


Model = Annotated[
    str | None, typer.Option("--model", metavar="M", help="The model's context is the budget, when none is given.")
]

At = Annotated[
    str | None,
    typer.Option("--at", metavar="P", help="As if the log ended at this position, or time (RFC 3339)."),
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="Q", help="What differs from the window at this position, or time."),
]


@connected
def context(
    connection: Connection,
    session: Session,
    policy: Policy = None,
    budget: Budget = None,
    format: Format = None,
    model: Model = None,
    at: At = None,
    against: Against = None,
    messages: Annotated[bool, typer.Option("--messages", help="Print the messages themselves too.")] = False,
    json: Json = False,
) -> None:
    """Show the window for the next model call: a bar per part."""
    with opened(connection) as log:
        asked = {"policy": policy_value(policy), "budget": budget, "format": format, "model": model}
        found = log.sessions.get(session)
        window = found.context(at=moment(at), **asked)  # type: ignore[arg-type]
        other = found.context(at=moment(against), **asked) if against is not None else None  # type: ignore[arg-type]
    if json:
        shown = window.model_dump(mode="json")
        print_json(shown if other is None else {"window": shown, "against": other.model_dump(mode="json")})
        return
    screen = console()
    if other is not None:
        screen.print(difference(other, window, title=f"Window of {session}"))
        return
    screen.print(picture(window, title=f"Window of {session}"))
    if messages:
        from turnlog.cli.screen import message_text

        screen.print()
        if isinstance(window.system, str):
            screen.print(plain(window.system), style="cyan")
        for number, body in enumerate(window.messages, start=1):
            screen.print(message_text(body, heading=f"{number}"))


def moment(text: str | None) -> int | str | None:
    """A position, or else a time."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
