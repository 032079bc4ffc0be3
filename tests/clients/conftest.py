"""One server for all client tests, since starting one takes seconds, and pages of a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from browser import Watch
from server import FAKE, PATIENT, Server, default_package, running

CHROMIUMS = ["chromium", "chromium-browser", "google-chrome"]
# A click takes two seconds, and forty beside eight programs that never wait.
BROWSER_TIMEOUT_MS = 300_000


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real binary with the default package."""
    with running("--package", default_package(), *PATIENT) as server:
        yield server


@pytest.fixture(scope="session")
def fake() -> Iterator[Server]:
    """One whose vectors depend on nothing but the texts."""
    with running(*FAKE) as server:
        yield server


# While it is open this thread has an event loop, which other modules' tests cannot have.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser that looks up no name, so that nothing leaves this machine."""
    program = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium: install Debian's package chromium")
    expect.set_options(timeout=BROWSER_TIMEOUT_MS)
    only_here = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=program, args=[only_here], timeout=BROWSER_TIMEOUT_MS
        )


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab of a browser that has seen nothing."""
    with chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.set_default_timeout(BROWSER_TIMEOUT_MS)
        yield context.new_page()


@pytest.fixture
def watch(page: Page) -> Watch:
    """What the page asks for and complains of."""
    return Watch(page)
