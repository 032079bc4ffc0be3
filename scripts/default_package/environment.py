"""The Python environment of the scripts. lib/setup.sh makes it; this starts a command in it."""

import importlib.metadata
import os
import sys
from pathlib import Path

from .errors import PackageError

SCRIPTS = Path(__file__).resolve().parents[1]
REQUIREMENTS = SCRIPTS / "requirements.txt"
TEST_REQUIREMENTS = SCRIPTS / "requirements-test.txt"
STARTED = "DUOVEC_ENVIRONMENT_STARTED"
"""Set for the process in the environment, so that one that lacks a package cannot loop."""


def cache_folder() -> Path:
    """That of lib/setup.sh."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("DUOVEC_CACHE_DIR") or home / "duovec")


def enter(*more: Path) -> None:
    """Goes on where REQUIREMENTS and the lists `more` are installed, in the versions they name.

    Elsewhere this process becomes the same command in the environment of lib/setup.sh, which is
    made first if need be, as scripts/serve.sh makes it.
    """
    lists = (REQUIREMENTS, *more)
    absent = [name for path in lists for name in missing(path)]
    if not absent:
        return
    if STARTED in os.environ:
        raise PackageError(
            f"the Python environment lacks {', '.join(absent)}: remove {sys.prefix} and run again"
        )
    os.environ[STARTED] = "1"
    command = ["bash", str(SCRIPTS / "lib/python.sh"), *map(str, lists), "--", *sys.argv]
    os.execvp(command[0], command)


def missing(path: Path) -> list[str]:
    """Lines `name==version` of a list that this interpreter does not have."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line and not _installed(*line.split("=="))]


def _installed(name: str, version: str) -> bool:
    """`name` may end in extras, as in `package[extra]`."""
    try:
        return importlib.metadata.version(name.partition("[")[0]) == version
    except importlib.metadata.PackageNotFoundError:
        return False
