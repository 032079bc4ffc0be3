"""Fetches Debian packages into a cache folder and unpacks them there; nothing is installed."""

import os
import shutil
import subprocess
from pathlib import Path

from default_package.command import cache_folder, digest
from default_package.errors import PackageError


def fetch(*names: str) -> list[Path]:
    """Of each package the folder with its files. The cache folder that scripts/serve.sh uses too
    keeps them."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise PackageError(f"{tool} is missing: this needs a Debian or Ubuntu machine")
    downloads, trees = (cache_folder() / "training" / part for part in ("debs", "packages"))
    downloads.mkdir(parents=True, exist_ok=True)
    trees.mkdir(parents=True, exist_ok=True)
    return [_unpack(_download(name, downloads), trees / name) for name in names]


def _download(name: str, folder: Path) -> Path:
    """The package's file; the newest one if the cache holds several."""
    found = sorted(folder.glob(f"{name}_*.deb"))
    if not found:
        ran = _apt_get("download", name, folder=folder)
        # A fresh machine has no lists of packages, and the lists of an old one name old files.
        if ran.returncode != 0 and os.geteuid() == 0:
            _apt_get("update", folder=folder)
            ran = _apt_get("download", name, folder=folder)
        found = sorted(folder.glob(f"{name}_*.deb"))
        if ran.returncode != 0 or not found:
            reason = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PackageError(
                f"package {name} cannot be downloaded ({reason}): run apt-get update and try again"
            )
    return found[-1]


def _apt_get(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def _unpack(path: Path, place: Path) -> Path:
    """Unpacks once; a folder that is there is whole, because it is renamed into place."""
    root = place.with_name(f"{place.name}-{digest(path)[:16]}")
    if not root.exists():
        part = root.with_name(f".{root.name}.{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["dpkg", "-x", str(path), str(part)], check=True)
        os.replace(part, root)
    return root
