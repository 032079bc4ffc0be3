"""Programs beside the servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import programs
from server import ROOT
from three import Fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers."""
    fleet = Fleet(tmp_path_factory.mktemp("three"))
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scripts/release.sh makes, in a folder that is named as seen from the caller's."""
    out = tmp_path_factory.mktemp("release")
    programs.run(ROOT / "scripts/release.sh", "--out", out.name, cwd=out.parent)
    return out


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A bare Debian of the test's own."""
    if os.geteuid() != 0 or not programs.BARE.is_dir():
        pytest.skip("a bare Debian could not be made: this needs root and Debian's packages")
    root = tmp_path / "root"
    programs.run("cp", "-a", programs.BARE, root)
    return root
