"""Asks examples/conformance.rs: the server's own code, without a server around it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server import ran

DEFAULT = Path(__file__).resolve().parents[2] / "target/debug/examples/conformance"

Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Questions -> one answer for each."""


def asking(package: Path, *normalization: str) -> Ask:
    """Asks about a package; its forms stand in examples/conformance.rs."""
    program = os.environ.get("DUOVEC_TEST_CONFORMANCE", str(DEFAULT))
    command = [program, str(package), *normalization]

    def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        printed = ran(*command, input=lines, timeout=None).stdout
        answers = [json.loads(line) for line in printed.splitlines()]
        assert len(answers) == len(questions)
        return answers

    return ask
