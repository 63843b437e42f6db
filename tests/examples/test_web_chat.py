"""examples/web-chat as a process of its own: streams are read as a browser reads them, cut off, and gone on with."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.chat_server import StreamingServer

pytestmark = pytest.mark.network
SERVER = Path(__file__).parent.parent.parent / "examples" / "web-chat" / "server.py"
PATIENCE_SECONDS = 60
SLOW = "0.3"  # a reply takes long enough to be cut off, however busy the machine is
MINE = "my-own-session-of-30-letters"


class Site:
    """The example on a free port; ends what it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes = list[subprocess.Popen[str]]()
        self.url = ""

    def start(self, **env: str) -> Site:
        clean = {name: item for name, item in os.environ.items() if not name.startswith(("TURNLOG_", "OPENAI_"))}
        process = subprocess.Popen(
            [sys.executable, str(SERVER), "--port", "0", "--log", f"sqlite:///{self._folder}/chat.db"],
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "WEB_CHAT_PAUSE_SECONDS": "0.001", **env},
        )
        self._processes.append(process)
        assert process.stdout is not None
        self.url = process.stdout.readline().rpartition(" ")[2].strip()
        assert self.url.startswith("http://")
        return self

    def end(self, number: int) -> int:
        self._processes[-1].send_signal(number)
        return self._processes[-1].wait(PATIENCE_SECONDS)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Visitor:
    """A browser: it keeps its cookie."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.cookie = ""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """The answer with its head read."""
        self.connection = http.client.HTTPConnection(urlsplit(self._site.url).netloc, timeout=PATIENCE_SECONDS)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        self.connection.request(method, path, data, {**sent, **headers})
        answer = self.connection.getresponse()
        result = answer.getheader("Set-Cookie")
        if result:
            self.cookie = result.partition(";")[0]
        return answer

    def whole(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        answer = self.ask(method, path, body, **headers)
        try:
            data = answer.read()
            is_json = answer.getheader("Content-Type") == "application/json"
            return answer.status, json.loads(data) if is_json else {"error": data}
        finally:
            self.connection.close()

    def messages(self, **headers: str) -> list[tuple[str, str, str]]:
        status, result = self.whole("GET", "/messages", **headers)
        assert status == 200
        return [(message["role"], message["status"], message["text"]) for message in result["messages"]]

    def say(self, text: str, path: str = "/messages", **headers: str) -> tuple[str, list[str]]:
        """The reply of a whole stream, and the names of its events."""
        items = list(events(self.ask("POST", path, {"text": text}, **headers)))
        self.connection.close()
        return "".join(value.get("text", "") for _, value in items), [name for name, _ in items]

    def leaves_after(self, deltas: int, text: str) -> str:
        """Says something, reads so much of the reply, and closes the tab; what was read."""
        answer, read = self.ask("POST", "/messages", {"text": text}), ""
        for at, (_, value) in enumerate(events(answer), start=1):
            read += value["text"]
            if at == deltas:
                break
        answer.close()
        self.connection.close()
        return read


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    assert answer.status == 200, answer.read()
    assert answer.getheader("Content-Type") == "text/event-stream"
    name = ""
    while line := answer.readline():
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


def until_kept(visitor: Visitor, count: int) -> list[tuple[str, str, str]]:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while len(messages := visitor.messages()) < count:
        assert time.monotonic() < ends_at, messages
        time.sleep(0.02)
    return messages


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One process for tests that do not end it; each has visitors of its own."""
    made = Site(tmp_path_factory.mktemp("site")).start()
    yield made
    made.close()


def test_a_reply_streams_and_is_there_when_the_page_is_loaded_again(running_site: Site) -> None:
    visitor = Visitor(running_site)
    page = visitor.ask("GET", "/")
    text = page.read().decode()
    assert page.status == 200 and "<textarea" in text and "http://" not in text and "https://" not in text
    page.close()
    visitor.connection.close()
    assert page.getheader("X-Session-ID") == visitor.cookie.partition("=")[2]
    assert visitor.messages() == []
    reply, names = visitor.say("Hello there")
    assert reply.startswith("You said: Hello there.") and names[-1] == "done" and names.count("delta") > 20
    assert visitor.messages() == [("user", "complete", "Hello there"), ("assistant", "complete", reply)]
    assert visitor.whole("POST", "/answer", {})[0] == 409
    second, _ = visitor.say("And?")
    assert "3 messages" in second


def test_a_session_is_one_visitors(running_site: Site) -> None:
    ada, bob = Visitor(running_site), Visitor(running_site)
    ada.say("The word is heron.")
    bob.say("Hello")
    assert "heron" not in str(bob.messages()) and "heron" in str(ada.messages())
    api = Visitor(running_site)
    reply, _ = api.say("Hi from a program", **{"X-Session-ID": MINE})
    assert api.cookie == "", "who gives an id keeps it"
    answer = api.ask("GET", "/messages", **{"X-Session-ID": MINE})
    assert answer.getheader("X-Session-ID") == MINE and reply in [
        message["text"] for message in json.load(answer)["messages"]
    ]
    api.connection.close()
    # The header goes before the cookie, and the id of a cookie does as a header.
    assert len(ada.messages(**{"X-Session-ID": MINE})) == 2
    assert ada.messages() == Visitor(running_site).messages(**{"X-Session-ID": ada.cookie.partition("=")[2]})
    before = ada.cookie
    assert ada.whole("POST", "/session")[0] == 201 and ada.cookie != before and ada.messages() == []


def test_a_visitor_who_leaves_in_mid_stream_finds_what_was_said_and_goes_on(site: Site) -> None:
    visitor = Visitor(site.start(WEB_CHAT_PAUSE_SECONDS=SLOW))
    read = visitor.leaves_after(3, "Tell me")
    result = until_kept(visitor, 2)
    role, status, kept = result[1]
    assert (role, status) == ("assistant", "interrupted") and kept.startswith(read)
    assert not kept.endswith("interrupted."), "it ends before the script does"
    assert site.end(signal.SIGTERM) == 0
    site.start()
    reply, names = visitor.say("", "/answer")
    assert names[-1] == "done" and reply.startswith("You said: Tell me.")
    assert [status for _, status, _ in visitor.messages()] == ["complete", "interrupted", "complete"]
    assert "3 messages" in visitor.say("And?")[0], "what was interrupted is in no window"


def test_a_server_that_is_stopped_keeps_what_was_said(site: Site) -> None:
    visitor = Visitor(site.start(WEB_CHAT_PAUSE_SECONDS=SLOW))
    answer = visitor.ask("POST", "/messages", {"text": "Tell me"})
    first = next(events(answer))[1]["text"]
    assert site.end(signal.SIGTERM) == 0
    visitor.connection.close()
    site.start()
    messages = visitor.messages()
    assert [item[:2] for item in messages] == [("user", "complete"), ("assistant", "interrupted")]
    assert messages[1][2].startswith(first)


def test_a_server_that_is_killed_has_the_question_and_goes_on(site: Site) -> None:
    visitor = Visitor(site.start(WEB_CHAT_PAUSE_SECONDS=SLOW))
    next(events(visitor.ask("POST", "/messages", {"text": "Tell me"})))
    assert site.end(signal.SIGKILL) == -signal.SIGKILL
    visitor.connection.close()
    site.start()
    assert visitor.messages() == [("user", "complete", "Tell me")]
    reply, names = visitor.say("", "/answer")
    assert names[-1] == "done" and visitor.messages()[1] == ("assistant", "complete", reply)


HOSTILE = [
    ("GET", "/messages", None, {"X-Session-ID": "short"}),
    ("GET", "/messages", None, {"X-Session-ID": ""}),
    ("GET", "/messages", None, {"X-Session-ID": "x" * 65}),
    ("GET", "/messages", None, {"X-Session-ID": "../../../../etc/passwd/x"}),
    ("GET", "/messages", None, {"X-Session-ID": "' OR 1=1 -- xxxxxxxxxxxxxxx"}),
    ("GET", "/messages", None, {"X-Session-ID": "h_" + "x" * 30}),
    ("GET", "/messages", None, {"X-Session-ID": "é" * 30}),
    ("GET", "/messages", None, {"Cookie": "chat_session=\x01"}),
    ("POST", "/messages", b"{", {}),
    ("POST", "/messages", b"\xff\xfe", {}),
    ("POST", "/messages", b"[" * 50_000, {}),
    ("POST", "/messages", b"{}", {"Content-Type": "text/plain"}),
    ("POST", "/messages", [], {}),
    ("POST", "/messages", {"text": 7}, {}),
    ("POST", "/messages", {"text": " \n"}, {}),
    ("POST", "/messages", {"text": "x" * 8_001}, {}),
    ("POST", "/messages", b" " * 70_000, {}),
    ("POST", "/answer", {}, {}),
    ("GET", "/../models.py", None, {}),
    ("DELETE", "/messages", None, {}),
]


def test_hostile_requests_are_the_callers_fault(running_site: Site) -> None:
    for method, path, body, headers in HOSTILE:
        status, answer = Visitor(running_site).whole(method, path, body, **headers)
        assert 400 <= status < 500 and answer["error"], (method, path, headers, status)
    for cookie in (
        "chat_session=../../x",
        "chat_session=",
        'chat_session="h_\\',
        "=;=",
        "chat_session=" + "x" * 99,
    ):
        stranger = Visitor(running_site)
        stranger.cookie = cookie
        assert stranger.messages() == [] and stranger.cookie != cookie, "another one is made"


def test_pages_of_other_sites_are_refused(running_site: Site) -> None:
    own = running_site.url
    for method, path in (
        ("GET", "/"),
        ("GET", "/messages"),
        ("POST", "/session"),
        ("POST", "/messages"),
        ("POST", "/answer"),
    ):
        body = {"text": "planted"} if method == "POST" else None
        for headers in (
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        ):
            assert Visitor(running_site).whole(method, path, body, **headers)[0] == 403
        assert (
            Visitor(running_site).whole(method, path, body, **{"Origin": own, "Sec-Fetch-Site": "same-origin"})[0]
            != 403
        )


def test_a_model_behind_openais_api(site: Site) -> None:
    server = StreamingServer({"role": "assistant", "content": "It is far."}, 400)
    try:
        site.start(OPENAI_API_KEY="k", OPENAI_BASE_URL=f"{server.url}/v1", WEB_CHAT_MODEL="m")
        visitor = Visitor(site)
        assert visitor.say("Where is it?")[0] == "It is far."
        assert server.asked[0]["model"] == "m" and "Where is it?" in str(server.asked[0])
        reply, names = visitor.say("And now?")
        assert (reply, names) == ("", ["failed"])
        assert [role for role, _, _ in visitor.messages()] == ["user", "assistant", "user"]
    finally:
        server.close()
