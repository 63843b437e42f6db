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
_OF_SESSION = {
    "get_session": """
        info = session.info()
        print(info.status, info.head, info.messages, info.tokens)
    """,
    "update_session": """
        print(session.update(title="Order A17", policy="run_loops").title)
    """,
    "end_session": """
        print(session.end().status)
    """,
    "reset_session": """
        fresh = session.reset()  # a repeated call returns the same new session
        print(fresh.id, fresh.info().reset_of)
    """,
    "append_messages": """
        appended = session.append({"role": "user", "content": "Where is A18?"}, idempotency_key="turn-17")
        print(appended.first, appended.last, appended.warnings)
    """,
    "read_messages": """
        for message in session.messages():  # page by page
            print(message.position, message.status, message.body)
    """,
    "read_loops": """
        for loop in session.loops():  # newest first
            print(loop.loop, loop.status, [call.ref for call in loop.tool_calls])
    """,
    "build_context": """
        window = session.context(format="anthropic", budget=20_000)
        print(window.tokens, window.system, window.messages, window.tools)
    """,
    "recall": """
        call = session.recall("3.0")  # the first call of the message at position 3
        print(call.found, call.name, call.arguments, call.content)
    """,
    "search_session": """
        for result in session.search("when is the order due").results:
            print(result.position, result.role, result.snippet)
    """,
    "get_state": """
        print(session.state().state, session.state(at=1).state)
    """,
    "put_state": """
        print(session.put_state({"lang": "en", "cart": []}, action="begin").version)
    """,
    "patch_state": """
        session.patch_state({"lang": "en"})  # a Merge Patch
        patched = session.patch_state([{"op": "add", "path": "/cart", "value": ["A17"]}])  # a JSON Patch
        print(patched.state, patched.version)
    """,
    "get_agent": """
        session.patch_agent({"agent_id": "main", "iteration": 1, "max_iterations": 20})
        print(session.agent("main").state)
    """,
    "patch_agent": """
        print(session.patch_agent({"agent_id": "main", "scratchpad": "ask for the address"}).state)
    """,
    "decide_pending": """
        session.patch_agent({"agent_id": "main", "pending_action": {"name": "refund", "call_id": "c9"}})
        print(session.decide_pending("reject", reason="over the limit").refusal)
    """,
    "read_history": """
        for entry in session.history_page(limit=10).entries:
            print(entry.history_id, entry.action, entry.created_at)
    """,
    "record_history": """
        print(session.record("handed_over", metadata={"to": "billing"}).history_id)
    """,
    "diff_session": """
        changes = session.diff(2)  # since position 2
        print([message.position for message in changes.messages], changes.state)
    """,
    "rewind_session": """
        print(session.rewind(2).messages)  # later messages stay in the log, so a rewind can be undone
    """,
    "compress_session": """
        done = session.compress(keep_loops=1)
        print(done)
    """,
    "get_summary": """
        session.compress(keep_loops=1)
        print(session.summary())  # None while there is none
    """,
    "discard_summary": """
        session.compress(keep_loops=1)
        print(session.discard_summary().status)
    """,
    "create_snapshot": """
        snapshot = session.create_snapshot("before-refund")
        print(snapshot.snapshot_id, snapshot.position)
    """,
    "list_snapshots": """
        session.create_snapshot("before-refund")
        print([snapshot.name for snapshot in session.snapshots()])
    """,
    "get_snapshot": """
        session.create_snapshot("before-refund")
        print(session.snapshot("before-refund").position)
    """,
    "delete_snapshot": """
        session.create_snapshot("before-refund")
        print(session.delete_snapshot("before-refund"))
    """,
    "restore_snapshot": """
        session.create_snapshot("before-refund")
        print(session.restore_snapshot("before-refund"))  # into a new session
    """,
    "download": """
        print(session.export("support-42.zip").size_bytes)  # requests the export, then its signed URL
    """,
    "put_documents": """
        written = session.documents.put("draft", b"Dear Ms Lovelace")  # bytes by key, beside the log
        print(written.revision)
    """,
    "get_documents": """
        session.documents.put("draft", b"Dear Ms Lovelace")
        print(session.documents.get("draft"), list(session.documents.list("dra")))
    """,
    "erase_session": """
        print(session.erase().status)  # no read finds the session after this call
    """,
    "redact_message": """
        print(session.redact(2).status)  # no read shows the text after this call
    """,
    "export_session": """
        print(session.export("support-42.zip").sha256)
    """,
    "import_session": """
        session.export("support-42.zip")
        (imported,) = log.sessions.import_("support-42.zip", session_id="support-42-again")
        print(imported.status, imported.position)
    """,
}
_OF_OWNER = {
    "create_session": """
        session = log.sessions.get_or_create("support-43", system="You are brief.", policy="default")
        print(session.info().created_at)
    """,
    "list_sessions": """
        for info in log.sessions.list(status="active"):  # newest activity first, page by page
            print(info.session_id, info.updated_at)
    """,
    "build_window": """
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
        print(log.build_window(messages, policy="turns(10)", format="anthropic").tokens)  # nothing is stored
    """,
    "lint_messages": """
        messages = [{"role": "tool", "tool_call_id": "c1", "content": "of no call"}]
        for problem in log.lint(messages, format="openai_chat").problems:
            print(problem.rule, problem.pointer, problem.fix)
    """,
    "search_sessions": """
        for result in log.search("order A17").results:
            print(result.session_id, result.snippet)
    """,
    "get_job": """
        job = log.sessions.get("support-42").compress(mode="async")
        print(log.job(job.job_id).status)
    """,
    "list_jobs": """
        log.sessions.get("support-42").compress(mode="async")
        for job in log.jobs():  # newest first, page by page
            print(job.job_id, job.kind, job.status)
    """,
    "list_memories": """
        for memory in log.memory():
            print(memory.memory_id, memory.text)
    """,
    "forget_memory": """
        for memory in log.memory():
            print(log.forget(memory.memory_id))
    """,
    "export_everything": """
        print(log.export("everything.zip").sha256)
    """,
    "erase_user": """
        print(log.erase_me().status)  # no session can be created until the job is done
    """,
    "health": """
        print(log.health().version, log.health().engine)
    """,
}
_OTHERS = {
    "openapi": f"""
        import json
        from urllib.request import urlopen

        with urlopen("{SERVICE}/v1/openapi.json") as answer:
            print(json.load(answer)["info"]["version"])
    """,
}
_BEGIN = f'from turnlog import Turnlog\n\nwith Turnlog.open("{SERVICE}") as log:\n'
_SESSION = '    session = log.sessions.get("support-42")\n'


def samples() -> Mapping[str, str]:
    """Return the Python example of each route by route name; each is a complete program."""
    programs = {name: _BEGIN + _SESSION + _indented(text) for name, text in _OF_SESSION.items()}
    programs |= {name: _BEGIN + _indented(text) for name, text in _OF_OWNER.items()}
    return programs | {name: textwrap.dedent(text).lstrip("\n") for name, text in _OTHERS.items()}


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip() + "\n", "    ")


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
