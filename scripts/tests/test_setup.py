"""scripts/lib/setup.sh: when the default package is made."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from gpu_machine import shell
from program_files import SCRIPTS

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


def start(repository: Path) -> tuple[str, int]:
    """What the maker said, and the format of the package that is there then."""
    environment = {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    said = shell(repository, "ensure_package", **environment)
    manifest = repository / "engines/multilingual-e5-small/manifest.json"
    return said.strip(), json.loads(manifest.read_text())["format_version"]


def test_a_package_of_an_older_format_is_made_again_at_the_next_start(repository: Path) -> None:
    assert start(repository) == ("made", 1)
    assert start(repository) == ("", 1)
    write_format(repository, 2)
    assert start(repository) == ("made", 2)
    assert start(repository) == ("", 2)


def test_two_starts_at_once_make_one_package(repository: Path) -> None:
    both = "ensure_package & ensure_package; wait"
    environment = {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    assert shell(repository, both, **environment) == "made\n"


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
