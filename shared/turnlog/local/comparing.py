"""What differs between the windows of two manifests. Pure: of any parts that have these fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

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
