"""Programs beside the servers, and where the tests' modules are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "clients")]

import programs  # noqa: E402 - its modules are found by the line before
from three import Fleet  # noqa: E402


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers."""
    fleet = Fleet(tmp_path_factory.mktemp("three"))
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scripts/release.sh makes."""
    out = tmp_path_factory.mktemp("release")
    programs.run(ROOT / "scripts/release.sh", "--out", out)
    return out


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A bare Debian of the test's own."""
    if os.geteuid() != 0 or not programs.BARE.is_dir():
        pytest.skip("a bare Debian could not be made: this needs root and Debian's packages")
    root = tmp_path / "root"
    programs.run("cp", "-a", programs.BARE, root)
    return root
