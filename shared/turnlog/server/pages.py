"""Files that `turnlog serve` and `turnlog inspect` send to a browser: the inspector, the API reference, and what both load.

The files have no stored data, so they are sent without a token. Their pages run no inline script, load nothing from elsewhere and
may not be framed.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from turnlog.http.openapi import openapi_document

Page = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body of an answer."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
_FOLDER = Path(__file__).with_name("inspector")
_SHELLS = frozenset({"/inspector", "/docs"})
_REDIRECTS = {"/": "/inspector", "/inspector/": "/inspector", "/docs/": "/docs"}
ABOUT = "/inspector/about.json"
"""The path that tells a page which service it shows. It needs the token, unlike the files."""


def page_at(path: str) -> Page | None:
    """Return the answer for the path of a page or a file; None for any other path."""
    if path in _REDIRECTS:
        return 308, [("Location", _REDIRECTS[path]), ("Content-Length", "0")], b""
    if path in _SHELLS:
        return _file("index.html")
    if path == "/docs/openapi.json":
        return _answer(".json", _reference())
    name = path.removeprefix("/inspector/")
    return _file(name) if name != path and name in _names() else None


def _file(name: str) -> Page:
    return _answer(Path(name).suffix, _contents(name))


def _answer(suffix: str, data: bytes) -> Page:
    headers = [
        ("Content-Type", _TYPES[suffix]),
        ("Content-Security-Policy", _POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-cache"),
        ("Content-Length", str(len(data))),
    ]
    return 200, headers, data


@cache
def _names() -> frozenset[str]:
    """Return the names of all files; a request can name no other."""
    files = (file for file in _FOLDER.rglob("*") if file.suffix in _TYPES)
    return frozenset(file.relative_to(_FOLDER).as_posix() for file in files)


@cache
def _contents(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


@cache
def _reference() -> bytes:
    """Return the OpenAPI document with a Python example of each call."""
    return json.dumps(openapi_document(samples()), ensure_ascii=False).encode()


SERVICE = "http://127.0.0.1:8787"
_BEGIN = f'from turnlog import Turnlog\n\nwith Turnlog.open("{SERVICE}") as log:\n'
_BEGINNINGS = {
    "A session": _BEGIN + '    session = log.sessions.get("support-42")\n',
    "An owner": _BEGIN,
    "Without the library": "",
}
"""The first lines of the programs, by the heading of `samples.md` that they stand under."""
_SAMPLE = re.compile(r"^### (\w+)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def samples() -> Mapping[str, str]:
    """Return the Python example of each route by route name; each is a complete program."""
    text = Path(__file__).with_name("samples.md").read_text(encoding="utf-8")
    programs = dict[str, str]()
    for part in text.split("\n## ")[1:]:
        beginning = _BEGINNINGS[part.partition("\n")[0]]
        for name, code in _SAMPLE.findall(part):
            programs[name] = beginning + textwrap.indent(code, "    ") if beginning else code
    return programs
