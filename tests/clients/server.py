"""The real binary as a child process, for tests, benchmarks and checks that drive it over HTTP.

The standard library of Python 3.10 is all it needs: scripts/gpu_check runs on bare machines.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DUOVEC_TEST_BINARY", str(ROOT / "target/release/duovec"))
TINY = str(ROOT / "tests/fixtures/tiny")
"""The directory of a package of some kilobytes, whose vectors have 8 numbers."""
FAKE = ["--package", TINY, "--engine", "fake"]
"""Arguments of a server whose vectors depend on nothing but the texts."""
PATIENT = ["--request-timeout-ms", "300000"]
"""Clients that give no deadline get their answer on a busy machine too."""
START_TIMEOUT_S = 180
END_TIMEOUT_S = 600
"""Of programs that end by themselves: the machine may be busy."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks without a proxy, which variables may name: servers are on this machine."""


Started = TypeVar("Started", bound="Server")


class Server:
    """`duovec serve` on a port of its own, ready; its log is kept. Ends with its `with` block."""

    def __init__(
        self,
        arguments: list[str],
        port: int = 0,
        *,
        binary: str = BINARY,
        environment: dict[str, str] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Start it with `arguments` and wait until it is ready; port 0 is any."""
        command = [binary, "serve", "--port", str(port), "--log-format", "json", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.log: list[str] = []
        self.url, self.ready_seconds = "", math.inf
        self._ready_or_ended = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            self._ready_or_ended.wait(timeout_s)
            if self.ready_seconds == math.inf:
                raise RuntimeError(f"the server did not become ready:\n{self.words()}")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            with contextlib.suppress(json.JSONDecodeError):
                said = json.loads(line)
                if (address := said.get("address")) and not self.url:
                    self.url = f"{'https' if said.get('tls') else 'http'}://{address}"
                if "load_ms" in said:
                    self.ready_seconds = said["load_ms"] / 1000
                    self._ready_or_ended.set()
        self._ready_or_ended.set()

    def words(self) -> str:
        """The end of its log, whole once it has ended."""
        if self.process.poll() is not None:
            self._reader.join(timeout=5)
        return "\n".join(self.log[-20:])

    def memory_bytes(self, kind: str = "VmRSS") -> int:
        """Memory of that name in /proc, now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{kind}:"))
        return int(line.split()[1]) * 1024

    def resident_megabytes(self) -> float:
        """Resident memory of the process, in MB (10^6 bytes)."""
        return self.memory_bytes() / 1e6

    def own_megabytes(self) -> float:
        """Memory that the process alone has, in MB: pages of mapped files come and go with what
        else the system reads."""
        return self.memory_bytes("RssAnon") / 1e6

    def ask(self, path: str, **body: Any) -> tuple[int, Any]:
        """Status and JSON of an answer, to a POST of `body` or, without one, to a GET."""
        content, fields = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, content if body else None, fields)
        try:
            with DIRECT.open(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)

    def items(self, path: str = "/v1/embeddings", **body: Any) -> list[dict[str, Any]]:
        """The items of a good answer."""
        status, answer = self.ask(path, **body)
        if status != 200:
            raise RuntimeError(f"{path} answered {status}: {answer}")
        found: list[dict[str, Any]] = answer["data"]
        return found

    def stop(self) -> int:
        """End the server with SIGTERM; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self: Started) -> Started:
        """It is ready already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it if it still runs."""
        self.stop()


def running(*arguments: str) -> Server:
    """A server that is ready, for a `with` block."""
    return Server(list(arguments))


def wait_for(what: str, happened: Callable[[], Any], timeout_s: float = 60) -> None:
    """Ask until something has happened."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"it never happened: {what}"
        time.sleep(0.05)


def end_process(process: subprocess.Popen[Any], timeout_s: float) -> None:
    """Ends a program with SIGTERM, or with SIGKILL when it takes longer than `timeout_s`."""
    process.terminate()
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def ran(
    *command: str | Path, code: int | None = 0, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A program at its end with what it printed; its exit code must be `code`, unless None is."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": END_TIMEOUT_S, **more},
    )
    told = f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert code in (None, done.returncode), told
    return done


def script(
    module: str, *arguments: str, package: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """A program of scripts/ at its end, started as its shell script does, with this package."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    variables |= {"DUOVEC_PACKAGE": package, "DUOVEC_TEST_BINARY": BINARY}
    command = [sys.executable, "-m", module, *arguments]
    return ran(*command, code=code, cwd=ROOT, env=variables)


def certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate of this run for names such as `IP:127.0.0.1`, and its key."""
    made, key = folder / "site.crt", folder / "site.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=duovec.internal"]
    command += ["-addext", f"subjectAltName={','.join(names)}"]
    ran(*command, "-keyout", key, "-out", made)
    return made, key


def default_package() -> str:
    """The directory of the default package."""
    return os.environ.get("DUOVEC_PACKAGE", str(ROOT / "engines/multilingual-e5-small"))


def texts() -> list[dict[str, str]]:
    """The project's own multilingual texts, with `lang`, `text` and `group`."""
    path = ROOT / "scripts/default_package/texts.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
