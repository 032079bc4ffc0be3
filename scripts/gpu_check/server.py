"""A started server, and requests to it."""

import http.client
import json
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

#: A large package is loaded, warmed up and captured in less.
READY_SECONDS_MAX = 300


class Server:
    """`duovec serve` on a free port; its log goes to a file that a failure shows the end of."""

    def __init__(self, command: list[str]) -> None:
        self.log = Path(tempfile.mkstemp(prefix="duovec-", suffix=".log")[1])
        started = time.monotonic()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--log-format", "json"], stderr=log
            )
        self.address = self._wait_for("address", started)
        ready = self._wait_for("load_ms", started)
        self.ready_seconds = ready / 1000

    def _wait_for(self, field: str, started: float) -> Any:
        while time.monotonic() - started < READY_SECONDS_MAX:
            for line in self.log.read_text().splitlines():
                value = json.loads(line).get(field) if line.startswith("{") else None
                if value is not None:
                    return value
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.words()}")
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the server was not ready in {READY_SECONDS_MAX} s: {self.words()}")

    def words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-5:])

    def memory_bytes(self) -> int:
        """Resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def stop(self) -> int:
        """Asks it to drain and waits; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

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
