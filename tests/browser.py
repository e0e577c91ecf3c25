"""A page in a headless Chromium, which must not complain of anything; see the fixtures ``page`` and ``requested``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(__file__).parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"),
    # A camera that shows a moving pattern, and that pages may use.
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
]
# Requests that are refused are what some tests are about.
EXPECTED = "Failed to load resource"


def missing(what: str) -> None:
    """Skip a test, or fail where FACERTS_REQUIRE_BROWSER=1 says that everything is there."""
    (pytest.fail if os.environ.get("FACERTS_REQUIRE_BROWSER") == "1" else pytest.skip)(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module: while it is open, this thread can run no other event loop."""
    if CHROMIUM is None:
        missing("no Chromium is installed (Debian: apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no Playwright is installed (pip install playwright)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the console and the scripts of the page complained of."""
    return []


@pytest.fixture
def requested() -> list[str]:
    """The addresses that the page has asked for."""
    return []


@pytest.fixture
def page(browser, complaints, requested) -> Iterator[Page]:
    """An empty page, which must not complain of anything until the test ends."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(20_000)

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(EXPECTED):
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    context.on("request", lambda request: requested.append(request.url))
    yield page
    context.close()
    assert complaints == []


def accessibility_faults(page: Page) -> list[str]:
    """What axe finds seriously wrong, with the elements."""
    if not AXE.is_file():
        missing("axe-core is not installed (cd web && npm ci)")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{fault['id']}: {', '.join(node['html'][:100] for node in fault['nodes'])}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def choose(page: Page, files: list[Path], label: str = "Choose images") -> None:
    """Choose images on facerts' own page, and wait until they are scored."""
    count = page.get_by_role("article").count()
    page.get_by_label(label).set_input_files(files)
    settled(page, count + len(files))


def settled(page: Page, count: int) -> None:
    """Wait until so many images are on the page, and nothing is scored any more."""
    from playwright.sync_api import expect

    expect(page.get_by_role("article")).to_have_count(count)
    expect(page.locator(".working")).to_have_count(0, timeout=20_000)


def texts(page: Page, selector: str) -> list[str]:
    """What elements say, each in one line."""
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def saved(page: Page, button: str) -> str:
    """The file that a button gives."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def of_others(requested: list[str], address: str) -> list[str]:
    """The requests that went elsewhere than to a server."""
    own = address.rstrip("/") + "/"
    return [url for url in requested if not url.startswith((own, f"blob:{own}", "data:"))]
