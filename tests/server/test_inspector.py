"""The inspector in a real browser: its views on the samples, a hostile session, 10,000 messages, keys, languages, axe-core.

Needs Chromium (Debian: `apt-get install chromium`) and skips where there is none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.support.pictures import png
from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.cli.transcripts import read_transcripts
from turnlog.engines import SystemClock
from turnlog.routing import ROUTES
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

sync_api = pytest.importorskip("playwright.sync_api")
axe_folder = pytest.importorskip("axe_playwright_python")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.full,  # 85 s of CPU, and beside other work a page may take longer than a test waits
    pytest.mark.network,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH, nor named by CHROMIUM"),
    # A page that goes away leaves a large answer of waitress in a temporary file, which the garbage collector closes.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ORDER = "CF-2603-48817"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e مرحبا بالعالم"
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def app() -> Iterator[Application]:
    application = make_application(Settings(engine="memory://", identity="jwt", token_counter="estimate"))
    yield application
    application.close()


@pytest.fixture(scope="module")
def url(app: Application) -> Iterator[str]:
    server = LocalServer(app, SystemClock(), port=0).start()
    with Turnlog.open(server.url) as log:
        for transcript in read_transcripts([SAMPLES / "support-agent.json", SAMPLES / "messy.jsonl"]):
            policy = "turns(1)" if transcript.id == "support-agent" else None
            session = log.sessions.create(transcript.id, tools=transcript.tools or None, policy=policy)
            for message in transcript.messages:
                session.append(message, lenient=True)
        _hostile(log)
    yield server.url
    server.stop()


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
    for start in range(0, 300, 25):
        session.append(
            *({"role": "tool", "tool_call_id": f"c{index}", "content": HOSTILE} for index in range(start, start + 25))
        )
    session.append({"role": "assistant", "content": f"javascript:alert(1) {HOSTILE}"})
    session.patch_state(
        {"a<b>": HOSTILE, "agents": {"main": {"agent_id": "main", "pending_action": {"tool": HOSTILE}}}}
    )


sync_api.expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """Open an address below the server; at the end nothing was loaded from elsewhere, no script failed, no policy was broken."""
    contexts, trouble = list[Any](), list[str]()

    def opened(address: str, *, base: str = url, width: int = 1400, **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, locale=options.pop("locale", "en-GB"), **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "request",
            lambda request: trouble.append(request.url) if not request.url.startswith((base, "data:")) else None,
        )
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text) if _is_trouble(message) else None)
        page.goto(f"{base}{address}")
        page.wait_for_selector("main")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def _is_trouble(message: Any) -> bool:
    # A refusal that a view shows, such as 404 of a session without summary, is no fault of the page.
    return message.type == "error" and "the server responded with a status of 4" not in message.text


# ------------------------------------------------------------ the tour


def test_why_the_model_did_not_see_the_order_number_at_call_14_takes_four_clicks(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector")
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


def test_a_window_shows_its_parts_their_originals_and_what_is_sent(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector#/s/support-agent/window?call=30&policy=run_loops&budget=6000")
    page.wait_for_selector(".part.digest")
    assert "of 6,000 tokens" in page.inner_text(".budget")
    assert page.locator(".part.digest .why").first.inner_text() == "a past loop: told in a digest"
    page.wait_for_selector(".changes")
    page.locator(".part.digest .partname").first.click()
    page.wait_for_selector(".detail .sent mark")  # values of the ledger that later calls use
    assert "turnlog-data" in page.inner_text(".detail .sent")
    page.wait_for_selector(".detail article.message")
    page.click("button:text-is('Request')")
    page.wait_for_selector(".request .key")
    assert "messages" in page.inner_text(".request")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=Call 31 of 40")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=Call 30 of 40")


def test_looking_writes_nothing(open_page: Callable[..., Any], url: str) -> None:
    with Turnlog.open(url) as log:
        before = log.sessions.get("support-agent").info()
        for tab in ("messages", "window?policy=full", "state", "history", "find?q=order&ref=8.0", "compare", "copies"):
            page = open_page(f"/inspector#/s/support-agent/{tab}")
            page.wait_for_timeout(300)
        assert log.sessions.get("support-agent").info() == before


def test_warnings_stand_where_they_arose(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector#/s/orphan-and-second-result/messages")
    page.wait_for_selector(".message .warning")
    assert "orphan_result" in page.inner_text(".scroller") and "belongs to no call" in page.inner_text(".scroller")


def test_sessions_are_filtered_searched_and_shown_with_the_next_call(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector")
    row = page.locator("tbody tr", has_text="support-agent")
    sync_api.expect(row.locator("td").nth(1)).to_have_text("86")
    sync_api.expect(row.locator("td").nth(4)).to_have_text(re.compile(r"\d"))
    page.keyboard.press("/")
    page.keyboard.type("support-ag")
    sync_api.expect(page.locator("tbody tr")).to_have_count(1)
    page.fill("input[type=search]", "projector fan roars")
    page.keyboard.press("Enter")
    page.wait_for_selector(".found mark")
    page.locator(".found a").first.click()
    page.wait_for_selector(".message.selected")


def test_search_and_recall_are_the_model_s(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector#/s/support-agent/find?ref=8.0")
    page.wait_for_selector("text=get_order")
    page.fill("[role=search] input", "when is the replacement due")
    page.keyboard.press("Enter")
    page.wait_for_selector(".found mark")
    page.fill("input[aria-label='Ref or position']", "99999.0")
    page.click("button.primary:text-is('Recall')")
    page.wait_for_selector("text=Tool call result not found")


def test_changes_ask_first_and_are_done(open_page: Callable[..., Any], url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("changed")
        for index in range(4):
            session.append({"role": "user", "content": f"secret {index}"}, {"role": "assistant", "content": "noted"})
        page = open_page("/inspector#/s/changed/messages?at=4")
        page.wait_for_selector("[data-position='4']")

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
        page.goto(f"{url}/inspector#/s/changed/copies")
        page.click("text=New snapshot")
        page.fill("dialog input >> nth=0", "before")
        page.click("dialog footer button.primary")
        page.wait_for_selector(".entry >> text=before")
        page.click("main >> button:text-is('Fork')")
        page.fill("dialog label:has-text('Title') input", "Another way")
        page.click("dialog footer button.primary")
        page.wait_for_selector("h1:has-text('Another way')")
        assert [snapshot.name for snapshot in session.snapshots()] == ["before"]


def test_the_state_its_agents_and_a_pending_action(open_page: Callable[..., Any], url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("agents", state={"lang": "en"})
        session.append({"role": "user", "content": "go"})
        session.patch_agent({"iteration": 2, "pending_action": {"tool": "refund"}}, agent_id="main")
        page = open_page("/inspector#/s/agents/state")
        page.click("text=Reject")
        page.fill("dialog input", "too late")
        page.click("dialog button.danger")
        page.wait_for_selector("text=too late")
        assert session.agent("main").state["pending_action"]["decision"] == "reject"


def test_new_messages_appear_while_the_page_is_open(open_page: Callable[..., Any], url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("live")
        session.append({"role": "user", "content": "first"})
        page = open_page("/inspector#/s/live/messages")
        page.wait_for_selector("text=first")
        polls = list[str]()
        page.on(
            "request", lambda request: polls.append(request.url) if request.url.endswith("/v1/sessions/live") else None
        )
        session.append({"role": "assistant", "content": "and here I am"})
        page.wait_for_selector("text=and here I am")
        polls.clear()
        page.wait_for_timeout(2_200)
        assert 1 <= len(polls) <= 3
        # A hidden page asks for nothing.
        page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(300)
        polls.clear()
        page.wait_for_timeout(1_500)
        assert polls == []


# ------------------------------------------------------------ hostile, large


def test_a_hostile_session_is_only_text(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector#/s/hostile/messages?at=2")
    page.wait_for_selector("[data-position='2']")
    for tab in ("window", "state", "history", "find?q=script", "compare?from=1", "copies", "messages?at=4"):
        page.goto(page.url.partition("#")[0] + f"#/s/hostile/{tab}")
        page.wait_for_timeout(400)
        assert page.title() != "owned"
        assert page.locator("main script, main b, main img[onerror]").count() == 0
    page.wait_for_selector("img[src^='data:image/png']")
    assert "Image, not loaded: https://evil.example/track.png" in page.inner_text(".scroller")
    page.goto(page.url.partition("#")[0] + "#/s/hostile/messages?at=3")
    page.click("[data-position='3'] button.more")
    assert len(page.inner_text("[data-position='3'] .content")) > 100_000
    page.goto(page.url.partition("#")[0] + "#/")
    page.wait_for_selector("tbody tr")
    assert page.locator("main script, main img").count() == 0


def test_ten_thousand_messages_open_at_the_newest_and_scroll(open_page: Callable[..., Any], url: str) -> None:
    with Turnlog.open(url) as log:
        session = log.sessions.create("large")
        for start in range(0, 10_000, 25):
            turns = (
                {"role": ("user", "assistant")[index % 2], "content": f"message {index} " * (1 + index % 9)}
                for index in range(start, start + 25)
            )
            session.append(*turns)
    page = open_page("/inspector#/s/large/messages")
    page.wait_for_selector("text=message 9999")
    assert page.locator("[data-row]").count() < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 4_000
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    page.wait_for_selector("text=message 0")
    page.evaluate("location.hash = '#/s/large/messages?at=5001'")
    page.wait_for_selector("[data-position='5001']")
    page.wait_for_selector(".message.selected")
    assert page.locator("[data-position='5001']").is_visible()
    assert len([one for one in requests if "/messages?" in one]) < 20


# ------------------------------------------------------------ people


VIEWS = (
    "#/",
    "#/s/support-agent/messages",
    "#/s/support-agent/window?call=14",
    "#/s/hostile/state",
    "#/s/support-agent/find?ref=8.0",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1000), ("light", 1600)])
def test_axe_finds_nothing_serious_and_no_view_is_wider_than_the_screen(
    open_page: Callable[..., Any], scheme: str, width: int
) -> None:
    page = open_page("/inspector", width=width, color_scheme=scheme, bypass_csp=True)
    page.evaluate((Path(axe_folder.__file__).parent / "axe.min.js").read_text("utf-8"))
    for view in VIEWS:
        page.evaluate("view => { location.hash = view }", view)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, view
        problems = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [
            (problem["id"], problem["nodes"][0]["html"][:200], problem["nodes"][0]["failureSummary"][:300])
            for problem in problems
            if problem["impact"] in ("serious", "critical")
        ]
        assert serious == [], view


def test_the_page_speaks_chinese_and_keeps_the_choice(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector", locale="zh-CN")
    page.wait_for_selector("text=会话")
    page.click("button[aria-label='设置']")
    page.select_option("dialog select >> nth=0", "en")
    page.wait_for_selector("dialog >> text=Settings")
    page.select_option("dialog select >> nth=1", "dark")
    page.reload()
    page.wait_for_selector("nav >> text=Sessions")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_keys_lead_through_a_session(open_page: Callable[..., Any]) -> None:
    page = open_page("/inspector#/s/support-agent/messages?at=10")
    page.wait_for_selector("[data-position='10'].selected")
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


def test_a_server_with_a_token_asks_for_it_and_an_address_may_bring_it(
    open_page: Callable[..., Any], app: Application
) -> None:
    guarded = LocalServer(app, SystemClock(), port=0, token="s3cret-token", read_only=True, worker=False).start()
    try:
        page = open_page("/inspector", base=guarded.url)
        page.fill("input[type=password]", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        page.fill("input[type=password]", "s3cret-token")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=support-agent")
        page = open_page("/inspector#token=s3cret-token", base=guarded.url)
        page.wait_for_selector("text=support-agent")
        assert "s3cret" not in page.url
        page.goto(f"{guarded.url}/inspector#/s/support-agent/copies")
        page.wait_for_selector("text=read-only")
        assert page.locator("text=New snapshot").count() == 0
    finally:
        for context in page.context.browser.contexts:
            context.close()  # a page goes on asking
        guarded.stop()


def test_the_reference_shows_every_call_and_sends_one(open_page: Callable[..., Any]) -> None:
    page = open_page("/docs")
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
    sync_api.expect(page.locator(".operation")).to_have_count(1)
