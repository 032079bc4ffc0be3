"""HAProxy, nginx, Prometheus, helm: found where they are installed or where
scripts/test_fleet.sh has put them, and run as child processes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from server import end_process, ran

TOOLS = Path(os.environ.get("DUOVEC_FLEET_TOOLS", "/nonexistent"))
UNPACKED = TOOLS / "debian"
BARE = TOOLS / "bare"
"""The root of a Debian with nothing but its essential packages."""
START_TIMEOUT_S = 120
END_TIMEOUT_S = 120


def find(name: str) -> Path:
    """The program; the test is skipped where it cannot be had."""
    folders = [
        *(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder),
        Path("/usr/sbin"),
        *(UNPACKED / folder for folder in ("usr/sbin", "usr/bin", "bin")),
        TOOLS / "helm",
    ]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        pytest.skip(f"{name} is not installed, and scripts/test_fleet.sh could not get it")
    return Path(found)


def environment() -> dict[str, str]:
    """The variables of a program that may have been unpacked rather than installed."""
    libraries = sorted(map(str, UNPACKED.glob("usr/lib/*-linux-gnu")))
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program that ends by itself prints; an error of the test when it fails."""
    return ran(*command, cwd=cwd, env=environment(), timeout=None).stdout


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    ready: Callable[[], bool],
    variables: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is ready, ended behind the block; what it says goes to `log`."""
    with log.open("w") as out:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=out,
            stderr=subprocess.STDOUT,
            env=variables or environment(),
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text(errors="replace").splitlines()[-20:]
                raise RuntimeError("\n".join(["the program did not become ready:", *lines]))
            time.sleep(0.05)
        yield process
    finally:
        end_process(process, END_TIMEOUT_S)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def answers(url: str, timeout_s: float = 5, **more: Any) -> bool:
    """Whether a GET succeeds; `more` is what httpx needs beside it."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=timeout_s, **more).is_success
    return False


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something listens on the port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def recipe(path: Path, replaced: dict[str, str]) -> str:
    """A file of deploy/ with a test's own addresses and paths; each must be in it."""
    text = path.read_text(encoding="utf-8")
    for old in replaced:
        assert old in text, f"{path} has no {old}"
    # In one pass: a port of the test may have another's digits in it.
    return re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)
