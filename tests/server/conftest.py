"""A browser for the tests of a module: Debian's Chromium, driven by Playwright. Without one, they skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE_MS = 120_000
"""How long a test waits for what a page shows. Nothing waits so long but what is broken, on the busiest machine too."""
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-extensions", "--disable-background-networking", "--mute-audio")


class Reader:
    """A page of the inspector in a browser, and its trouble: requests to elsewhere, errors of scripts, broken policies."""

    def __init__(self, context: Any, base: str) -> None:
        self.base, self.trouble, self.requests = base, list[str](), list[str]()
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("request", self._requested)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", self._told)

    def open(self, address: str = "/inspector") -> Any:
        """Load the page at an address, and return it."""
        self.page.goto(f"{self.base}{address}")
        self.page.wait_for_selector("main")
        return self.page

    def show(self, view: str, selector: str = "main") -> Any:
        """Go to a view of the page by its fragment, wait until it has an element, and return the page."""
        self.page.evaluate("view => { location.hash = view }", view)
        self.page.wait_for_selector(selector)
        return self.page

    def close(self) -> None:
        self.page.close()

    def _requested(self, request: Any) -> None:
        self.requests.append(f"{request.method} {request.url.removeprefix(self.base)}")
        if not request.url.startswith((self.base, "data:")):
            self.trouble.append(request.url)

    def _told(self, message: Any) -> None:
        # A refusal that a view shows, such as 404 of an unknown session, is no fault of the page.
        if message.type == "error" and "the server responded with a status of 4" not in message.text:
            self.trouble.append(message.text)


def new_context(browser: Any, *, locale: str = "en-GB", **options: Any) -> Any:
    """Return a context, where pages share storage and clock. A page in a context of its own takes twice the CPU."""
    return browser.new_context(viewport={"width": 1400, "height": 900}, locale=locale, **options)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of a module. Playwright has an event loop in this thread, so it ends with the module."""
    playwright_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH, nor named by CHROMIUM (Debian: apt-get install chromium)")
    playwright_api.expect.set_options(timeout=PATIENCE_MS)
    with playwright_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=PATIENCE_MS)
        yield launched
        launched.close()
