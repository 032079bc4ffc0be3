"""Where packages are kept that nobody gave a place: in the cache folder, by name and commit.

models/OWNER--NAME/COMMIT-WISHES, and in models/OWNER--NAME/revisions which commit each revision
was. It needs no packages of Python, so that the second start of a server takes no time.
"""

import argparse
import hashlib
import json
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from default_package import command
from default_package.choices import FORMAT_VERSION, NORMALIZATIONS
from default_package.errors import PackageError, read_json

COMMIT = re.compile(r"[0-9a-f]{40}")
NO_WISHES = {"model", "out", "update"}
"""Options that do not change the package of a published model."""


def hub_name(folder: Path) -> str:
    """The name on the hub of a snapshot in the hub's cache, else that of the folder."""
    cached = re.search(r"/models--([^/]+)/snapshots/[^/]+$", str(folder))
    return cached[1].replace("--", "/") if cached else folder.name


def answered(options: argparse.Namespace) -> bool:
    """Prints the package that --model asks for, where it need not be made. An earlier run made it
    of the same wishes, or the folder itself is one."""
    if not options.model or options.out:
        return False
    package = Path(options.model).resolve()
    if (package / "manifest.json").is_file():
        # What is given in any case, and what is no wish for another package.
        usual = {"precision": options.precision, "skip_verify": True}
        usual["normalization"] = NORMALIZATIONS[0]
        typed = [key for key, value in _wishes(options).items() if value != usual.get(key)]
        if typed:
            named = ", ".join(f"--{key.replace('_', '-')}" for key in typed)
            cure = "name the model that it was made of"
            raise PackageError(f"{package} is a package, and {named} cannot change it: {cure}")
    else:
        name, _, key = target(options)
        package = place(options, name, key)
        if not key or not is_whole(package):
            return False
    print(package)
    return True


def target(options: argparse.Namespace) -> tuple[str, str, str]:
    """Name, revision and key of the model: a folder's state, or the commit of its revision. The
    commit is one that was noted, as long as nobody asks the hub for a newer one; else nothing. A
    folder has no revision, and its package needs no key where --out names its place."""
    folder = Path(options.model).resolve()
    if folder.is_dir():
        return hub_name(folder), "", "" if options.out else state(folder)
    name, _, revision = options.model.partition("@")
    noted = _note(name, revision := revision or "main")
    if COMMIT.fullmatch(revision):
        return name, revision, revision
    return name, revision, noted.read_text() if noted.is_file() and not options.update else ""


def place(options: argparse.Namespace, name: str, key: str) -> Path:
    """Of the package with these wishes; `key` is a commit, or the state of a folder."""
    text = json.dumps(_wishes(options), sort_keys=True, default=str)
    return _base(name) / f"{key}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _wishes(options: argparse.Namespace) -> dict[str, Any]:
    # An empty prompt is one, and 0 is a length. Options that nobody gave count for nothing, so that
    # more can be added.
    given = ((k, v) for k, v in vars(options).items() if k not in NO_WISHES)
    return {k: v for k, v in given if v is not False and v not in (None, [])}


def state(folder: Path) -> str:
    """It changes when a file of the model does."""
    ends = ("json", "safetensors", "bin")
    files = sorted([*folder.iterdir(), *(p for end in ends for p in folder.glob(f"*/*.{end}"))])
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return "local-" + hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def note(name: str, revision: str, commit: str) -> None:
    """Writes down which commit the revision is, for later starts."""
    path = _note(name, revision)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(commit)
    new.replace(path)


def locked(name: str) -> AbstractContextManager[None]:
    """One process makes the packages of a model, and others wait for what it makes."""
    _base(name).mkdir(parents=True, exist_ok=True)
    return command.locked(_base(name), f"makes a package of {name}")


def _base(name: str) -> Path:
    return command.cache_folder() / "models" / quote(name.replace("/", "--"), safe="")


def _note(name: str, revision: str) -> Path:
    return _base(name) / "revisions" / quote(revision, safe="")


def is_whole(package: Path) -> bool:
    """Packages are renamed into place when they are complete; only their format can be old."""
    path = package / "manifest.json"
    return path.is_file() and read_json(path).get("format_version") == FORMAT_VERSION
