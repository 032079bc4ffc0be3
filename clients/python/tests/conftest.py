"""Real servers: the tiny package with an engine that computes nothing, and the default model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from duovec import Client
from server import FAKE, default_package, running


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of the server."""
    with running(*FAKE) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A client of the server."""
    with Client(url) as client:
        yield client


@pytest.fixture(scope="session")
def real_url() -> Iterator[str]:
    """The address of a server with the default model, which measures nothing at its start."""
    package = default_package()
    if not Path(package).exists():
        pytest.skip(f"the default package is not there: {package}")
    with running("--package", package, "--workers", "1", "--max-batch-tokens", "512") as server:
        yield server.url


def texts_taken(url: str) -> int:
    """How many texts a server took, by its own count."""
    name = 'duovec_items_total{outcome="accepted"}'
    lines = httpx.get(url + "/metrics").text.splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture
def texts_run(url: str) -> Callable[[], int]:
    """How many texts the server took since the test began."""
    before = texts_taken(url)
    return lambda: texts_taken(url) - before
