"""The OpenAPI document as one HTML page for people; scripts and styles are inline, and nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from turnlog.http.openapi import openapi_document

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


_FRAME = Path(__file__).with_name("frame.html")
_BOUNDS = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("exclusiveMinimum", "more than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "matches {}"),
    ("default", "default {}"),
)
Schema = Mapping[str, Any]


@cache
def reference_page(link: str = "/v1/openapi.json") -> str:
    """Return the page of this version's API. ``link`` is the address of the OpenAPI document."""
    return page_of(openapi_document(samples()), link)


def page_of(document: Mapping[str, Any], link: str) -> str:
    """Return the page of an OpenAPI document: every call with parameters, body, answers and example, and every schema."""
    calls = [
        (method, path, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    parts = {
        "title": html.escape(f"{document['info']['title']} {document['info']['version']}"),
        "summary": html.escape(document["info"]["summary"]),
        "link": html.escape(link),
        "contents": "".join(_entry(*call) for call in calls),
        "calls": "".join(_call(*call) for call in calls),
        "schemas": "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())),
    }
    frame = _FRAME.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def _entry(method: str, path: str, operation: Schema) -> str:
    name = operation["operationId"]
    return f'<li data-call><a href="#{name}"><b class="{method}">{method.upper()}</b> {html.escape(path)}</a></li>\n'


def _call(method: str, path: str, operation: Schema) -> str:
    blocks = [
        f'<section id="{operation["operationId"]}" data-call>\n<h3><b class="{method}">{method.upper()}</b> ',
        f"<code>{html.escape(path)}</code></h3>\n<p>{html.escape(operation['summary'])}</p>\n",
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            (
                parameter["name"],
                f"{parameter['in']}, {_type(parameter['schema'])}",
                parameter.get("required", False),
                _description(parameter, parameter["schema"]),
            )
            for parameter in parameters
        ]
        blocks.append("<h4>Parameters</h4>\n" + _rows(rows))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        blocks.append(f"<h4>Body <small>{html.escape(kind)}</small></h4>\n<p>{_type(content['schema'])}</p>\n")
    blocks.append("<h4>Answers</h4>\n<table>\n")
    for status, answer in operation["responses"].items():
        types = ", ".join(_type(media["schema"]) for media in answer["content"].values())
        kind = "error" if int(status) >= 400 else "good"
        blocks.append(
            f'<tr><td class="{kind}">{status}</td><td>{types}</td><td>{_words(answer["description"])}</td></tr>\n'
        )
    blocks.append("</table>\n")
    for sample in operation.get("x-codeSamples", []):
        blocks.append(
            f"<h4>{html.escape(sample['lang'])}</h4>\n<pre><code>{html.escape(sample['source'])}</code></pre>\n"
        )
    return "".join([*blocks, "</section>\n"])


def _schema(name: str, schema: Schema) -> str:
    fields = schema.get("properties", {})
    required = schema.get("required", [])
    rows = [(field, _type(value), field in required, _description(value, value)) for field, value in fields.items()]
    table = _rows(rows) if rows else f"<p>{_type(schema)}</p>\n"
    return f'<section id="schema-{name}">\n<h3>{name}</h3>\n<p>{_words(schema.get("description", ""))}</p>\n{table}</section>\n'


def _rows(rows: list[tuple[str, str, bool, str]]) -> str:
    lines = [
        f"<tr><td><code>{html.escape(name)}</code>{'<em>*</em>' if needed else ''}</td><td>{kind}</td><td>{words}</td></tr>\n"
        for name, kind, needed, words in rows
    ]
    return "<table>\n" + "".join(lines) + "</table>\n"


def _type(schema: Schema) -> str:
    """Return the type of a value as HTML, with a link for a named schema."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#schema-{name}">{name}</a>'
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[choice]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(f"<code>{html.escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return html.escape(" or ".join(kind) if isinstance(kind, list) else str(kind))


def _description(described: Schema, schema: Schema) -> str:
    """Return the description of a value and its bounds as HTML."""
    bounds = ", ".join(dict.fromkeys(_bounds(schema)))
    return "; ".join(filter(None, [_words(described.get("description", "")), bounds]))


def _bounds(schema: Schema) -> Iterator[str]:
    for name, words in _BOUNDS:
        if schema.get(name) is not None:
            value = schema[name] if name == "pattern" else json.dumps(schema[name], ensure_ascii=False)
            yield words.format(f"<code>{html.escape(value)}</code>")
    for branch in (branch for choice in ("anyOf", "oneOf") for branch in schema.get(choice, ())):
        yield from _bounds(branch)


def _words(text: str) -> str:
    """Convert a docstring to HTML: code between backticks, paragraphs at empty lines."""
    escaped = re.sub(r"(`{1,2})(.+?)\1", r"<code>\2</code>", html.escape(text), flags=re.S)
    return "<br><br>".join(part.replace("\n", " ") for part in escaped.split("\n\n"))
