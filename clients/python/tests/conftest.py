"""One real server for all tests: the tiny package and an engine that computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from duovec import Client
from server import ROOT, running


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of the server."""
    package = str(ROOT / "tests/fixtures/tiny")
    with running("--package", package, "--engine", "fake") as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A client of the server."""
    with Client(url) as client:
        yield client


@pytest.fixture
def texts_run(url: str) -> Callable[[], int]:
    """How many texts the server took since the test began, by its own count."""

    def count() -> int:
        name = 'duovec_items_total{outcome="accepted"}'
        lines = httpx.get(url + "/metrics").text.splitlines()
        return next(int(line.split()[-1]) for line in lines if line.startswith(name))

    before = count()
    return lambda: count() - before
