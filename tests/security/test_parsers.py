"""V3: every parser, fed with what its valid samples become under mutation: a typed error or a value, never another exception.

The parsers are enumerated from the code: a module that calls what reads bytes, text or a model of JSON is in `PARSERS`, or in
`NOT_INPUT` with the reason why nobody else writes what it reads.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.agents import events as streams
from tests.conftest import ROOT
from tests.effort import examples, is_full
from tests.http.events import event
from tests.security.corpus import KEPT, STRINGS
from tests.support.talks import turn
from turnlog import Turnlog
from turnlog.agents.streams import accumulator
from turnlog.app import Application, make_application
from turnlog.cli.chat.models import script_of
from turnlog.cli.transcripts import read_transcripts
from turnlog.client.exports import ExportFile
from turnlog.core import calls, patterns, recall_calls, times
from turnlog.core import json_patch as patches
from turnlog.core.errors import CorruptError, InvalidInputError, TurnlogError
from turnlog.core.identity import check_session_id, correlation_of, owner_of_ids
from turnlog.core.json_values import checked_json, parse_strict_json
from turnlog.core.models import Cursors
from turnlog.engines import make_engine, openai_compatible
from turnlog.engines.http_post import Posted
from turnlog.http.lambda_api import identify, make_handler
from turnlog.importers import coding_agents, conversations, documents, flat, openai_agents, shape_of
from turnlog.importers import exported as exports
from turnlog.importers.models import SourceFile
from turnlog.jobs.worker import read_message
from turnlog.linter.rules import FORMATS as RULES
from turnlog.linter.rules import image_side, lint
from turnlog.log.headers import read_header
from turnlog.log.packing import pack, unpack
from turnlog.memory import facts, webhook
from turnlog.ports import ModelAnswer
from turnlog.providers.registry import CODECS, recognise
from turnlog.routing import ROUTES, read_body
from turnlog.sessions.documents import exported_writing
from turnlog.settings import Settings
from turnlog.snapshots.exchange import commit_of
from turnlog.snapshots.export_routes import ExportedDocument
from turnlog.snapshots.segment_format import previous_hash, read_segment
from turnlog.testing.fixed import FixedClock, SequentialIds
from turnlog.windows.policy import Policy, policy_of

SHARED = ROOT / "shared" / "turnlog"
GOLDEN = ROOT / "tests" / "log" / "golden"


# ------------------------------------------------------------ what there is


READS = frozenset(
    (
        *("loads", "parse_strict_json", "model_validate", "model_validate_json", "validate_python"),
        *("b64decode", "urlsafe_b64decode", "urlsplit", "urlparse", "parse_qs", "parse_qsl", "ZipFile", "unpackb"),
        *("BZ2Decompressor", "decompressobj", "fromisoformat", "fromhex", "yaml_parse", "safe_load", "unpack"),
    )
)
"""Names of what reads bytes, text or JSON."""
_CHECKED = (
    "stored by us, and its checksum or hash is compared before; damage is shown by tests/log/test_faults_of_items.py"
)
_OWN = "reads or makes values of the program's own"
_FRAMEWORK = "reads what the framework's adapter has written itself; damage is shown by tests/integrations"
_OURS = "a file of the project or of the person who starts it"
NOT_INPUT: dict[str, str] = {
    **dict.fromkeys(
        (
            *("snapshots/full", "log/caches", "memory/embedded", "memory/hand_over", "log/records"),
            *("log/lines", "snapshots/segments", "search/index", "log/read_lines", "log/payloads"),
            *("sessions/state_store", "snapshots/materialise", "search/session", "search/session_words"),
            *("engines/sqlite_tables", "privacy/redact", "privacy/redacted_archives", "log/commit"),
        ),
        _CHECKED,
    ),
    "core/token_bounds": "a table of the package",
    "engines/sqlite": "one attribute of rows of an older file; tests/engines/test_sqlite_file.py damages them",
    **dict.fromkeys(
        (
            *("sessions/read", "summaries/trigger", "snapshots/lifecycle", "memory/bootstrap"),
            *("summaries/compress", "sessions/lifecycle", "search/recall", "search/text_parts", "sessions/messages"),
            *("snapshots/restore", "app", "engines/__init__", "log/reading"),
            *("engines/sqs", "client/exports", "client/documents", "client/connections"),
            *(
                "agents/graph_state/messages",
                "cli/options",
                "cli/sessions",
                "windows/ledger",
                "core/loops",
                "core/messages",
            ),
        ),
        _OWN,
    ),
    **dict.fromkeys(
        (
            *("integrations/strands/repository", "integrations/strands/storage"),
            *("integrations/langgraph/records", "integrations/langgraph/store", "integrations/sessions"),
            *("integrations/agent_framework", "integrations/claude_agent_sdk", "integrations/llama_index"),
            *("integrations/google_adk", "integrations/originals", "integrations/pydantic_ai"),
        ),
        _FRAMEWORK,
    ),
    "engines/aws_service_models": "what botocore ships",
    "server/stack": _OURS,
    "cli/serve": _OURS,
    "engines/bedrock": "an answer of Bedrock; tests/search feeds it with what is none",
    "agents/functions": "arguments of a model's calls; tests/runs feeds it with what is none",
}
"""Module -> why what it reads is nobody else's."""


def modules_that_read() -> set[str]:
    result = set[str]()
    for path in SHARED.rglob("*.py"):
        name = path.relative_to(SHARED).with_suffix("").as_posix()
        if name.startswith("testing/"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(word in text for word in READS) else ():
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in READS:
                    result.add(name)
    return result


Kind = Literal["bytes", "text", "json"]


@dataclass(frozen=True)
class Parser:
    """``modules``: those whose reading it shows. ``may``: what else it is said to raise."""

    kind: Kind
    samples: Callable[[], list[Any]]
    call: Callable[[Any], object]
    modules: tuple[str, ...] = ()
    may: tuple[type[BaseException], ...] = ()
    effort: int = 160


# ------------------------------------------------------------ samples


@dataclass
class World:
    """A session of everything, and what can be had of it."""

    export: bytes = b""
    lines: list[str] = field(default_factory=list)
    segment: bytes = b""
    item: dict[str, Any] = field(default_factory=dict)


@cache
def world() -> World:
    result = World()
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s", system="Be brief.", state={"a": {"b": [1, 2]}})
        for number in range(3):
            session.append(*turn(number), {"role": "user", "content": "x" * 3_000})
        session.patch_state({"a": 1})
        session.create_snapshot("n")
        session.documents.put("plan", b"x")
        buffer = io.BytesIO()
        session.export(buffer)
        result.export = buffer.getvalue()
        with ExportFile(io.BytesIO(result.export)) as export:
            (result.lines,) = export.batches("s", max_bytes=10**7, max_commits=1_000)
    result.segment = (GOLDEN / "segment-1.bin").read_bytes()
    sealed = commit_of(result.lines[0], previous=bytes(16))
    result.item = {"pk": "T#a#U#b#S#s", **sealed.item}
    return result


def sample_messages() -> list[Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "ok"}], "is_error": True}
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    return [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [result, {"type": "image", "source": source}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"json": {}}], "status": "error"}}]},
        {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "x"}]},
        {"role": "user", "tool_results": [{"tool_call_id": "c", "result": {"a": 1}, "is_error": False}]},
    ]


def whole(text: str) -> list[str]:
    return [text]


def streamed(format: str) -> list[Any]:
    values: dict[str, Any] = {
        "openai_chat": (streams.chat, sample_messages()[1] | {"content": "hi"}),
        "anthropic": (streams.anthropic, sample_messages()[3]),
    }
    if format in values:
        write, message = values[format]
        return [list(write(message, whole))]
    if format == "openai_responses":
        item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""}
        return [
            [
                {"type": "response.created", "response": {"id": "r", "output": []}},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "i", "delta": "{}"},
                {"type": "response.output_item.done", "output_index": 0, "item": {**item, "arguments": "{}"}},
                {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "hi"},
                {"type": "response.completed", "response": {"output": [item], "usage": {"input_tokens": 1}}},
            ]
        ]
    return [
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "c", "name": "f"}}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"a":'}}}},
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "hi"}}},
            {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"reasoningContent": {"text": "hm"}}}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
            {"messageStop": {"stopReason": "tool_use"}},
            {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}},
        ]
    ]


def accumulated(format: str) -> Callable[[Any], object]:
    def run(events: Any) -> object:
        result = accumulator(format)
        for item in events if isinstance(events, list) else [events]:
            if isinstance(item, Mapping):
                result.add(item)
        return result.messages, result.text, result.usage

    return run


def parsed(format: str) -> Callable[[Any], object]:
    def run(body: Any) -> object:
        return CODECS[format].parse(body) if isinstance(body, dict) else None

    return run


def image_headers() -> list[Any]:
    """Return the first bytes of a PNG, a GIF, three kinds of WebP and a JPEG."""
    webp = [b"RIFF\x00\x00\x00\x00WEBP" + kind + bytes(range(20)) for kind in (b"VP8X", b"VP8L", b"VP8 ")]
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x01\x00\x02\x00"
    return [b"\x89PNG\r\n\x1a\n" + bytes(range(24)), b"GIF89a" + bytes(range(8)), *webp, jpeg]


def linted(format: str) -> Callable[[Any], object]:
    return lambda messages: lint(messages, format=format)


def searched(pattern: str) -> object:
    return patterns.Pattern(pattern).lines(["a line", "x" * 100, "\ud83d"], max_steps=10_000)


def recalled(arguments: Any) -> object:
    return [
        recall_calls.parse_recall_request(tool, arguments)
        for tool in (recall_calls.RECALL_TOOL, recall_calls.SEARCH_TOOL)
    ]


def set_up(text: str) -> object:
    result = None
    for name in Settings.model_fields:
        with contextlib.suppress(InvalidInputError):
            result = Settings.from_environment({f"TURNLOG_{name.upper()}": text, "TURNLOG_ENGINE": "memory://"})
    return result


def engine_of(url: str) -> object:
    if url.lower().startswith("sqlite"):
        url = "x" + url  # would make a file of that name
    engine = make_engine(Settings(engine=url), clock=FixedClock(), ids=SequentialIds())
    return engine.close()


def bodies_of(body: Any) -> object:
    """Of every route: the shape, and nothing behind it."""
    checked_json(body)
    for route in ROUTES:
        if route.body is not None:
            with contextlib.suppress(InvalidInputError):
                read_body(body, route.body)
    return None


def body_samples() -> list[Any]:
    result = list[Any]()
    for path in sorted((ROOT / "events").glob("*.json")):
        body = json.loads(path.read_text(encoding="utf-8")).get("body")
        if isinstance(body, str) and body.startswith("{"):
            result.append(json.loads(body))
    return result


def merged(patch: Any) -> object:
    return patches.apply_patch({"a": {"b": [1]}}, patch) if isinstance(patch, list | dict) else None


def identified(claims: Any) -> object:
    """Of whoever makes the tokens, or names the roles: of any values, in the shape that API Gateway gives them."""
    given = claims if isinstance(claims, dict) else {"tenant": claims, "sub": claims, "arn": claims}
    jwt = {"requestContext": {"authorizer": {"jwt": {"claims": given}}}}
    iam = {"requestContext": {"authorizer": {"iam": {"userArn": given.get("arn")}}}}
    result = list[object]()
    for made, kind in ((jwt, "jwt"), (iam, "iam")):
        with contextlib.suppress(TurnlogError):
            result.append(identify(made, Settings(identity=kind)))  # type: ignore[arg-type]
    return result


@cache
def application() -> Application:
    return make_application(Settings(engine="memory://", token_counter="estimate"))


@cache
def handler() -> Any:
    return make_handler(ROUTES, application())


def handled(body: Any) -> object:
    """A body of any JSON, on the route that it was made for and on others."""
    answers = [
        handler()(event(route.method, route.path.replace("{", "").replace("}", ""), raw=json.dumps(body)), None)
        for route in ROUTES
        if route.body is not None
    ]
    assert all(answer["statusCode"] < 500 for answer in answers), answers
    return answers


def in_file(data: bytes, read: Callable[[Path], object], *, suffix: str = ".json") -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(data)
        return read(path)


READERS = {module.SHAPE: module.read for module in (openai_agents, documents, flat, coding_agents, conversations)}


def imported(data: bytes) -> object:
    def read(path: Path) -> object:
        shape = shape_of(SourceFile(path))
        if shape is None:
            return None
        return exported(data) if shape.name == exports.SHAPE else list(READERS[shape.name](SourceFile(path)))

    return in_file(data, read)


def import_samples() -> list[Any]:
    folder = ROOT / "tests" / "importers" / "samples"
    return [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()] + [world().export, sdk_file()]


@cache
def sdk_file() -> bytes:
    """A database as the OpenAI Agents SDK lays it out."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        connection = sqlite3.connect(path)
        connection.executescript(
            "create table agent_sessions (session_id text primary key, created_at timestamp, updated_at timestamp);"
            "create table agent_messages (id integer primary key, session_id text, message_data text, created_at timestamp);"
            "insert into agent_sessions values ('s', '2025-11-21 00:00:00', '2025-11-21 00:00:00');"
            """insert into agent_messages values (1, 's', '{"role": "user", "content": "hi"}', '2025-11-21 00:00:00');"""
        )
        connection.commit()
        connection.close()
        return path.read_bytes()


def exported(data: bytes) -> object:
    with ExportFile(io.BytesIO(data)) as export:
        export.check()
        names = [session.session_id for session in export.sessions()]
        batches = [list(export.batches(name, max_bytes=10**6, max_commits=10)) for name in names]
        return batches, [list(export.documents(name)) for name in names]


def replayed(data: bytes) -> object:
    return in_file(data, lambda path: list(read_transcripts([path])), suffix=".jsonl")


def scripted(data: bytes) -> object:
    return in_file(data, script_of)


def of_webhook(body: bytes) -> object:
    answer = webhook.read_answer(Posted(200, body, None))
    return webhook.count_in(answer) if isinstance(answer.get("memories"), int) else webhook.memories_in(answer)


def of_server(body: bytes) -> object:
    """An answer of whatever is at the address of a service."""
    from turnlog.client.connections import HttpAnswer
    from turnlog.client.over_http import HttpBackend
    from turnlog.routing import BY_NAME

    backend = HttpBackend("http://127.0.0.1:9")
    for status in (200, 404, 503):
        with contextlib.suppress(TurnlogError):
            backend.parsed_answer(BY_NAME["get_session"], HttpAnswer(status, {}, body))
    return backend.close()


def header_of(item: Any) -> object:
    given = item if isinstance(item, dict) else {}
    made = {name: bytes.fromhex(value[4:]) if _is_hex(value) else value for name, value in given.items()}
    return read_header({"pk": "p", "sk": "C#000000000001", **made})


def _is_hex(value: Any) -> bool:
    if not isinstance(value, str) or not value.startswith("hex:"):
        return False
    try:
        bytes.fromhex(value[4:])
    except ValueError:
        return False
    return True


def header_samples() -> list[Any]:
    return [{name: f"hex:{value.hex()}" if isinstance(value, bytes) else value for name, value in world().item.items()}]


JOB = {"v": 1, "job_id": "1-a", "kind": "compress", "tenant": "acme", "user": "ada", "session_id": "s"}
POLICIES = [
    policy_of(name).model_dump(mode="json", by_alias=True) for name in ("default", "run_loops", "classic", "turns")
]
CURSOR = Cursors(b"secret").write({"pk": "p", "sk": "s"}, scope="x")
CHAT = {
    "choices": [{"message": {"content": "<think>x</think>hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}
MEMORY = {"id": "m", "text": "t", "created_at": "2025-11-21T00:00:00Z", "kind": "entity", "position": 2, "score": 0.5}
FACT = '{"kind": "entity", "subject": "s", "fact": "lives in Lisbon", "position": 2}'
SESSION = {"session_id": "s", "user": "u", "head": 1}
PARSERS: dict[str, Parser] = {
    "strict JSON": Parser(
        "bytes", lambda: list(KEPT.values())[:12], parse_strict_json, ("core/json_values",), effort=800
    ),
    "a cursor": Parser(
        "text", lambda: [CURSOR], lambda text: Cursors(b"secret").read(text, scope="x"), ("core/models",)
    ),
    "a ref": Parser("text", lambda: ["12.0", "3.10"], calls.parse_ref),
    "a session id": Parser("text", lambda: ["support-42"], check_session_id),
    "an id in a job": Parser("text", lambda: ["acme", "h_ABC"], lambda text: owner_of_ids(text, text)),
    "a time": Parser(
        "text",
        lambda: ["2025-11-21T00:00:00.123Z", "2025-11-21T00:00:00+01:00"],
        times.milliseconds_of,
        ("core/times",),
        (ValueError,),
        400,
    ),
    "a job's message": Parser("text", lambda: [json.dumps(JOB)], read_message, ("jobs/worker", "jobs/models")),
    "the correlation id of a message": Parser(
        "text", lambda: [json.dumps({**JOB, "correlation_id": "order-17"})], correlation_of, ("core/identity",)
    ),
    "a pattern": Parser(
        "text",
        lambda: [r"(\w+)-[a-z]{2,4}|^x$", r"(?i)\bfoo\b", "[^a-z]+?"],
        searched,
        (),
        (patterns.PatternError,),  # type: ignore[attr-defined]
        400,
    ),
    "a merge patch": Parser("json", lambda: [{"a": {"b": None}}], merged),
    "a JSON patch": Parser(
        "json",
        lambda: [[{"op": "add", "path": "/a/-", "value": 1}, {"op": "copy", "from": "/a", "path": "/b"}]],
        lambda patch: patches.apply_patch({"a": [1]}, patch) if isinstance(patch, list | dict) else None,
        effort=400,
    ),
    "a policy": Parser("json", lambda: POLICIES, policy_of, ("windows/policy", "windows/registry"), effort=400),
    "a policy's name": Parser("text", lambda: ["turns(5)", "default"], policy_of),
    "options of a policy": Parser(
        "json",
        lambda: [{"max_run_loops": 3}, {"bufferConfig": {"maxTokens": 3}}],
        Policy.from_options,
        ("windows/policy",),
    ),
    "a message's format": Parser(
        "json", sample_messages, lambda body: recognise(body) if isinstance(body, dict) else None
    ),
    **{
        f"a message of {format}": Parser(
            "json", sample_messages, parsed(format), ("providers/anthropic", "providers/blocks"), effort=240
        )
        for format in CODECS
    },
    **{
        f"rules of {format}": Parser("json", lambda: [sample_messages()], linted(format), effort=240)
        for format in RULES
    },
    "the size of an image": Parser("bytes", image_headers, image_side, ("linter/rules",)),
    **{
        f"a stream of {format}": Parser(
            "json",
            lambda format=format: streamed(format),
            accumulated(format),
            ("agents/streams", "agents/accumulators"),
            effort=240,
        )
        for format in CODECS
        if format != "turnlog"
    },
    "arguments of the recall tools": Parser(
        "text",
        lambda: ['{"ref": "12.0", "pattern": "x"}', '"12.0"', '{"q": ["a"], "limit": 3}', "lines 3-4"],
        recalled,
        ("core/recall_calls",),
        (recall_calls.ArgumentsError,),
        400,
    ),
    "settings": Parser("text", lambda: ["20", "facts", '{"m": 1}', "a.b,c"], set_up, ("settings",)),
    "an engine's URL": Parser(
        "text", lambda: ["memory://", "dynamodb://T?bucket=B&queue=Q&region=R"], engine_of, ("engines",)
    ),
    "a body": Parser("json", body_samples, bodies_of, ("routing",), effort=240),
    "a request's body, through the handler": Parser(
        "json", body_samples, handled, ("http/api", "http/lambda_api", "sessions/documents"), effort=96
    ),
    "claims": Parser(
        "json",
        lambda: [{"tenant": "a", "sub": "b", "arn": "arn:aws:sts::111122223333:assumed-role/backend/session"}],
        identified,
        effort=240,
    ),
    "a line of an export": Parser(
        "text",
        lambda: world().lines,
        lambda line: commit_of(line, previous=bytes(16)),
        ("snapshots/exchange", "snapshots/exports"),
        effort=400,
    ),
    "a commit of an export": Parser(
        "json",
        lambda: [json.loads(line) for line in world().lines],
        lambda line: commit_of(json.dumps(line), previous=bytes(16)),
        effort=400,
    ),
    "a document of an export": Parser(
        "json",
        lambda: [{"key": "a", "data": "eA==", "revision": "0" * 16, "updated_at": "2026-11-21T00:00:00.000Z"}],
        lambda item: exported_writing(ExportedDocument.model_validate(item), "/documents/0"),
        ("sessions/document_models",),
        (ValidationError,),
        effort=400,
    ),
    "a segment": Parser(
        "bytes",
        lambda: [world().segment],
        lambda data: (list(read_segment(data, name="x")), previous_hash(data)),
        ("snapshots/segment_format",),
        effort=400,
    ),
    "packed content": Parser(
        "bytes", lambda: [pack(b"x" * 4_000), pack(b"x")], lambda data: unpack(data, item="x"), ("log/packing",)
    ),
    "a commit's header": Parser("json", header_samples, header_of, effort=400),
    "an export": Parser("bytes", lambda: [world().export], exported, ("client/exports", "client/exports"), effort=240),
    "a file to import": Parser(
        "bytes",
        import_samples,
        imported,
        ("importers/exported", "importers/models", "importers/openai_agents"),
        effort=240,
    ),
    "a transcript": Parser(
        "bytes",
        lambda: [b'{"id": "a", "messages": [{"role": "user", "content": "x"}]}\n{"messages": []}', b"[]"],
        replayed,
        ("cli/transcripts",),
    ),
    "a script": Parser(
        "bytes", lambda: [b'["hi", {"role": "assistant", "content": "x"}]'], scripted, ("cli/chat/models",)
    ),
    "an answer of a summariser": Parser(
        "bytes",
        lambda: [json.dumps(CHAT).encode()],
        lambda body: openai_compatible.read_answer("model", body),
        ("engines/openai_compatible",),
    ),
    "facts of a model": Parser(
        "text",
        lambda: [f"{FACT}\n{FACT},", "NONE."],
        lambda text: facts.read_facts(ModelAnswer(text), []),
        ("memory/facts", "memory/facts"),
    ),
    "an answer of a webhook": Parser(
        "bytes",
        lambda: [json.dumps({"memories": [MEMORY]}).encode(), b'{"memories": 3}', b""],
        of_webhook,
        ("memory/webhook", "engines/http_post"),
        effort=400,
    ),
    "memories of a webhook": Parser(
        "json", lambda: [{"memories": [MEMORY]}], lambda answer: of_webhook(json.dumps(answer).encode()), effort=800
    ),
    "an answer of a service": Parser(
        "bytes",
        lambda: [json.dumps(SESSION).encode(), b'{"code": "x", "detail": "y", "errors": [{"code": "z"}]}'],
        of_server,
        ("client/over_http", "client/connections"),
    ),
    "a request that is none, on its way to an event": Parser(
        "text",
        lambda: ["/v1/sessions?limit=3", "/v1/%73essions/a%2Fb"],
        lambda text: to_event(text),
        ("server/local_server",),
    ),
    "who calls the local server": Parser(
        "text",
        lambda: ["localhost:8787 http://localhost:8787 same-origin http://[::1]/v1", "[::1]:80 https://a.b none /v1"],
        lambda text: called(text),
        ("server/admission",),
    ),
}


def called(text: str) -> None:
    from turnlog.server.admission import Callers

    names = ("HTTP_HOST", "HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE", "REQUEST_URI")
    Callers().check(dict(zip(names, text.split(" "), strict=False)))


def to_event(text: str) -> object:
    from turnlog.http.api import Api
    from turnlog.server import local_server

    path, _, query = text.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path.encode("utf-8", "replace").decode("latin-1"),
        "QUERY_STRING": query.encode("utf-8", "replace").decode("latin-1"),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json",
        "HTTP_X_TURNLOG_USER": query.encode("utf-8", "replace").decode("latin-1") or "me",
    }
    request = local_server.request_of(environ, text.encode("utf-8", "replace"))
    answer = Api(ROUTES, application).answer(request, lambda app: local_server.caller_of(environ, app))
    assert answer.status < 500
    return answer


def test_every_module_that_reads_is_fuzzed_or_says_why_not() -> None:
    covered = {module for parser in PARSERS.values() for module in parser.modules}
    reading = modules_that_read()
    assert reading - covered - set(NOT_INPUT) == set(), "give it a parser below, or a reason"
    assert covered & set(NOT_INPUT) <= {"client/exports", "client/connections"}


# ------------------------------------------------------------ mutations

INTERESTING: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, 2**64 - 1, -(2**63), 1.5, -0.0, 1e308, "", "x", [], {}, [[]], [{}], {"": {}}),
    *(
        STRINGS[3],
        STRINGS[11],
        "\ud83d",
        "x" * 200,
        "2025-11-21T00:00:00Z",
        "12.0",
        "/a/b",
        {"role": "user"},
        {"type": 7},
    ),
)


@st.composite
def changed_bytes(draw: st.DrawFn, sample: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data))))
        kind = draw(st.sampled_from(("flip", "insert", "delete", "cut", "copy", "set")))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and at < len(data):
            data[at] = draw(st.sampled_from((0, 255, 34, 92, 123, 91, 48, 128, draw(st.integers(0, 255)))))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=12))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 16))]
        elif kind == "cut":
            del data[at:]
        elif kind == "copy":
            data[at:at] = data[at : at + draw(st.integers(1, 64))]
    return bytes(data)


@st.composite
def changed_text(draw: st.DrawFn, sample: str) -> str:
    text = sample
    for _ in range(draw(st.integers(1, 3))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 8))
        put = draw(
            st.one_of(st.sampled_from(STRINGS), st.text(max_size=6), st.sampled_from(tuple('{}[]",:\\0-.()*+?|^$')))
        )
        text = text[:at] + put + text[at + length :]
    return text


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*here, key))
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from places(value[at], (*here, at))


@st.composite
def changed_json(draw: st.DrawFn, sample: Any) -> Any:
    value = copy.deepcopy(sample)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(places(value))))
        new = draw(st.sampled_from(INTERESTING))
        if not place:
            value = copy.deepcopy(new) if draw(st.integers(0, 5)) == 0 else value
            continue
        parent = value
        for step in place[:-1]:
            parent = parent[step]
        kind = draw(st.sampled_from(("replace", "replace", "delete", "add", "wrap", "text")))
        if kind == "replace":
            parent[place[-1]] = copy.deepcopy(new)
        elif kind == "delete":
            del parent[place[-1]]
        elif kind == "wrap":
            parent[place[-1]] = [parent[place[-1]]]
        elif kind == "text":
            parent[place[-1]] = draw(changed_text(str(parent[place[-1]])[:300]))
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(("x", "", "type", "role", "content", "k", "__proto__")))] = copy.deepcopy(new)
        else:
            parent.append(copy.deepcopy(new))
    return value


CHANGED: dict[Kind, Callable[[Any], st.SearchStrategy[Any]]] = {
    "bytes": changed_bytes,
    "text": changed_text,
    "json": changed_json,
}
ANY: dict[Kind, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=300),
    "text": st.one_of(st.sampled_from(STRINGS), st.text(max_size=60)),
    "json": st.recursive(st.sampled_from(INTERESTING), lambda inner: st.lists(inner, max_size=3), max_leaves=6),
}


@pytest.mark.parametrize("name", PARSERS)
def test_v3_a_parser_returns_or_raises_a_typed_error(name: str) -> None:
    parser = PARSERS[name]
    samples = parser.samples()
    for sample in samples:
        with contextlib.suppress(TurnlogError, *parser.may):
            parser.call(copy.deepcopy(sample))
    inputs = st.one_of(*map(CHANGED[parser.kind], samples), ANY[parser.kind])

    @settings(
        max_examples=examples(parser.effort),
        derandomize=not is_full(),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def holds(data: Any) -> None:
        try:
            parser.call(data)
        except TurnlogError as error:
            assert len(str(error)) < 4_000, "an error does not repeat what it refuses"
        except parser.may:
            pass

    (example("A" * 10_000)(holds) if parser.kind == "text" else holds)()


def test_the_samples_are_what_their_parsers_take() -> None:
    """Else what is made of them is refused at the door, and nothing behind it is tried."""
    for name in ("a segment", "an export", "packed content", "a commit's header", "a policy", "a file to import"):
        parser = PARSERS[name]
        for sample in parser.samples():
            parser.call(sample)
    with pytest.raises(CorruptError):
        PARSERS["a segment"].call(world().segment[:-1])
    assert commit_of(world().lines[0], previous=bytes(16)).commit.header.first == 1
