"""Fetches Debian packages into a cache folder and unpacks them there; nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from default_package.errors import PackageError
from default_package.wheel import digest

MANUAL_LANGUAGES = ("de", "es", "fr", "it", "ja", "nl", "pl", "pt-br", "ru", "zh")
ENGLISH_MANUALS = ("manpages", "manpages-dev", "coreutils", "util-linux", "findutils", "systemd")
ENGLISH_MANUALS += ("procps", "grep", "sed", "tar", "bash", "cron")
"""Where the translated pages have their originals. `apt` and `dpkg` are left out on purpose: their
matter is what the second evaluation domain is about."""
WITHOUT_DEVELOPER_PAGES = {"zh"}
"""One package holds all sections."""
MANUALS = (
    *ENGLISH_MANUALS,
    *(f"manpages-{lang}" for lang in MANUAL_LANGUAGES),
    *(f"manpages-{lang}-dev" for lang in MANUAL_LANGUAGES if lang not in WITHOUT_DEVELOPER_PAGES),
)
REFERENCE_LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "pt-br", "zh-cn")
FAQ_LANGUAGES = ("de", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh-cn")
DEVELOPER_LANGUAGES = ("de", "fr", "it", "ja", "ru")
GUIDES = (
    *(f"debian-reference-{lang}" for lang in REFERENCE_LANGUAGES),
    "debian-faq",
    *(f"debian-faq-{lang}" for lang in FAQ_LANGUAGES),
    "developers-reference",
    *(f"developers-reference-{lang}" for lang in DEVELOPER_LANGUAGES),
)
"""Validation only: head and hybrid are chosen on them, so they prove nothing."""
OFFICE_LANGUAGES = ("de", "en-us", "es", "fr", "it", "ja", "nl", "pl", "pt-br", "ru", "zh-cn")
OFFICE = tuple(f"libreoffice-help-{lang}" for lang in OFFICE_LANGUAGES)
"""Natural language, full sentences, another matter than the guides: for training."""
UNSEEN = ("installation-guide-amd64",)
"""For the last measurement only: no head and no hybrid was ever chosen on it."""
RENDERER = "mandoc"


@dataclass(frozen=True)
class Unpacked:
    """One package below the cache folder."""

    name: str
    version: str
    sha256: str
    """Of the downloaded file."""
    root: Path


def default_cache() -> Path:
    """The folder that scripts/serve.sh uses too, with a part of its own."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("DUOVEC_CACHE_DIR") or home / "duovec") / "training"


def fetch_all(names: tuple[str, ...], cache: Path) -> list[Unpacked]:
    """Every package, from the cache where it is there already."""
    for tool in ("apt-get", "dpkg", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise PackageError(f"{tool} is missing: this needs a Debian or Ubuntu machine")
    downloads, trees = cache / "debs", cache / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    trees.mkdir(parents=True, exist_ok=True)
    return [_unpack(_download(name, downloads), name, trees) for name in names]


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


def _unpack(path: Path, name: str, trees: Path) -> Unpacked:
    """Unpacks once; a folder that is there is whole, because it is renamed into place."""
    sha256 = digest(path)
    root = trees / f"{name}-{sha256[:16]}"
    if not root.exists():
        part = trees / f".{root.name}.{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["dpkg", "-x", str(path), str(part)], check=True)
        os.replace(part, root)
    version = subprocess.run(
        ["dpkg-deb", "-f", str(path), "Version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return Unpacked(name, version, sha256, root)


def licences(package: Unpacked) -> list[str]:
    """Short names of the licences that the package's copyright file lists."""
    path = package.root / "usr/share/doc" / package.name / "copyright"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    return sorted({line.strip() for line in re.findall(r"^License:\s*(\S.*)$", text, re.M)})
