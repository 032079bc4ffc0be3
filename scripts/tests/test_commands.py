"""Every command of scripts/ helps on a bare machine and sets up what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]
COMMANDS = [
    path.relative_to(SCRIPTS).as_posix()
    for place in ("*.py", "*.sh", "research/*.py")
    for path in sorted(SCRIPTS.glob(place))
]
# No site-packages, neither those of an environment nor the user's.
BARE = [sys.executable, "-S", "-s"]


def run_bare(
    folder: Path, command: str, *arguments: str, cache: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command where `python3` has no packages and nothing but a system's tools is there."""
    tools = folder / "tools"
    tools.mkdir()
    python = tools / "python3"
    python.write_text(f'#!/bin/sh\nexec {" ".join(BARE)} "$@"\n')
    python.chmod(0o755)
    start = BARE if command.endswith(".py") else ["bash"]
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), **more}
    return subprocess.run(
        [*start, str(SCRIPTS / command), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=60,
        env=environment | {"DUOVEC_CACHE_DIR": str(cache)},
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_packages_and_makes_nothing(tmp_path: Path, command: str) -> None:
    cache = tmp_path / "cache"
    done = run_bare(tmp_path, command, "--help", cache=cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(command).name in done.stdout
    assert done.stderr == ""
    assert not cache.exists()


def test_a_command_without_its_packages_sets_them_up(tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("in the way of the cache")
    arguments = ["--random", "--out", str(tmp_path / "out")]
    done = run_bare(tmp_path, "export_onnx.py", *arguments, cache=no_folder)
    assert done.returncode == 1
    assert "cannot write to the cache folder" in done.stderr


def test_an_environment_that_lacks_packages_is_named_once(tmp_path: Path) -> None:
    arguments = ["--random", "--out", str(tmp_path / "out")]
    more = {"DUOVEC_ENVIRONMENT_STARTED": "1"}
    # The shim of `python3` is for commands in Bash; this one starts the interpreter itself.
    done = run_bare(tmp_path, "export_onnx.py", *arguments, cache=tmp_path, **more)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: the Python environment lacks numpy==")
