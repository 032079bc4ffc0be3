"""The Python snippets of the README run in their order; those with frameworks are in adapters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
SNIPPET = re.compile(
    r"(?:<!-- needs (?P<needs>[\w. ]+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL
)


def snippets(needing: bool) -> list[re.Match[str]]:
    found = list(SNIPPET.finditer(README.read_text(encoding="utf-8")))
    return [match for match in found if bool(match["needs"]) == needing]


def run(code: str, url: str, names: dict[str, Any]) -> None:
    exec(compile(code.replace("http://127.0.0.1:8080", url), str(README), "exec"), names)


def test_the_snippets_run_one_after_the_other(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for match in snippets(needing=False):
        run(match["code"], url, names)
    assert "invalid_dimensions" in capsys.readouterr().out
    assert names["dense"].shape == (1, 8)
