"""The inspector in a real browser: its views on the samples, a hostile session, 10,000 messages, keys, languages, axe-core.

Needs Chromium (Debian: `apt-get install chromium`) and skips where there is none. One browser, one server and one page serve most
tests, and each waits for what the page shows, never for a time.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.effort import is_full
from tests.server.conftest import Reader, new_context
from tests.support.pictures import png
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.cli.screen import plain
from turnlog.cli.serve import forwarding
from turnlog.cli.transcripts import read_transcripts
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session
from turnlog.client.over_http import HttpBackend
from turnlog.core.identity import Owner
from turnlog.engines import SystemClock
from turnlog.routing import ROUTES
from turnlog.server.local_server import HttpServer, LocalServer
from turnlog.settings import Settings

pytestmark = [
    pytest.mark.network,
    # A page that goes away leaves a large answer of waitress in a temporary file, which the garbage collector closes.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ORDER = "CF-2603-48817"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e مرحبا بالعالم"


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    application = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    yield application
    application.close()


@pytest.fixture(scope="module")
def log(app: Application) -> Turnlog:
    log = Turnlog(InProcessBackend(app, Owner.of("local", "me")))
    for transcript in read_transcripts([SAMPLES / "support-agent.json", SAMPLES / "messy.jsonl"]):
        if transcript.id in ("support-agent", "orphan-and-second-result"):
            policy = "turns(1)" if transcript.id == "support-agent" else None
            session = log.sessions.create(transcript.id, tools=transcript.tools or None, policy=policy)
            _append(session, transcript.messages)
    _hostile(log)
    return log


@pytest.fixture(scope="module")
def url(app: Application, log: Turnlog) -> Iterator[str]:
    server = LocalServer(app, SystemClock(), port=0, worker=False).start()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def shared_context(browser: Any) -> Iterator[Any]:
    context = new_context(browser)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture(scope="module")
def shared_reader(shared_context: Any, url: str) -> Reader:
    reader = Reader(shared_context, url)
    reader.open()
    return reader


@pytest.fixture
def reader(shared_reader: Reader) -> Iterator[Reader]:
    """The page that tests share, at the list of sessions."""
    shared_reader.show("#/", "table.list")
    shared_reader.requests.clear()
    yield shared_reader
    assert shared_reader.trouble == []


@pytest.fixture
def new_reader(browser: Any, shared_context: Any, url: str) -> Iterator[Callable[..., Reader]]:
    """Make a page of its own, for tests that load it anew or need another server; apart for those that need another language
    or clock."""
    readers, contexts = list[Reader](), list[Any]()

    def make(base: str = url, *, apart: bool = False, **options: Any) -> Reader:
        if apart or options:
            contexts.append(new_context(browser, **options))
        readers.append(Reader(contexts[-1] if apart or options else shared_context, base))
        return readers[-1]

    yield make
    for item in (*readers, *contexts):
        item.close()
    assert [trouble for reader in readers for trouble in reader.trouble] == []


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def _append(session: Session, messages: Any) -> None:
    for start in range(0, len(messages), 25):
        session.append(*messages[start : start + 25], lenient=True)


def _hostile(log: Turnlog) -> None:
    session = log.sessions.create("hostile", title=HOSTILE)
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(40, 30)}"}}
    tracker = {"type": "image_url", "image_url": {"url": "https://evil.example/track.png"}}
    calls = [
        {
            "id": f"c{index}",
            "type": "function",
            "function": {"name": "<b>get</b>", "arguments": json.dumps({"id": index, "x": HOSTILE})},
        }
        for index in range(300)
    ]
    session.append({"role": "user", "content": HOSTILE}, {"role": "assistant", "content": "x" * 1_000_000})
    session.append({"role": "user", "content": [{"type": "text", "text": "see"}, picture, tracker]})
    session.append({"role": "assistant", "content": None, "tool_calls": calls})
    _append(session, [{"role": "tool", "tool_call_id": f"c{index}", "content": HOSTILE} for index in range(300)])
    session.append({"role": "assistant", "content": f"javascript:alert(1) {HOSTILE}"})
    session.patch_state(
        {"a<b>": HOSTILE, "agents": {"main": {"agent_id": "main", "pending_action": {"tool": HOSTILE}}}}
    )


# ------------------------------------------------------------ the tour


def test_why_the_model_did_not_see_the_order_number_at_call_14_takes_four_clicks(reader: Reader) -> None:
    page = reader.page
    page.click("text=support-agent")  # 1
    page.click("nav.tabs >> text=Windows")  # 2
    page.wait_for_selector(".growth g >> nth=39")
    page.click(".growth g >> nth=13 >> .touch", force=True)  # 3
    page.wait_for_selector("text=Call 14 of 40")
    page.fill(".findvalue input", ORDER)
    page.click(".findvalue button")  # 4
    page.wait_for_selector("text=not in the window")
    first = page.locator(".hits li").first
    assert "left out" in first.inner_text() and "more turns than the policy shows" in first.inner_text()
    # One click more brings the original, with the value marked; and under another policy it would have been there.
    first.locator("button").click()
    page.wait_for_selector(f".detail mark:has-text('{ORDER}')")
    page.click("text=Try another beside it")
    page.fill(".options >> nth=1 >> input >> nth=0", "default")
    page.keyboard.press("Enter")
    page.wait_for_url("**policy2=default**")
    page.wait_for_selector("text=Against this window")


# ------------------------------------------------------------ views


def test_a_window_shows_its_parts_their_originals_and_what_is_sent(reader: Reader, log: Turnlog) -> None:
    page = reader.show("#/s/support-agent/window?call=30&policy=run_loops&budget=6000", ".part.digest")
    assert "of 6,000 tokens" in page.inner_text(".budget")
    assert page.locator(".part.digest .why").first.inner_text() == "a past loop: told in a digest"
    page.wait_for_selector(".changes")
    page.locator(".part.digest .partname").first.click()
    page.wait_for_selector(".detail .sent mark")  # values of the ledger that later calls use
    assert "turnlog-data" in page.inner_text(".detail .sent")
    page.wait_for_selector(".detail article.message")
    page.click("button:text-is('Request')")
    page.click("text=Copy the request as JSON")
    page.wait_for_selector("text=Copied")
    session = log.sessions.get("support-agent")
    at = int(page.inner_text(".scrubhead a").removeprefix("#")) - 1
    window = session.context(at=at, policy="run_loops", budget=6_000)
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["messages"] == window.messages
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=Call 31 of 40")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=Call 30 of 40")
    page.locator(".scrub input[type=range]").fill("3")
    page.wait_for_selector("text=Call 3 of 40")


def test_what_is_typed_stays_while_windows_are_measured(reader: Reader) -> None:
    page = reader.show("#/s/support-agent/window", ".options input")
    page.fill(".options input >> nth=0", "run_lo")
    page.wait_for_selector("text=41 calls:")  # the view was drawn for each
    page.type(".options input >> nth=0", "ops")
    page.keyboard.press("Enter")
    page.wait_for_url("**policy=run_loops**")


def test_what_a_window_recalled_is_a_part_of_it(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("recalling", policy="recall")
    for number in range(60):
        said = f"The code of locker {number} is LK-{7_000 + number * 13}. " + "Nothing else to report today. " * 10
        session.append({"role": "user", "content": said}, {"role": "assistant", "content": f"Noted {number}."})
    session.append({"role": "user", "content": "What was the code of locker 7?"})
    page = reader.show("#/s/recalling/window?budget=3000", ".part.recalled")
    page.click(".part.recalled .partname")
    page.wait_for_selector(".detail .sent")
    assert "LK-" in page.inner_text(".detail .sent")


def test_what_hides_or_moves_characters_is_seen_where_one_approves(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("bidi", title="a\u202eb")
    action = {"tool": "pay", "to": "\u202e0001-EVIL\u202c", "amount": "5\u200b000"}
    session.append({"role": "user", "content": "x\u2066y"}, run={"agent_id": "main", "pending_action": action})
    page = reader.show("#/s/bidi/state", "button:text-is('Approve')")
    shown = page.inner_text("main")
    assert r'"\u202e0001-EVIL\u202c"' in shown and r"5\u200b000" in shown
    assert page.locator(".escape:text-is('\\\\u200b')").count() >= 1
    assert page.title() == r"a\u202eb · Turnlog"
    page = reader.show("#/s/bidi/messages", "article .escape")
    assert r"x\u2066y" in page.inner_text("article .content")
    for around in "a|", "क":
        texts = [
            f"{around}{chr(code)}{around}"
            for code in (*range(0xD800), *range(0xE000, 0x10000), *range(0xE0000, 0xE0200))
        ]
        rule = "texts => import('/inspector/lib.js').then(lib => texts.map(text => lib.plain(text)))"
        assert page.evaluate(rule, texts) == [plain(text) for text in texts]


SHAPES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "anthropic": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(40, 30)}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I look it up", "signature": "c2ln"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"where": "top"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": '{"items": [1, 2]}'}]},
        ],
        ["article img[src^='data:image/png']", "summary:text('Thinking')", ".call >> text=look", ".result .fold"],
    ),
    "openai_responses": (
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather in Lyon?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a tool"}]},
            {"type": "function_call", "call_id": "f1", "name": "weather", "arguments": '{"city": "Lyon"}'},
            {"type": "function_call_output", "call_id": "f1", "output": "21 degrees"},
        ],
        ["summary:text('Thinking')", ".call >> text=weather", ".call .key >> text=city", ".result >> text=21 degrees"],
    ),
    "bedrock_converse": (
        [
            {"role": "user", "content": [{"text": "Weather in Oslo?"}]},
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "b1", "name": "weather", "input": {"city": "Oslo"}}}],
            },
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "b1", "content": [{"json": {"t": 3}}], "status": "error"}}],
            },
        ],
        [".call >> text=weather", ".result.error .key >> text=t"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_are_shown_by_the_shape_of_their_provider(reader: Reader, log: Turnlog, shape: str) -> None:
    messages, selectors = SHAPES[shape]
    log.sessions.create(shape).append(*messages, format=shape)
    page = reader.show(f"#/s/{shape}/messages", f"[data-position='{len(messages) + 1}']")
    for selector in selectors:
        page.wait_for_selector(selector)
    page = reader.show(f"#/s/{shape}/window", ".budget")
    assert page.locator(".options select").input_value() == shape, "the format of the session's messages"


def test_agents_within_a_call_and_in_sessions_of_their_own_stand_with_their_call(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("planner")
    ask = {"id": "k", "type": "function", "function": {"name": "research", "arguments": "{}"}}
    session.append(
        {"role": "user", "content": "How much?"}, {"role": "assistant", "content": None, "tool_calls": [ask]}
    )
    within = {"ref": "3.0", "agent_id": "checker"}
    session.append({"role": "user", "content": "Check VND-3301"}, parent=within)
    session.append({"role": "assistant", "content": "VND-3301 is Acme"}, parent=within)
    session.append(
        {"role": "tool", "tool_call_id": "k", "content": "4,200"}, {"role": "assistant", "content": "4,200."}
    )
    metadata = {"parent": {"session_id": "planner", "ref": "3.0"}}
    log.sessions.create("planner/3.0/researcher", metadata=metadata).append({"role": "user", "content": "Research"})
    session.acquire("worker-7", seconds=3_600)
    session.send_to_run({"role": "user", "content": "Be quick"}, mode="steer")
    page = reader.show("#/s/planner/messages", ".message.nested")
    assert "3.0 checker" in page.locator(".message.nested").first.inner_text()
    page.wait_for_selector(".sessionhead >> text=run by worker-7")
    page.click(".outline .inner")
    page.wait_for_selector(".message.nested.selected")
    page = reader.show("#/s/planner/window?call=2", "text=Call 2 of 3")
    page.wait_for_selector(".scrubhead >> text=3.0 checker")
    page.wait_for_selector(".parts")
    page.click("button:text-is('Request')")
    page.wait_for_selector(".request >> text=Check VND-3301")
    assert "How much?" not in page.inner_text(".request"), "an agent's window is its own"
    page = reader.show("#/s/planner/state", ".agent")
    assert "1 message wait" in page.inner_text(".agent")
    page = reader.show("#/s/planner/copies", ".tree ul a")
    page.click(".tree ul a")
    page.click(".sessionhead a:has-text('planner 3.0')")
    page.wait_for_selector("h1 bdi:text-is('planner')")


def test_warnings_stand_where_they_arose(reader: Reader) -> None:
    page = reader.show("#/s/orphan-and-second-result/messages", ".message .warning")
    assert "orphan_result" in page.inner_text(".scroller") and "belongs to no call" in page.inner_text(".scroller")


def test_sessions_are_filtered_searched_and_shown_with_the_next_call(reader: Reader) -> None:
    page = reader.page
    row = page.locator("tbody tr", has_text="support-agent")
    expect(row.locator("td").nth(1)).to_have_text("86")
    expect(row.locator("td").nth(4)).to_have_text(re.compile(r"\d"))
    page.keyboard.press("/")
    page.keyboard.type("support-ag")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.fill("input[type=search]", "projector fan roars")
    page.keyboard.press("Enter")
    page.wait_for_selector(".found mark")
    page.locator(".found a").first.click()
    page.wait_for_selector(".message.selected")


def test_search_recall_and_two_moments(reader: Reader) -> None:
    page = reader.show("#/s/support-agent/find?ref=8.0", "text=get_order")
    page.fill("[role=search] input", "when is the replacement due")
    page.keyboard.press("Enter")
    page.wait_for_selector(".found mark")
    page.fill("input[aria-label='Ref or position']", "99999.0")
    page.click("button.primary:text-is('Recall')")
    page.wait_for_selector("text=Tool call result not found")
    page = reader.show("#/s/support-agent/compare?from=20&to=24", "text=4 messages came into view")
    assert page.locator("article.message").count() == 4


def test_changes_ask_first_and_are_done(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("changed")
    for index in range(4):
        session.append({"role": "user", "content": f"secret {index}"}, {"role": "assistant", "content": "noted"})
    page = reader.show("#/s/changed/messages?at=4", "[data-position='4']")

    def choose(position: int, title: str) -> None:
        page.click(f"[data-position='{position}'] button[aria-label^='More']")
        page.click(f"dialog >> text={title}")

    choose(4, "Redact this message")
    page.fill("dialog input", "5")
    page.click("dialog button.danger")
    page.wait_for_selector("dialog .failure")
    assert not any(message.redacted for message in session.messages())
    page.fill("dialog input", "4")
    page.click("dialog button.danger")
    page.wait_for_selector("[data-position='4'] >> text=redacted")
    choose(5, "Rewind to here")
    page.click("dialog >> text=Cancel")
    assert session.info().messages == 8
    choose(5, "Rewind to here")
    page.click("dialog footer button.primary")
    page.wait_for_selector(".message.faded")
    assert session.info().messages == 4
    page = reader.show("#/s/changed/copies", "text=New snapshot")
    page.click("text=New snapshot")
    page.fill("dialog input >> nth=0", "before")
    page.click("dialog footer button.primary")
    page.wait_for_selector(".entry >> text=before")
    page.click("main >> button:text-is('Fork')")
    page.fill("dialog label:has-text('Title') input", "Another way")
    page.click("dialog footer button.primary")
    page.wait_for_selector("h1:has-text('Another way')")
    assert [snapshot.name for snapshot in session.snapshots()] == ["before"]
    assert not [request for request in reader.requests if request.endswith("/summary")], "none has one: no 404"


def test_the_summary_stands_beside_the_snapshots(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("summarised", policy="classic")
    for index in range(20):
        session.append({"role": "user", "content": f"why {index}? " * 40}, {"role": "assistant", "content": "so " * 40})
    summary = session.compress(keep_loops=0).summary
    assert summary is not None
    page = reader.show("#/s/summarised/copies", "text=New snapshot")
    page.wait_for_selector(f"main >> text={summary.text[:20]}")


def test_the_state_its_agents_and_a_pending_action(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("agents", state={"lang": "en"})
    session.append({"role": "user", "content": "go"})
    session.patch_agent({"iteration": 2, "pending_action": {"tool": "refund"}}, agent_id="main")
    page = reader.show("#/s/agents/state", ".agent")
    page.click("text=Reject")
    page.fill("dialog input", "too late")
    page.click("dialog button.danger")
    page.wait_for_selector("text=too late")
    assert session.agent("main").state["pending_action"]["decision"] == "reject"


def test_numbers_are_shown_and_copied_as_the_server_wrote_them(reader: Reader, log: Turnlog) -> None:
    big, numbers = 9007199254740993, {"big": 9007199254740993, "f": 1.0, "valueOf": 1}
    session = log.sessions.create("numbers", state=numbers)
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": numbers}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": json.dumps({"result": big + 1})}
    session.append(
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        format="anthropic",
    )
    page = reader.show("#/s/numbers/state", "text=9007199254740993")
    assert page.locator(".value.number").all_inner_texts()[:3] == ["9007199254740993", "1.0", "1"]

    def copied(button: str) -> str:
        page.evaluate("navigator.clipboard.writeText('')")
        page.click(button)
        page.wait_for_function("navigator.clipboard.readText().then(text => text !== '')")
        return str(page.evaluate("navigator.clipboard.readText()"))

    state = copied("main button:text-is('Copy')")
    assert json.loads(state) == numbers and '"f": 1.0' in state
    reader.show("#/s/numbers/messages", "text=9007199254740994")
    assert json.loads(copied("[data-position='3'] button:text-is('JSON')"))["content"][0]["input"]["big"] == big
    reader.show(f"#/s/numbers/window?find={big}", ".hits li")
    page.click("button:text-is('Request')")
    request = copied("text=Copy the request as JSON")
    assert json.loads(request)["messages"] == session.context(format="anthropic").messages and '"f": 1.0' in request


POLLS = """
    const send = fetch;
    window.polls = [];
    window.fetch = (target, ...options) => {
        if (String(target).endsWith('/v1/sessions/live')) window.polls.push(Date.now());
        return send(target, ...options);
    };
"""


def test_new_messages_appear_by_a_request_a_second_at_most_and_none_while_hidden(
    new_reader: Callable[..., Reader], log: Turnlog
) -> None:
    """The page has a clock of the test's own."""
    session = log.sessions.create("live")
    session.append({"role": "user", "content": "first"})
    reader = new_reader(apart=True)
    page = reader.page
    page.clock.install()
    page.add_init_script(POLLS)
    reader.open("/inspector#/s/live/messages")
    page.wait_for_selector("text=first")
    session.append({"role": "assistant", "content": "and here I am"})
    page.wait_for_selector("text=and here I am")
    page.clock.pause_at(page.evaluate("Date.now()") + 60_000)
    page.evaluate("window.polls.length = 0")

    def polls(enough: int, most_steps: int) -> list[int]:
        """Let time pass until there are enough requests."""
        for _ in range(most_steps):
            page.clock.run_for(250)
            if len(page.evaluate("window.polls")) >= enough:
                break
        times: list[int] = page.evaluate("window.polls")
        return times

    times = polls(6, 2_000)
    assert len(times) == 6 and min(later - time for time, later in itertools.pairwise(times)) >= 1_000
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange')); window.polls.length = 0")
    assert polls(1, 40) == []
    page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert polls(1, 2_000) != []


def test_an_address_that_is_no_session_says_so_and_the_next_one_is_shown(
    reader: Reader, new_reader: Callable[..., Reader]
) -> None:
    for address, code in (("%E0%A4%A", "invalid_input"), ("nobody", "not_found"), ("..", "not_found")):
        new_reader().open(f"/inspector#/s/{address}").wait_for_selector(f".failure >> text={code}")
        reader.show("#/s/support-agent/messages", "h1 >> text=support-agent")
        page = reader.show(f"#/s/{address}/messages", f".failure >> text={code}")
        assert page.locator("h1").count() == 0
    reader.show("#/s/support-agent/messages", "h1 >> text=support-agent")


def test_nothing_of_an_erased_session_stays_on_the_page(new_reader: Callable[..., Reader], log: Turnlog) -> None:
    session = log.sessions.create("erased", title="A secret title")
    session.append({"role": "user", "content": "a secret"})
    page = new_reader().open("/inspector#/s/erased/messages")
    page.wait_for_selector("text=a secret")
    reader = new_reader(apart=True)
    reader.page.clock.install()
    listed = reader.open()
    listed.wait_for_selector("text=A secret title")
    session.erase()
    page.wait_for_selector(".failure >> text=no session 'erased'")
    expect(page.locator("body")).not_to_contain_text("secret")
    expect(page).to_have_title("erased · Turnlog")
    listed.clock.fast_forward(60_000)
    expect(listed.locator("body")).not_to_contain_text("secret")


# ------------------------------------------------------------ hostile, large

SHOWN = {
    "messages?at=2": "[data-position='2']",
    "window": ".part",
    "state": ".agent",
    "history": "table.history tbody tr",
    "find?q=script": ".found li",
    "compare?from=1": "article.message",
    "copies": ".tree",
    "messages?at=4": "img[src^='data:image/png']",
}
"""The views of a session, and what each shows when it is there."""


def test_a_hostile_session_is_only_text_and_looking_writes_nothing(reader: Reader, log: Turnlog) -> None:
    before = log.sessions.get("hostile").info()
    for tab, selector in SHOWN.items():
        page = reader.show(f"#/s/hostile/{tab}", selector)
        assert page.title() != "owned"
        assert page.locator("main script, main b, main img[onerror]").count() == 0
    assert "Image, not loaded: https://evil.example/track.png" in page.inner_text(".scroller")
    page = reader.show("#/s/hostile/messages?at=3", "[data-position='3'] button.more")
    page.click("[data-position='3'] button.more")
    assert len(page.inner_text("[data-position='3'] .content")) > 100_000
    page = reader.show("#/", "tbody tr")
    assert page.locator("main script, main img").count() == 0
    assert log.sessions.get("hostile").info() == before
    assert {request.partition("?")[0].rpartition("/")[2] for request in reader.requests if request[:3] != "GET"} == {
        "context"
    }


ELEMENT = {"type": "a", "props": {"href": "/docs", "class": "made", "children": "Log in"}, "__b": 1}
"""What the page's library takes for an element of its own."""
ODD = (
    {"role": "user", "content": [{"type": ELEMENT}]},
    {"role": "user", "content": [{"type": "text", "text": "hi"}, ELEMENT]},
    {"role": "assistant", "content": [{"type": "refusal"}, {"type": "refusal", "refusal": 5}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": ELEMENT, "signature": "s"}]},
    *(
        {
            "role": "assistant",
            "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}],
        }
        for id, name in ((ELEMENT, "f"), ("c", ELEMENT), (12345678901234567890, "f"), (1.0, "f"))
    ),
    {"role": "tool", "tool_call_id": ELEMENT, "content": "x"},
)


def test_a_value_that_is_no_text_is_shown_as_text_and_stops_no_other_session(reader: Reader, log: Turnlog) -> None:
    session = log.sessions.create("odd")
    for message in ODD:
        session.append(message)
    for position in range(2, 2 + len(ODD)):
        place = f"[data-position='{position}'] .content"
        shown = reader.show(f"#/s/odd/messages?at={position}", place).inner_text(place)
        assert ("12345678901234567890" in shown) == (position == 8)
        assert reader.page.locator(".made").count() == 0
    page = reader.show("#/s/odd/compare?from=1", "article.message")
    assert page.locator(".made").count() == 0 and page.title() == "odd · Turnlog"
    reader.show("#/s/hostile/messages?at=2", "[data-position='2']")


def test_thousands_of_messages_open_at_the_newest_scroll_and_have_windows(reader: Reader, log: Turnlog) -> None:
    """Ten thousand in `make full`."""
    count = 10_000 if is_full() else 600
    middle, calls = count // 2 + 1, count // 2
    session = log.sessions.create("large")
    for start in range(0, count, 25):
        turns = (
            {"role": ("user", "assistant")[index % 2], "content": f"message {index} " * (1 + index % 9)}
            for index in range(start, start + 25)
        )
        session.append(*turns)
    page = reader.show("#/s/large/messages", f"text=message {count - 1}")
    assert page.locator("[data-row]").count() < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 4_000
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    page.wait_for_selector("text=message 0")
    page = reader.show(f"#/s/large/messages?at={middle}", f"[data-position='{middle}'].selected")
    assert page.locator(f"[data-position='{middle}']").is_visible()
    assert len([request for request in reader.requests if "/messages?" in request]) < 20
    reader.requests.clear()
    page = reader.show("#/s/large/window", ".budget")
    expect(page.locator(".scrub input[type=range]")).to_have_js_property("max", str(calls + 1))
    page.locator(".scrub input[type=range]").fill(str(calls // 2))
    page.wait_for_selector(f"text=Call {calls // 2:,} of {calls:,}")
    assert len([request for request in reader.requests if "/context" in request]) < 10
    assert page.evaluate("document.querySelectorAll('*').length") < 8_000


LONG = "W" * 200
LONG_VIEWS = {
    "#/": "tbody tr",
    "#/s/long-words/messages": "[data-position='3']",
    "#/s/long-words/window": ".part",
    "#/s/long-words/state": ".agent",
    "#/s/long-words/history": "table.history tbody tr",
    "#/s/long-words/find?ref=3.0": ".entry",
    "#/s/long-words/compare?from=1": "article.message",
    "#/s/long-words/copies": ".entry",
}


def test_no_view_is_wider_than_the_screen_whatever_the_words(new_reader: Callable[..., Reader], log: Turnlog) -> None:
    session = log.sessions.create("long-words", title=LONG, model=LONG[:100], metadata={LONG: LONG})
    call = {"id": LONG[:60], "type": "function", "function": {"name": LONG[:60], "arguments": "{}"}}
    session.append(
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": LONG, "tool_calls": [call]},
        meta=[{"author": LONG[:120]}, {}],
    )
    agent = {"agent_id": LONG[:60], "name": LONG, "pending_action": {LONG: LONG}}
    session.patch_state({LONG: [LONG], "agents": {LONG[:60]: agent}})
    session.create_snapshot(LONG[:100], metadata={LONG: LONG})
    session.fork(title=LONG, session_id=LONG)
    reader = new_reader()
    page = reader.open()
    widths = (
        "[document.documentElement, document.querySelector('dialog')].map(e => e ? e.scrollWidth - e.clientWidth : 0)"
    )
    wider = dict[tuple[str, int], list[int]]()
    for view, selector in LONG_VIEWS.items():
        for width in (1_280, 360):
            page.set_viewport_size({"width": width, "height": 900})
            reader.show(view, selector)
            wider[view, width] = page.evaluate(widths)
    page.click(".entry >> text=Restore")
    page.wait_for_selector("dialog")
    wider["dialog", 360] = page.evaluate(widths)
    assert {place: pixels for place, pixels in wider.items() if max(pixels) > 0} == {}


def test_one_comes_back_to_the_row_of_the_list_that_one_left(reader: Reader, log: Turnlog) -> None:
    for number in range(60):
        log.sessions.create(f"many{number}")
    reader.show(
        "#/s/support-agent/messages", ".scroller"
    )  # the list, which is shown already, is read again each minute
    page = reader.show("#/", "a[href='#/s/many7/messages']")
    page.locator("a[href='#/s/many7/messages']").focus()
    top = page.evaluate("scrollY")
    page.keyboard.press("Enter")
    page.wait_for_selector(".scroller")
    page.go_back()
    page.wait_for_selector("a[href='#/s/many7/messages']:focus")
    assert page.evaluate("scrollY") == top > 0


def test_an_address_that_leads_nowhere_says_so(reader: Reader) -> None:
    page = reader.show("#/s/support-agent/nowhere", ".session > .warning")
    assert page.inner_text(".session > .warning") == "There is no view “nowhere”; this is “Messages”."
    page = reader.show(
        "#/s/support-agent/messages?at=99999", ".session > .warning >> text=There is no #99999; the log ends at"
    )
    page = reader.show("#/s/support-agent/messages?at=9", ".message.selected")
    assert page.locator(".session > .warning").count() == 0


# ------------------------------------------------------------ people


VIEWS = {
    "#/": "table.list",
    "#/s/support-agent/messages?at=9": ".message.selected",
    f"#/s/support-agent/window?call=14&find={ORDER}": ".hits li",
    "#/s/support-agent/window?call=30&policy=run_loops&budget=6000": ".part.digest",
    "#/s/hostile/state": ".agent",
    "#/s/support-agent/find?ref=8.0&q=replacement": ".found mark",
    "#/s/orphan-and-second-result/history": "table.history tbody tr",
    "#/s/support-agent/compare?from=20&to=22": "article.message",
    "#/s/support-agent/copies": ".tree",
}
LOOKS = [("light", 400), ("dark", 1_400), ("dark", 400), ("light", 1_400)]
"""Schemes and widths. The third and fourth, which `make full` looks at too, have no rule and no layout of their own."""


def test_axe_finds_nothing_serious_and_no_view_is_wider_than_the_screen(new_reader: Callable[..., Reader]) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    reader = new_reader(bypass_csp=True)
    page = reader.open()
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text("utf-8"))
    page.add_style_tag(content="* { transition: none !important }")
    for number, (view, selector) in enumerate(VIEWS.items()):
        reader.show(view, selector)
        for scheme, width in LOOKS if is_full() else LOOKS[number % 2 :: len(LOOKS)]:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_selector(selector)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wider) <= 0, (view, scheme, width)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
            serious = [
                (problem["id"], problem["nodes"][0]["html"][:200], problem["nodes"][0]["failureSummary"][:300])
                for problem in result
                if problem["impact"] in ("serious", "critical")
            ]
            assert serious == [], (view, scheme, width)


def test_the_page_speaks_chinese_and_keeps_the_choice(new_reader: Callable[..., Reader]) -> None:
    page = new_reader(locale="zh-CN").open()
    page.wait_for_selector("text=会话")
    page.click("button[aria-label='设置']")
    page.select_option("dialog select >> nth=0", "en")
    page.wait_for_selector("dialog >> text=Settings")
    page.select_option("dialog select >> nth=1", "dark")
    page.reload()
    page.wait_for_selector("nav >> text=Sessions")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_keys_lead_through_a_session(reader: Reader) -> None:
    page = reader.show("#/s/support-agent/messages?at=10", "[data-position='10'].selected")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("[data-position='11'].selected")
    page.keyboard.press("2")
    page.wait_for_selector(".growth")
    page.keyboard.press("?")
    page.wait_for_selector("dialog kbd")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("Escape")
    page.wait_for_selector(".timeline")


def test_keys_are_the_dialogs_after_a_refusal_too(reader: Reader) -> None:
    page = reader.show("#/s/support-agent/copies", "text=New snapshot")
    page.click("text=New snapshot")
    page.fill("dialog input >> nth=0", "a/b")
    page.click("dialog footer button.primary")
    page.wait_for_selector("dialog .failure")
    page.keyboard.press("1")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert page.url.endswith("#/s/support-agent/copies")


def test_a_server_with_a_token_asks_for_it_and_an_address_may_bring_it(
    new_reader: Callable[..., Reader], app: Application
) -> None:
    guarded = LocalServer(app, SystemClock(), port=0, token="s3cret-token", read_only=True, worker=False).start()
    try:
        reader = new_reader(base=guarded.url)
        page = reader.open()
        refusal = page.locator("text=The server has another token")
        assert refusal.count() == 0
        for token in ("wrong", "ключ"):
            page.fill("input[type=password]", token)
            with page.expect_response(lambda answer: answer.status == 401):
                page.keyboard.press("Enter")
            refusal.wait_for()
            page.reload()
            refusal.wait_for()
        page.fill("input[type=password]", "s3cret-token")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=support-agent")
        page.evaluate("sessionStorage.clear()")
        page.goto("about:blank")
        page = reader.open("/inspector#token=s3cret-token")
        page.wait_for_selector("text=support-agent")
        assert "s3cret" not in page.url
        page = reader.show("#/s/support-agent/copies", "text=read-only")
        assert page.locator("text=New snapshot").count() == 0
    finally:
        reader.close()  # a page goes on asking
        guarded.stop()


def test_a_token_and_a_user_of_any_script_are_sent(new_reader: Callable[..., Reader], app: Application) -> None:
    Turnlog(InProcessBackend(app, Owner.of("local", "Зоя"))).sessions.create("of-zoya")
    options: dict[str, Any] = {"token": "ключ", "about": {"tenant": "local", "user": "Зоя"}}
    server = LocalServer(app, SystemClock(), port=0, worker=False, **options).start()
    reader = new_reader(base=server.url)
    try:
        page = reader.open()
        page.fill("input[type=password]", "ключ")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=of-zoya")
    finally:
        reader.close()
        server.stop()


def test_the_reference_shows_every_call_and_sends_one(new_reader: Callable[..., Reader]) -> None:
    page = new_reader().open("/docs")
    page.wait_for_selector(".operation")
    ids = page.evaluate("[...document.querySelectorAll('.operation')].map(section => section.id)")
    assert sorted(ids) == sorted(route.name for route in ROUTES)
    links = page.evaluate("[...document.querySelectorAll('.reference a[href^=\"#\"]')].map(a => a.hash.slice(1))")
    assert page.evaluate("names => names.filter(name => !document.getElementById(name))", sorted(set(links))) == []
    page.click("#list_sessions >> text=Try it")
    page.fill("#list_sessions .try label:has-text('limit') input", "1")
    page.click("#list_sessions .try button.primary")
    page.wait_for_selector("#list_sessions .answer >> text=200")
    page.fill("nav input", "redact")
    expect(page.locator(".operation")).to_have_count(1)


# ------------------------------------------------------------ elsewhere


@pytest.fixture(scope="module")
def deployed() -> Iterator[str]:
    """The address of the stack of template.yaml on moto, with a session."""
    pytest.importorskip("moto")
    from turnlog.server.moto_engine import moto_service

    with moto_service(SystemClock()) as service:
        about = {"where": "moto", "tenant": "local", "user": "me"}
        server = HttpServer(service.answer, port=0, about=about).start()
        with Turnlog.open(server.url) as log:
            session = log.sessions.create("in-the-cloud")
            session.append({"role": "user", "content": "Is it raining?"}, {"role": "assistant", "content": "It is."})
        yield server.url
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize("way", ["served", "through this process"])
def test_a_stack_is_looked_at_where_it_is_served_and_through_a_process_of_ones_own(
    new_reader: Callable[..., Reader], deployed: str, way: str
) -> None:
    backend = HttpBackend(deployed)
    own = HttpServer(forwarding(backend), port=0, token="of-this-page").start()
    reader = new_reader(base=deployed if way == "served" else own.url)
    try:
        page = reader.open("/inspector" if way == "served" else "/inspector#token=of-this-page")
        page.click("text=in-the-cloud")
        page.wait_for_selector("text=It is.")
        page = reader.show("#/s/in-the-cloud/window?call=1", "text=Call 1 of 1")
        page.wait_for_selector(".part")
        page = reader.show("#/s/in-the-cloud/messages?at=3", ".message.selected")
        with Turnlog.open(deployed) as log:
            log.sessions.get("in-the-cloud").append({"role": "user", "content": f"Still, {way}?"})
        page.wait_for_selector(f"text=Still, {way}?")
    finally:
        reader.close()
        own.stop()
        backend.close()
