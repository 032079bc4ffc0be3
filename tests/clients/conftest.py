"""One server for all client tests: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server import Server, default_package, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real binary with the default package."""
    with running("--package", default_package()) as server:
        yield server
