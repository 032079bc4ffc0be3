"""A started server, and requests to it."""

import http.client
import json
import signal
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

#: A large package is loaded, warmed up and captured in less.
READY_SECONDS_MAX = 600.0
#: Of a line of the log. Python 3.10's `fromisoformat` knows no Z at the end.
TIMESTAMP = "%Y-%m-%dT%H:%M:%S.%f%z"
#: How long it may take to answer what waits and to end.
END_SECONDS_MAX = 60.0


class Server:
    """`duovec serve` on a free port; its log goes to a file that a failure shows the end of."""

    def __init__(
        self, command: list[str], ready_seconds_max: float, environment: dict[str, str]
    ) -> None:
        self._give_up = time.monotonic() + ready_seconds_max
        descriptor, name = tempfile.mkstemp(prefix="duovec-", suffix=".log")
        self.log = Path(name)
        with open(descriptor, "w") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--log-format", "json"], stderr=log, env=environment
            )
        try:
            self.address = self._wait_for("address")
            self.ready_seconds = self._wait_for("load_ms") / 1000
        except BaseException:
            self.__exit__()
            raise

    def _wait_for(self, field: str) -> Any:
        while time.monotonic() < self._give_up:
            for line in self._lines():
                if field in line:
                    return line[field]
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.words()}")
            time.sleep(0.05)
        raise RuntimeError(f"the server was not ready in time: {self.words()}")

    def _lines(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-5:])

    def start_up(self) -> list[tuple[float, str]]:
        """What the log says up to when it was ready, with seconds from the first line."""
        said: list[tuple[float, str]] = []
        first = None
        for line in self._lines():
            at = datetime.strptime(line["timestamp"], TIMESTAMP)
            first = first or at
            said.append(((at - first).total_seconds(), line["message"]))
            if "load_ms" in line:
                break
        return said

    def memory_bytes(self, kind: str) -> int:
        """Memory of that name in /proc, now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{kind}:"))
        return int(line.split()[1]) * 1024

    def memory_megabytes(self) -> list[str]:
        """Resident memory now, and the most since the start."""
        return [f"{self.memory_bytes(kind) / 1e6:,.0f}" for kind in ("VmRSS", "VmHWM")]

    def figures(self) -> dict[str, int]:
        """The engine's numbers, such as the free memory of its GPUs."""
        tuning: dict[str, Any] = self.get("/health")[1]["tuning"]
        return dict(tuning.get("engine_figures") or {})

    def stop(self) -> int:
        """Asks it to drain and waits; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self) -> "Server":
        """It is ready already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it if it still runs, and removes its log."""
        if self.process.poll() is None:
            self.stop()
        self.log.unlink()

    def connect(self) -> http.client.HTTPConnection:
        """A connection that stays open."""
        return http.client.HTTPConnection(self.address, timeout=60)

    def get(self, path: str) -> tuple[int, Any]:
        """One answer."""
        return request(self.connect(), "GET", path)


def request(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[int, Any]:
    """Status and JSON of one exchange."""
    connection.request(method, path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
