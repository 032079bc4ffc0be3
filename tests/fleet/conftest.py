"""Programs beside the servers, and where the tests' modules are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "clients")]

from three import Fleet  # noqa: E402 - its modules are found by the line before


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers."""
    fleet = Fleet(tmp_path_factory.mktemp("three"))
    yield fleet
    fleet.stop()
