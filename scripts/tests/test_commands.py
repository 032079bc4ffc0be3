"""Every command of scripts/ helps on a bare machine and is in the table; what setup.sh makes."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program_files import SCRIPTS, program, shell

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
    ("command", "words", "status", "said"),
    [
        ("fetch_tensorrt.sh", ["--cuda-12"], 1, "usage: scripts/fetch_tensorrt.sh"),
        ("release.sh", ["--tag"], 1, "--tag needs a value"),
        ("release.sh", ["--tensorrt", "--oot", "a"], 1, "unknown argument --oot"),
        ("test.sh", ["--fast"], 1, "usage: scripts/test.sh [--quick]"),
        ("bench_http.sh", ["--secnds"], 2, "bench_http.sh: error: unrecognized arguments: --se"),
        ("edge_bench.sh", ["--secnds"], 2, "edge_bench.sh: error: unrecognized arguments: --se"),
        ("soak.sh", ["--secnds"], 2, "soak.sh: error: unrecognized arguments: --secnds"),
        ("soak.sh", ["--rounds", "1"], 2, "--minutes must be above 0, and --rounds at least 2"),
    ],
)
def test_wrong_words_are_told_before_anything_is_made(
    tmp_path: Path, command: str, words: list[str], status: int, said: str
) -> None:
    done = run_bare(tmp_path, command, *words, cache=tmp_path / "cache")
    assert done.returncode == status
    *usage, line = done.stderr.splitlines()
    # Python puts its usage in front.
    assert said in line and (status == 2 or not usage)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        # A command without its packages sets them up.
        ({}, "cannot write to the cache folder"),
        (
            {"DUOVEC_ENVIRONMENT_STARTED": "1"},
            "error: the Python environment lacks huggingface_hub==",
        ),
    ],
)
def test_packages_that_cannot_be_had_are_told_of_once(
    tmp_path: Path, more: dict[str, str], said: str
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("in the way of the cache")
    words = ["--model", str(tmp_path), "--out", str(tmp_path / "out")]
    done = run_bare(tmp_path, "export_onnx.py", *words, cache=no_folder, **more)
    assert done.returncode == 1
    *others, line = done.stderr.splitlines()
    assert said in line and not (more and others)


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


MAKER = """
import json, pathlib, sys
from default_package.manifest import FORMAT_VERSION
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(exist_ok=True)
(out / "manifest.json").write_text(json.dumps({"format_version": FORMAT_VERSION}))
print("made")
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The scripts, with a maker of packages that takes no time."""
    scripts = tmp_path / "scripts"
    (scripts / "default_package").mkdir(parents=True)
    (scripts / "families").mkdir()
    shutil.copytree(SCRIPTS / "lib", scripts / "lib")
    (scripts / "requirements.txt").touch()
    (scripts / "make_default_package.py").write_text(MAKER)
    write_format(tmp_path, 1)
    return tmp_path


def write_format(repository: Path, version: int) -> None:
    module = repository / "scripts/default_package/manifest.py"
    module.write_text(f"FORMAT_VERSION = {version}\n")


def start(repository: Path, commands: str = "ensure_package") -> tuple[str, int]:
    """What the maker said, and the format of the package that is there then."""
    environment = {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    said = shell(repository, commands, **environment)
    manifest = repository / "engines/multilingual-e5-small/manifest.json"
    return said.strip(), json.loads(manifest.read_text())["format_version"]


def test_a_package_of_an_older_format_is_made_again_at_the_next_start(repository: Path) -> None:
    assert start(repository) == ("made", 1)
    assert start(repository) == ("", 1)
    write_format(repository, 2)
    assert start(repository) == ("made", 2)
    assert start(repository) == ("", 2)


def test_two_starts_at_once_make_one_package(repository: Path) -> None:
    assert start(repository, "ensure_package & ensure_package; wait") == ("made", 1)


def test_a_package_that_nothing_vouches_for_is_made_again(repository: Path) -> None:
    assert start(repository) == ("made", 1)
    (repository / "engines/.multilingual-e5-small.stamp").unlink()
    assert start(repository) == ("made", 1)


def test_uv_takes_packages_from_where_the_settings_of_pip_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://file.example\nfind-links = /one\n    /two\n"
        "[install]\nextra-index-url = https://more.example https://most.example\n"
    )
    asked = {"PIP_CONFIG_FILE": str(settings), "PIP_INDEX_URL": "https://variable.example"}
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    said = shell(SCRIPTS.parent, f"export_pip_settings {sys.executable}; env", **asked)
    assert sorted(line for line in said.splitlines() if line.startswith("UV_")) == [
        "UV_DEFAULT_INDEX=https://variable.example",
        "UV_FIND_LINKS=/one,/two",
        "UV_INDEX=https://more.example https://most.example",
        "UV_INDEX_STRATEGY=unsafe-best-match",
    ]


def test_an_interrupted_step_leaves_no_folder_and_no_log(tmp_path: Path) -> None:
    step = 'step() { mkdir "$NEW"; : >"$NEW.log"; kill -TERM $BASHPID; sleep 9; }'
    shell(SCRIPTS.parent, f"{step}; (made_whole {tmp_path}/made step) || true")
    assert list(tmp_path.iterdir()) == []


def test_a_step_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "made.new-1").mkdir()
    (tmp_path / "made.new-1.log").touch()
    step = 'step() { mkdir "$NEW"; }'
    shell(SCRIPTS.parent, f"{step}; (made_whole {tmp_path}/made step)")
    assert list(tmp_path.iterdir()) == [tmp_path / "made"]
