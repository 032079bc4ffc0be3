"""`/openapi.json` says what the server does: requests made from it, answers held against it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from server import default_package, ran, running

HERE = Path(__file__).resolve().parent
# Requests for each route and phase; about half a minute on two cores.
EXAMPLES = 150


def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    """Valid requests are taken and others refused, each with a described answer."""
    with running(
        "--engine", "fake", "--token-input", "model", "--package", default_package()
    ) as server:
        command = [sys.executable, str(HERE / "run_schemathesis.py")]
        command += ["--config-file", str(HERE / "schemathesis.toml"), "--no-color"]
        command += ["run", server.url + "/openapi.json", "--checks", "all"]
        command += ["--max-examples", str(EXAMPLES), "--continue-on-failure"]
        # It leaves a folder of its own where it runs.
        utf_8 = {**os.environ, "PYTHONUTF8": "1"}
        done = ran(*command, code=None, cwd=tmp_path, env=utf_8)
    lines = [line[:500] for line in (done.stdout + done.stderr).splitlines()]
    assert done.returncode == 0, "\n".join(lines[-150:])
    print(next((line.strip() for line in lines if "generated" in line), "no summary"))
