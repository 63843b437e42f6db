"""The inspector on a session of 10,000 messages: CPU of the server and of the page's main thread, in headless Chromium.

make bench-inspector     # needs Chromium: Debian's package, or its path in CHROMIUM
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.engines import SystemClock
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

MESSAGES = 10_000
VIEWS = {
    "open at the newest message": ("messages", f"text=message {MESSAGES - 1}"),
    "go to the middle": (f"messages?at={MESSAGES // 2}", ".message.selected"),
    "windows": ("window", ".budget"),
}
"""Step -> the view's address and what it shows when it is there."""
_PATIENCE_MS = 120_000


def fill(log: Turnlog) -> None:
    """Append the messages."""
    session = log.sessions.create("large")
    for start in range(0, MESSAGES, 25):
        roles = ("user", "assistant")
        session.append(
            *({"role": roles[at % 2], "content": f"message {at} " * (1 + at % 9)} for at in range(start, start + 25))
        )


def main() -> int:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        print("no Chromium on PATH, nor named by CHROMIUM (Debian: apt-get install chromium)")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'a.db')}"
        with Turnlog.open(url, worker=False) as log:  # a worker's summaries would stand behind the newest message
            fill(log)
        app = make_application(Settings(engine=url, identity="jwt"))
        server = LocalServer(app, SystemClock(), port=0, worker=False).start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                measure(browser.new_page(viewport={"width": 1400, "height": 900}), server.url)
                browser.close()
        finally:
            server.stop()
            app.close()
    return 0


def measure(page: Any, url: str) -> None:
    """Go through the views, and print what each takes."""
    page.set_default_timeout(_PATIENCE_MS)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def page_seconds() -> float:
        metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    page.goto(f"{url}/inspector")
    page.wait_for_selector("table.list")
    print(f"{f'{MESSAGES:,} messages':28}{'server, s':>10}{'page, s':>9}{'until it shows, s':>19}")
    for name, (view, selector) in VIEWS.items():
        clocks: list[Callable[[], float]] = [time.process_time, page_seconds, time.perf_counter]
        before = [clock() for clock in clocks]
        page.evaluate("view => { location.hash = view }", f"#/s/large/{view}")
        page.wait_for_selector(selector)
        server, own, shown = (clock() - begun for clock, begun in zip(clocks, before, strict=True))
        print(f"{name:28}{server:10.2f}{own:9.2f}{shown:19.2f}")


if __name__ == "__main__":
    sys.exit(main())
