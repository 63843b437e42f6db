"""Writes the async twins of the client's objects, from the sync ones: shared/turnlog/client/async_twins.py.

Nothing is written twice by hand: a method of the sync model has its twin as soon as this has run (`make docs`). A test fails
when the file differs from what the sync model says, and another when a method is not in the right one of the lists below.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from turnlog.client.documents import DocumentReading, Documents
from turnlog.client.model import Session, Sessions, Turnlog

PAGE = Path(__file__).parent.parent / "shared" / "turnlog" / "client" / "async_twins.py"
TWINS = {
    Turnlog: "TurnlogCalls",
    Sessions: "AsyncSessions",
    Session: "AsyncSession",
    Documents: "AsyncDocuments",
    DocumentReading: "AsyncDocumentReading",
}
KINDS = frozenset(kind.__name__ for kind in TWINS)
OWN = frozenset({"open", "close"})
"""Of the client, by hand."""
READING = frozenset(
    ("agent", "build_window", "context", "diff", "execute_tool", "exists", "get", "get_many", "health", "history_page", "info",
     "job", "lint", "memory_page", "page", "recall", "replay", "search", "snapshot", "state", "summary",
     "verify")
)  # fmt: skip
"""These only read. All others are finished when their caller is cancelled."""
PLAIN = frozenset({"of", "handles", "reading"})
"""These ask nobody."""
RENAMED = {"run_async": "run", "stream_async": "stream"}
"""What the sync model has for asyncio is the async one's own. The sync one of that name is for threads."""

_HEAD = '''"""Async twins of the sync objects. Made by tools/make_async.py (`make docs`); do not edit."""

from __future__ import annotations

'''


def page() -> str:
    """The module as it should be."""
    bodies = [_twin(kind, name) for kind, name in TWINS.items()]
    text = "\n\n".join([_HEAD + _imports(bodies), *bodies])
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PAGE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603


def methods(kind: type) -> Iterator[tuple[str, FunctionType | staticmethod[..., Any] | property]]:
    """The public ones of a class, in the order they are written; those of the bases after its own."""
    seen = {*OWN, *RENAMED.values()}
    for owner in kind.__mro__:
        for name, found in vars(owner).items():
            is_method = not name.startswith("_") and isinstance(found, FunctionType | staticmethod | property)
            if is_method and name not in seen:
                seen.add(name)
                yield name, found


def _twin(kind: type, name: str) -> str:
    own = f"class {name}(Twin[{kind.__name__}]):"
    lines = [own, f'    """`{kind.__name__}` for asyncio: see `AsyncTurnlog`."""']
    if kind is Session:
        lines += ["", "    def __init__(self, sync: Session, threads: CallThreads) -> None:"]
        lines += ["        super().__init__(sync, threads)", "        self.id = sync.id", ""]
        lines += ["    def __repr__(self) -> str:", '        return f"AsyncSession({self.id!r})"']
    # Behind a method of a builtin's name, the builtin is no type any more.
    for each, found in sorted(methods(kind), key=lambda one: one[0] in vars(builtins)):
        lines += ["", *_method(each, found)]
    return "\n".join(lines)


def _method(name: str, found: FunctionType | staticmethod[..., Any] | property) -> Iterator[str]:
    function: Any = found.fget if isinstance(found, property) else inspect.unwrap(getattr(found, "__func__", found))
    signature = inspect.signature(function)
    gives = _twin_of(str(signature.return_annotation))
    doc = _doc(name, function)
    if isinstance(found, property):
        yield from ("    @property", f"    def {name}(self) -> {gives}:", doc)
        yield f"        return {gives}(self._sync.{name}, self._threads)"
        return
    shown, call = _shown(signature, gives), f"self._sync.{name}({_given(signature)})"
    if isinstance(found, staticmethod):
        yield from (
            "    @staticmethod",
            f"    def {name}{shown}:",
            doc,
            f"        return {call.replace('self._sync', 'Session')}",
        )
    elif gives.startswith("AsyncPaged["):
        yield from (f"    def {name}{shown}:", doc, f"        return AsyncPaged({call}, self._threads)")
    elif name in PLAIN:
        yield from (f"    def {name}{shown}:", doc, f"        return {gives}({call}, self._threads)")
    elif name in RENAMED:
        yield from (f"    def {RENAMED[name]}{shown}:", doc, f"        return {call}")
    else:
        how = "read" if name in READING else "finish"
        made = f"await self._threads.{how}({call.removesuffix('()') if call.endswith('()') else f'lambda: {call}'})"
        told = f"{gives}({made}, self._threads)" if gives in TWINS.values() else made
        yield from (f"    async def {name}{shown}:", doc, f"        return {told}")


def _doc(name: str, function: FunctionType) -> str:
    text = inspect.cleandoc(function.__doc__ or f"See `{function.__qualname__}`.")
    text = text.replace(f"`{RENAMED[name]}`", f"`Session.{RENAMED[name]}`") if name in RENAMED else text
    end = "\n" if "\n\n" in text else ""
    return textwrap.indent(f'"""{text}{end}"""', " " * 8)


def _twin_of(annotation: str) -> str:
    twins = {kind.__name__: name for kind, name in TWINS.items()} | {"Self": "AsyncSession"}
    return twins.get(annotation, annotation.replace("Paged[", "AsyncPaged["))


def _shown(signature: inspect.Signature, gives: str) -> str:
    """The signature as it is written: annotations are their own text, and defaults are constants."""
    return str(signature.replace(return_annotation=_Text(gives), parameters=[
        one if one.annotation is one.empty else one.replace(annotation=_Text(one.annotation))
        for one in signature.parameters.values()
    ]))  # fmt: skip


class _Text:
    """Shown without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _given(signature: inspect.Signature) -> str:
    words: dict[object, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*{0}",
        inspect.Parameter.VAR_KEYWORD: "**{0}",
        inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
    }
    ones = [one for name, one in signature.parameters.items() if name != "self"]
    return ", ".join(words.get(one.kind, "{0}").format(one.name) for one in ones)


def _imports(bodies: list[str]) -> str:
    """All names that the annotations use, from where the sync model has them."""
    homes = dict[str, tuple[str, str]]()
    for kind in TWINS:
        for owner in kind.__mro__[:-1]:
            homes |= _names_of(owner.__module__)
    tree = ast.parse("\n\n".join(bodies))
    used = (
        {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(vars(builtins)) - set(TWINS.values())
    )
    needed = {name: homes[name] for name in sorted(used) if name in homes and name not in {*KINDS, "Paged"}}
    lines = [
        "from typing import TYPE_CHECKING",
        "from turnlog.client.async_calls import AsyncPaged, CallThreads, Twin",
        *(f"from {kind.__module__} import {kind.__name__}" for kind in TWINS),
    ]
    lines += ["", "if TYPE_CHECKING:"]
    lines += [f"    from {home} import {original}{f' as {name}' if original != name else ''}"
              for name, (home, original) in sorted(needed.items(), key=lambda item: (item[1], item[0]))
              if home != "turnlog.client.async_calls"]  # fmt: skip
    command = [sys.executable, "-m", "ruff", "check", "--select", "I", "--fix", "--stdin-filename", str(PAGE), "-"]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout  # noqa: S603


def _names_of(module: str) -> dict[str, tuple[str, str]]:
    """What a module imports from elsewhere, and what it defines at its top, by name."""
    found = dict[str, tuple[str, str]]()
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            found |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        names |= {statement.name} if isinstance(statement, ast.ClassDef) else set()
        found |= {name: (module, name) for name in names if name not in found}
    return found


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
