"""Every command of scripts/ helps on a bare machine and is in the table."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from program_files import SCRIPTS, program

from default_package import command

COMMANDS = [
    path.relative_to(SCRIPTS).as_posix()
    for place in ("*.py", "*.sh")
    for path in sorted(SCRIPTS.glob(place))
]
PLACES = ("scripts", "clients/*", "examples/*", "tests/*")
LISTS = [path for place in PLACES for path in SCRIPTS.parent.glob(f"{place}/requirements*.txt")]
# Commands elsewhere that have much to install.
EXAMPLES = ["../examples/ray/embed_corpus.py", "../examples/ray/test.sh"]
# No site-packages, neither those of an environment nor the user's.
BARE = [sys.executable, "-S", "-s"]


def run_bare(
    folder: Path, command: str, *arguments: str, cache: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command where `python3` has no packages and nothing but a system's tools is there."""
    tools = program(folder / "tools/python3", f'exec {" ".join(BARE)} "$@"').parent
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


@pytest.mark.parametrize("command", COMMANDS + EXAMPLES)
def test_help_needs_no_packages_and_makes_nothing(tmp_path: Path, command: str) -> None:
    cache = tmp_path / "cache"
    done = run_bare(tmp_path, command, "--help", cache=cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(command).name in done.stdout
    assert done.stderr == ""
    assert not cache.exists()


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("fetch_tensorrt.sh", ["--cuda-12"], "usage: scripts/fetch_tensorrt.sh"),
        ("release.sh", ["--tag"], "--tag needs a value"),
        ("release.sh", ["--tensorrt", "--oot", "a"], "unknown argument --oot"),
        ("test.sh", ["--fast"], "usage: scripts/test.sh [--quick]"),
    ],
)
def test_wrong_words_are_told_before_anything_is_made(
    tmp_path: Path, command: str, words: list[str], said: str
) -> None:
    done = run_bare(tmp_path, command, *words, cache=tmp_path / "cache")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert said in line
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("command", ["bench_http.sh", "edge_bench.sh", "soak.sh"])
def test_wrong_words_of_a_load_are_told_before_anything_is_made(
    tmp_path: Path, command: str
) -> None:
    done = run_bare(tmp_path, command, "--secnds", "3", cache=tmp_path / "cache")
    assert done.returncode == 2
    assert f"{command}: error: unrecognized arguments: --secnds" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_a_command_without_its_packages_sets_them_up(tmp_path: Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("in the way of the cache")
    arguments = ["--model", str(tmp_path), "--out", str(tmp_path / "out")]
    done = run_bare(tmp_path, "export_onnx.py", *arguments, cache=no_folder)
    assert done.returncode == 1
    assert "cannot write to the cache folder" in done.stderr


def test_an_environment_that_lacks_packages_is_named_once(tmp_path: Path) -> None:
    arguments = ["--model", str(tmp_path), "--out", str(tmp_path / "out")]
    more = {"DUOVEC_ENVIRONMENT_STARTED": "1"}
    done = run_bare(tmp_path, "export_onnx.py", *arguments, cache=tmp_path, **more)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: the Python environment lacks huggingface_hub==")


def test_lists_are_read_with_extras_and_remarks(tmp_path: Path) -> None:
    here = importlib.metadata.version("pytest")
    lines = ["# remark", f"pytest=={here}  # remark", f"pytest[dev]=={here}", "", "pytest==0.1"]
    path = tmp_path / "list.txt"
    path.write_text("\n".join([*lines, "no-such-package==1"]))
    assert command.missing(path) == ["pytest==0.1", "no-such-package==1"]


def test_lists_that_have_the_same_package_name_the_same_version() -> None:
    versions: dict[str, set[str]] = {}
    for path in LISTS:
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, version = line.partition("#")[0].strip().partition("==")
            if version:
                versions.setdefault(name.partition("[")[0], set()).add(version)
    assert len(LISTS) > 3 and len(versions) > 20
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_can_be_started(command: str) -> None:
    assert os.access(SCRIPTS / command, os.X_OK)


def test_the_table_has_every_command_once() -> None:
    table = (SCRIPTS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`([^`]+)`\]\(([^)]+)\)", table, re.M)
    assert sorted(name for name, _ in listed) == sorted(COMMANDS)
    assert all(name == target for name, target in listed)
