"""Pages of the local server: their files, what protects them, read-only servers, and the command that opens them."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import waitress.server
from waitress.channel import HTTPChannel

from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.cli.serve import forwarding
from turnlog.client.in_process import InProcessBackend
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import ForbiddenError
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock
from turnlog.http.api import ApiAnswer, ApiRequest
from turnlog.routing import ROUTES
from turnlog.server.local_server import READS, Channel, HttpServer, LocalServer
from turnlog.server.pages import page_at
from turnlog.settings import Settings

FOLDER = Path(sys.modules["turnlog.server.pages"].__file__ or "").with_name("inspector")
FILES = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*") if file.is_file())
WORDS = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')
CHINESE = (FOLDER / "words.js").read_text("utf-8").partition("export const CHINESE")[2]


SCRIPTS = [name for name in FILES if name.endswith(".js") and "/" not in name]


# ------------------------------------------------------------ files


def test_the_files_are_small_and_load_nothing_from_elsewhere() -> None:
    loaded = [name for name in FILES if not name.endswith(".txt")]
    assert sum((FOLDER / name).stat().st_size for name in loaded) < 190_000
    for name in loaded:
        text = (FOLDER / name).read_text("utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        assert addresses == set(), name
        assert "dangerouslySetInnerHTML" not in text or name.startswith("vendor/")


def test_the_shell_has_no_inline_script_or_style() -> None:
    shell = (FOLDER / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\bon\w+=|\bstyle=", shell) == []


def test_what_is_vendored_is_what_its_readme_says_with_both_licences() -> None:
    digest, name = re.findall(
        r"^sha256 ([0-9a-f]{64})  (\S+)$", (FOLDER / "vendor" / "README.txt").read_text("utf-8"), re.M
    )[0]
    assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest
    assert "Apache License" in (FOLDER / "vendor" / "LICENSE-htm.txt").read_text("utf-8")
    assert "MIT" in (FOLDER / "vendor" / "LICENSE-preact.txt").read_text("utf-8")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_word_of_the_page_is_there_in_chinese(name: str) -> None:
    words = WORDS.findall((FOLDER / name).read_text("utf-8"))
    missing = [word for word in words if f'"{word}":' not in CHINESE and f"{word}:" not in CHINESE]
    assert missing == []


def test_words_that_views_look_up_are_there_in_chinese() -> None:
    windows, app, session = ((FOLDER / name).read_text("utf-8") for name in ("windows.js", "app.js", "session.js"))
    tables = re.findall(r"const (?:REASONS|BREAKS) = \{(.*?)\n\};", windows, re.S)
    words = [word for table in tables for word in re.findall(r': "([^"]+)"', table)]
    words += re.findall(r'"\], \["[^"]+", "([^"]+)"', app) + re.findall(r'\["\w+", "([^"]+)", \w+\]', session)
    assert len(words) > 50
    missing = [word for word in words if f'"{word}":' not in CHINESE and f"{word}:" not in CHINESE]
    assert missing == ["中文"]


def test_every_warning_and_action_of_the_log_has_words() -> None:
    from turnlog.core.loops import DISORDER

    english = (FOLDER / "words.js").read_text("utf-8").partition("export const CHINESE")[0]
    for code, message in DISORDER.items():
        assert f'{code}: "{message}"' in english and f"{code}:" in CHINESE


def test_every_reason_of_a_window_has_words() -> None:
    from typing import get_args

    from turnlog.core.window_parts import BreakReason

    windows = (FOLDER / "windows.js").read_text("utf-8")
    breaks = windows.partition("const BREAKS")[2].partition("};")[0]
    assert [reason for reason in get_args(BreakReason) if f"{reason}:" not in breaks] == []
    page = (Path(__file__).parents[2] / "docs" / "reference" / "windows.md").read_text("utf-8")
    result = page.partition("| reason | of |")[2].partition("\n\n")[0]
    named = [
        code
        for row in result.splitlines()
        for code in re.findall(r"`([a-z_]+)`", row.split("|")[1] if "|" in row else "")
    ]
    reasons = windows.partition("const REASONS")[2].partition("};")[0]
    assert len(named) > 25
    assert [code for code in named if f"{code}:" not in reasons and code != "thinking"] == []


# ------------------------------------------------------------ the server


def waitress_servers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each server that waitress makes from now on."""
    made, create = list[Any](), waitress.server.create_server

    def create_server(*arguments: Any, **options: Any) -> Any:
        made.append(create(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(waitress.server, "create_server", create_server)
    return made


@pytest.mark.network
def test_a_request_has_less_time_left_the_longer_it_takes() -> None:
    left = list[float]()

    def answer(request: ApiRequest, admit: Any, seconds_left: Callable[[], float]) -> ApiAnswer:
        before = seconds_left()
        time.sleep(0.01)
        left.extend((before, seconds_left()))
        return ApiAnswer(200, b"{}")

    server = HttpServer(answer, port=0).start()
    try:
        with urlopen(f"{server.url}/v1/jobs") as response:
            assert response.status == 200
    finally:
        server.stop()
    before, after = left
    assert after + 0.01 <= before <= 27


@contextmanager
def served(app: Application | None = None, **options: Any) -> Iterator[HttpServer]:
    application = app or make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    server = LocalServer(application, SystemClock(), port=0, **options).start()
    try:
        yield server
    finally:
        server.stop()
        application.close()


def asked(
    server: HttpServer, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    with closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


@pytest.mark.network
def test_pages_and_files_need_no_token_and_what_they_show_does() -> None:
    with served(token="t", about={"where": "shop.db"}) as server:
        for path in ("/inspector", "/docs", *(f"/inspector/{name}" for name in FILES)):
            status, headers, body = asked(server, path)
            assert (status, bool(body)) == (200, True), path
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy and headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/inspector/about.json", "/v1/sessions"):
            assert asked(server, path)[0] == 401
        status, _, body = asked(server, "/inspector/about.json", Authorization="Bearer t")
        assert status == 200 and json.loads(body)["where"] == "shop.db"
        assert asked(server, "/inspector", "HEAD")[2] == b""


@pytest.mark.network
def test_the_root_leads_to_the_inspector_and_nothing_else_is_a_page() -> None:
    with served() as server:
        moved = {"/": "/inspector", "/inspector/": "/inspector", "/docs/": "/docs"}
        for path, place in moved.items():
            status, headers, _ = asked(server, path)
            assert (status, headers["Location"]) == (308, place)
        for path in (
            "/inspector/no.js",
            "/inspector/../pages.py",
            "/inspector/%2e%2e/pages.py",
            "/inspector/vendor",
            "/inspector/vendor/",
        ):
            assert asked(server, path)[0] == 404, path
        assert asked(server, "/inspector", "POST")[0] == 404


@pytest.mark.parametrize("path", ["/inspector/", "/x", "", "/inspector//app.js", "/inspector/samples.md"])
def test_only_known_names_are_files(path: str) -> None:
    page = page_at(path)
    assert page is None or page[0] == 308


@pytest.mark.network
def test_the_reference_has_every_call_with_its_example() -> None:
    with served() as server:
        document = json.loads(asked(server, "/docs/openapi.json")[2])
    operations = {item["operationId"]: item for path in document["paths"].values() for item in path.values()}
    assert set(operations) == {route.name for route in ROUTES}
    assert [name for name, operation in operations.items() if not operation["x-codeSamples"]] == []


@pytest.mark.network
def test_a_server_that_stops_closes_the_files_of_connections_still_open(monkeypatch: pytest.MonkeyPatch) -> None:
    application = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    monkeypatch.setattr(Channel, "write_soon", HTTPChannel.write_soon)  # as for a client that reads slowly
    made = waitress_servers(monkeypatch)
    server = LocalServer(application, SystemClock(), port=0).start()
    reader, sender = (http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30) for _ in range(2))
    with closing(application), closing(reader), closing(sender):
        reader.request("GET", "/docs/openapi.json")
        assert len(reader.getresponse().read()) > 128 * 1024, "an answer that goes through a file"
        sender.request("POST", "/v1/sessions", headers={"Content-Length": "200000"})
        sender.send(b" " * 150_000)
        bodies: list[Any] = []
        while not bodies:
            time.sleep(0.02)
            channels = list(made[0].active_channels.values())
            requests = [channel.request for channel in channels if channel.request is not None]
            bodies = [request.body_rcv.getbuf() for request in requests if len(request.body_rcv) == 150_000]
        buffers = bodies + [buffer for channel in channels for buffer in channel.outbufs if buffer.overflowed]
        assert len(buffers) == 2
        server.stop()
        assert [buffer.getfile().closed for buffer in buffers] == [True, True]


@pytest.mark.network
def test_an_answer_is_sent_before_it_is_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread sends what is buffered, the server's loop would run in circles, 48 times an append at 32 clients."""
    buffered = list[int]()
    send = Channel.send

    def sending(channel: Channel, data: bytes, do_close: bool = True) -> int:
        buffered.append(channel.total_outbufs_len)
        return int(send(channel, data, do_close))

    monkeypatch.setattr(Channel, "send", sending)
    with served() as server:
        assert len(asked(server, "/v1/sessions")[2]) > 10
    assert len(buffered) >= 2
    assert set(buffered) == {0}


@pytest.mark.network
@pytest.mark.parametrize("name", ["X-Turnlog-User", "X-Turnlog-Tenant", "Idempotency-Key"])
def test_a_header_that_is_not_utf8_is_refused_so_no_two_names_are_one(name: str) -> None:
    """Some clients send é as one byte; decoded with a replacement, all names with such a letter would be one owner."""
    with served() as server:
        for value, answer in (("José".encode(), 201), (b"Jos\xe9", 422), (b"Jos\xe8", 422)):
            headers = {"Content-Type": "application/json", name: value.decode("latin-1")}
            status, _, body = asked(server, "/v1/sessions", "POST", "{}", **headers)
            assert status == answer, body
            assert status == 201 or "not sent as UTF-8" in json.loads(body)["detail"]


@pytest.mark.network
def test_the_scheme_of_a_token_may_be_in_small_letters() -> None:
    with served(token="t") as server:
        values = {text: asked(server, "/v1/sessions", Authorization=text)[0] for text in ("bearer t", "Bearer T", "t")}
    assert values == {"bearer t": 200, "Bearer T": 401, "t": 401}


@pytest.mark.network
def test_a_key_in_a_header_is_the_librarys_and_an_empty_one_is_refused() -> None:
    app = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    with served(app) as server, Turnlog.open(server.url) as log:
        message = {"role": "user", "content": "once"}
        appended = log.sessions.create("keyed").append(message, idempotency_key="ключ")
        in_process = Turnlog(InProcessBackend(app, Owner.of("local", "me"))).sessions.get("keyed")
        assert in_process.append(message, idempotency_key="ключ") == appended
        for key, answer in (("k", (201, None)), ("", (422, "invalid_input"))):
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            status, _, body = asked(server, "/v1/sessions", "POST", "{}", **headers)
            assert (status, json.loads(body).get("code")) == answer


WRITES = [route for route in ROUTES if route.name not in READS]


def test_what_is_no_read_is_a_write() -> None:
    reads = {route.name for route in ROUTES} - {route.name for route in WRITES}
    assert {route.name for route in ROUTES if route.writes} <= {route.name for route in WRITES}
    assert {"export_everything", "rewind_session", "restore_snapshot", "import_session"} & reads == set()
    assert {"build_context", "build_window", "lint_messages", "get_documents", "search_session"} <= reads


@pytest.mark.network
def test_a_read_only_server_refuses_every_write_and_keeps_everything() -> None:
    app = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    with served(app) as server, Turnlog.open(server.url) as log:
        log.sessions.create("kept").append({"role": "user", "content": "hello"})
        guarded = LocalServer(app, SystemClock(), port=0, read_only=True, worker=False).start()
        try:
            for route in WRITES:
                path = re.sub(r"\{\w+\}", "kept", route.path).replace("/kept/redact", "/2/redact")
                status, _, body = asked(guarded, path, route.method)
                assert (status, json.loads(body)["code"]) == (403, "read_only"), route.name
            with Turnlog.open(guarded.url) as reader:
                session = reader.sessions.get("kept")
                assert session.context().messages and [item.head for item in reader.sessions.list()] != []
                with pytest.raises(ForbiddenError):
                    session.append({"role": "user", "content": "no"})
            assert json.loads(asked(guarded, "/inspector/about.json")[2])["read_only"] is True
        finally:
            guarded.stop()
        assert log.sessions.get("kept").info().messages == 1


@pytest.mark.network
def test_a_read_only_server_leaves_the_queue_alone() -> None:
    """Another server with such a job, started after it, says when a worker would have done it."""
    engines = [make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate")) for _ in "ab"]
    logs = [Turnlog(InProcessBackend(app, Owner.of("local", "me"))) for app in engines]
    jobs = [log.sessions.create("kept").compress(mode="async") for log in logs]
    with served(engines[0], read_only=True) as server, served(engines[1]):
        for _ in range(600):
            if logs[1].job(jobs[1].job_id).status == "done":
                break
            time.sleep(0.1)
        assert asked(server, f"/v1/jobs/{jobs[0].job_id}")[0] == 200
        assert [log.job(job.job_id).status for log, job in zip(logs, jobs, strict=True)] == ["queued", "done"]


# ------------------------------------------------------------ a service behind the page


@pytest.mark.network
@pytest.mark.parametrize("name", ["plain", "c+d@e:f", "team/one"])
def test_what_is_forwarded_arrives_as_it_was_sent(name: str) -> None:
    """Ids with slashes, queries with spaces and other letters, bodies, keys, refusals and downloads."""
    with served(token="s3cret") as service:
        backend = HttpBackend(service.url, user="ada", token="s3cret")
        page = HttpServer(forwarding(backend), port=0, token="local").start()
        try:
            with (
                Turnlog.open(page.url, token="local") as log,
                Turnlog.open(service.url, user="ada", token="s3cret") as own,
            ):
                session = log.sessions.create(name, title="Grüße 你好")
                session.append({"role": "user", "content": "where is A17 & B18? 在哪里"}, idempotency_key="once")
                session.append({"role": "user", "content": "where is A17 & B18? 在哪里"}, idempotency_key="once")
                assert own.sessions.get(name).info().messages == 1
                assert own.sessions.get(name).info().title == "Grüße 你好"
                assert [hit.position for hit in session.search("A17 & B18 在哪里").results] == [2]
                assert session.context().messages == own.sessions.get(name).context().messages
                archive = BytesIO()
                session.export(archive)
                assert archive.getvalue().startswith(b"PK")
            assert asked(page, "/v1/sessions")[0] == 401
            status, _, body = asked(page, "/v1/sessions/none", Authorization="Bearer local")
            assert (status, json.loads(body)["code"]) == (404, "not_found")
            assert asked(page, "/v1/nothing", Authorization="Bearer local")[0] == 404
        finally:
            page.stop()
            backend.close()


@pytest.mark.network
def test_a_service_that_does_not_answer_is_named() -> None:
    backend = HttpBackend("http://127.0.0.1:9", max_tries=1)
    page = HttpServer(forwarding(backend), port=0).start()
    try:
        status, _, body = asked(page, "/v1/sessions")
        assert (status, json.loads(body)["code"]) == (503, "unreachable")
    finally:
        page.stop()
        backend.close()


@pytest.mark.network
def test_the_command_serves_a_file_for_who_has_its_address(tmp_path: Path) -> None:
    with Turnlog.open(f"sqlite:///{tmp_path}/shop.db", user="ada") as log:
        log.sessions.create("seen").append({"role": "user", "content": "hello"})
    arguments = ["inspect", f"sqlite:///{tmp_path}/shop.db", "--json", "--read-only", "--user", "ada"]
    command = [sys.executable, "-m", "turnlog.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        content = json.loads(process.stdout.readline())
        url, _, token = content["url"].partition("/inspector#token=")
        assert content["read_only"] is True and len(token) >= 32
        with Turnlog.open(url, token=token, user="ada") as log:
            assert log.sessions.get("seen").info().messages == 1
        with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)) as connection:
            connection.request("GET", "/inspector/about.json", headers={"Authorization": f"Bearer {token}"})
            about = json.loads(connection.getresponse().read())
            assert (about["user"], about["read_only"]) == ("ada", True)
            connection.request("GET", "/v1/sessions")
            assert connection.getresponse().status == 401
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.network
def test_connections_leave_files_for_the_engine_where_a_process_may_open_few(monkeypatch: pytest.MonkeyPatch) -> None:
    made = waitress_servers(monkeypatch)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        server = HttpServer(lambda *_, **_options: ApiAnswer(200, b""), port=0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    server.stop()
    assert 300 <= made[0].adj.connection_limit <= 400


@pytest.mark.network
def test_the_command_prints_its_address_in_one_line_however_narrow_the_terminal(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/shop.db"
    with Turnlog.open(place) as log:
        log.sessions.create("seen")
    command = [sys.executable, "-m", "turnlog.cli", "inspect", place, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "20"}) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(3)]
        process.terminate()
        assert process.wait(30) == 0
    assert (shown[0], shown[2]) == (f"turnlog shows {place} at\n", "Ctrl-C stops it\n")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/inspector#token=[\w-]{32}\n", shown[1]), shown


def test_a_place_without_data_is_named(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "turnlog.cli", "inspect", str(tmp_path / "none"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no_data" in ended.stderr
