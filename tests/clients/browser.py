"""A headless Chromium, steered over a pipe with its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server import end_process

TIMEOUT_S = 60
NAMES = ["chromium", "chromium-browser", "google-chrome"]

# The sandbox needs rights that a container lacks. No name but this machine's is looked up, so that
# nothing leaves it whatever the page asks for.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--window-size=1280,1600",
    "--remote-debugging-pipe",
]


def find() -> str | None:
    """The path of a Chromium, when there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab; every event since it was opened is kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        """Take the two ends of the pipe and open a tab."""
        self.events: list[dict[str, Any]] = []
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ["Page", "Network", "Log", "Runtime"]:
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0, end - time.monotonic()))
            received = os.read(self._from, 1 << 16) if ready else b""
            if not received:
                raise RuntimeError("Chromium does not answer")
            self._buffer += received
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """The first value of an expression that counts as true."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.05)
        raise RuntimeError(f"it never happened in the page that {script}")

    def screenshot(self, path: Path) -> None:
        """Write what the whole page looks like as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def keep(self, name: str) -> None:
        """Write a picture when a person wants to look at it."""
        if folder := os.environ.get("DUOVEC_TEST_SCREENSHOTS"):
            self.screenshot(Path(folder) / f"{name}.png")

    def requested(self) -> list[str]:
        """The address of every request of the page."""
        sent = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, violations of the page's policy among them."""
        found = []
        for event in self.events:
            match event:
                case {"method": "Log.entryAdded", "params": {"entry": entry}}:
                    if entry["level"] in ("error", "warning"):
                        found.append(entry["text"])
                case {"method": "Runtime.exceptionThrown", "params": thrown}:
                    found.append(json.dumps(thrown["exceptionDetails"])[:500])
                case {"method": "Runtime.consoleAPICalled", "params": call}:
                    if call["type"] in ("error", "warning", "assert"):
                        found.append(json.dumps(call["args"])[:500])
        return found


def high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors are not among those that the shell puts in place."""
    ends = os.pipe()
    reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return reader, writer


@contextlib.contextmanager
def opened(program: str, profile: Path) -> Iterator[Page]:
    """A browser with a new profile in the empty folder `profile`, ended behind the block."""
    browser_in, to_browser = high_pipe()
    from_browser, browser_out = high_pipe()
    # It reads from descriptor 3 and writes to 4; the shell puts them there.
    command = ["bash", "-c", f'exec "$@" 3<&{browser_in} 4>&{browser_out}', "bash"]
    command += [program, *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command, pass_fds=[browser_in, browser_out], stderr=subprocess.DEVNULL
    )
    os.close(browser_in)
    os.close(browser_out)
    try:
        yield Page(to_browser, from_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        end_process(process, 20)
