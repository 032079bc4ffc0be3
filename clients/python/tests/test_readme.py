"""Every Python snippet of the README runs, and in its order."""

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


@pytest.mark.parametrize("match", snippets(needing=True), ids=lambda match: match["needs"])
def test_a_snippet_with_a_framework_runs_alone(match: re.Match[str], url: str) -> None:
    for module in match["needs"].split():
        pytest.importorskip(module, reason=f"{module} is not installed (test_adapters.sh does)")
    run(match["code"], url, {})
