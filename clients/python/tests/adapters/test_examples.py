"""The examples run as they are, with the default model."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from server import ROOT

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

# The language of each question, whose best hit is the text of that language.
LANGUAGES = ["en", "de", "es", "ja", "ru"]


def test_hybrid_search_with_qdrant_prints_a_fitting_text_first(real_url: str) -> None:
    script = ROOT / "examples/hybrid_search/qdrant_local.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "clients/python/src")}
    command = [sys.executable, str(script), "--server", real_url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    questions, firsts, rest = lines[::4], lines[1::4], lines[2::4] + lines[3::4]
    assert len(questions) == len(firsts) == 5
    assert len(rest) == 10
    assert [line.split()[1] for line in firsts] == LANGUAGES
    words = ["train", "Brot", "factura", "バッテリー", "пчёлы"]
    assert all(word in line for word, line in zip(words, firsts, strict=True))
