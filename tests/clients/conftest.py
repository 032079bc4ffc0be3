"""One server for all client tests: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import browser
from server import Server, default_package, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real binary with the default package."""
    with running("--package", default_package()) as server:
        yield server


@pytest.fixture
def page(tmp_path: Path) -> Iterator[browser.Page]:
    """A tab of a browser that has seen nothing."""
    program = browser.find()
    if program is None:
        pytest.skip("there is no Chromium: install Debian's package chromium")
    with browser.opened(program, tmp_path / "profile") as page:
        yield page
