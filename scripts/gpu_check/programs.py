"""The binary, run with the libraries of one flavour within the time that is left."""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from gpu_check.report import Report, SkipSection

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/clients"))
import server as clients  # noqa: E402

#: In the order in which they are taken.
FLAVOURS = ("tensorrt", "tensorrt-rtx")
#: What the stand-ins for NVIDIA's libraries are told.
FAULTS = "DUOVEC_STANDIN_FAULTS"
#: A build of the largest model takes a minute, the check of its files some seconds.
COMMAND_SECONDS_MAX = 900.0
#: A large package is loaded, warmed up and captured in less.
READY_SECONDS_MAX = 600.0
#: Of a line of the log. Python 3.10's `fromisoformat` knows no Z at the end.
TIMESTAMP = "%Y-%m-%dT%H:%M:%S.%f%z"


class Limit:
    """Counts from its making."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def seconds(self, most: float = COMMAND_SECONDS_MAX) -> float:
        """What a part may take, at most `most`; skips the section when nothing is left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise SkipSection("the time of --limit is over")
        return min(most, left)


class Server(clients.Server):
    """`duovec serve` on a free port."""

    def start_up(self) -> list[tuple[float, str]]:
        """What the log says up to when it was ready, with seconds from the first line."""
        said: list[tuple[float, str]] = []
        first = None
        for line in (json.loads(text) for text in self.log if text.startswith("{")):
            at = datetime.strptime(line["timestamp"], TIMESTAMP)
            first = first or at
            said.append(((at - first).total_seconds(), line["message"]))
            if "load_ms" in line:
                break
        return said

    def memory_megabytes(self) -> list[str]:
        """Resident memory now, and the most since the start."""
        return [f"{self.memory_bytes(kind) / 1e6:,.0f}" for kind in ("VmRSS", "VmHWM")]

    def figures(self) -> dict[str, int]:
        """The engine's numbers, such as the free memory of its GPUs."""
        tuning: dict[str, Any] = self.ask("/health")[1]["tuning"]
        return dict(tuning.get("engine_figures") or {})


class Programs:
    """Runs the binary's commands and tells the report how they ended."""

    def __init__(self, typed: argparse.Namespace, report: Report) -> None:
        self.typed, self.report = typed, report
        self.limit = Limit(typed.limit)
        self.environment = dict(os.environ)
        #: What was typed, until the libraries of this machine are known.
        self.flavour: str = typed.flavour or FLAVOURS[-1]
        self.library_dir: Path | None = typed.library_dir

    def with_faults(self, faults: str) -> Programs:
        """The same checks with the stand-ins told something more."""
        told = copy.copy(self)
        before = self.environment.get(FAULTS)
        told.environment = self.environment | {FAULTS: f"{before},{faults}" if before else faults}
        return told

    def folders(self) -> list[str]:
        """The flags that name the libraries' folders."""
        folders = {
            "--tensorrt-library-dir": self.library_dir,
            "--cuda-library-dir": self.typed.cuda_library_dir,
        }
        return [word for name, path in folders.items() if path for word in (name, str(path))]

    def command(self, *words: str) -> list[str]:
        """The binary with the libraries' folders."""
        return [str(self.typed.binary), *words, *self.folders()]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.command(*words))

    def call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=self.limit.seconds(),
            env=self.environment,
            check=False,
        )

    def serve(self, package: Path, *more: str) -> Server:
        """A server of that package that is ready."""
        server = Server(
            ["--package", str(package), "--engine", self.flavour, *self.folders(), *more],
            binary=str(self.typed.binary),
            environment=self.environment,
            timeout_s=self.limit.seconds(READY_SECONDS_MAX),
        )
        self.report.check(True, f"the server is ready after {server.ready_seconds:.1f} s")
        return server

    def stop(self, server: Server) -> None:
        """Ends the server, which must go well."""
        code = server.stop()
        self.report.check(code == 0, f"it drains and ends with exit code {code}")

    def bench(self, package: Path, *more: str) -> dict[str, Any]:
        done = self.run("bench", str(package), "--engine", self.flavour, "--json", *more)
        if not done.stdout.strip():
            raise RuntimeError(f"duovec bench gave no report: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found
