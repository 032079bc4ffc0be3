"""The examples run as they are, with the default model, and so do snippets of the README."""

from __future__ import annotations

import os
import re
import sys

import pytest
from test_readme import run, snippets

from server import ROOT, ran

FOLDER = ROOT / "examples/hybrid_search"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "material")
# The language of each question, and of its best hit.
LANGUAGES = ["en", "de", "es", "ja", "ru"]
# A word of the fitting text of that language. It is among the two best hits: the texts and the
# questions are so few that in one case another text of the language comes first by a hair.
WORDS = ["invoice", "Brot", "factura", "バッテリー", "пчёлы"]
HITS = 3
# Whether they find the order's number in the question's language first hangs on a hair.
MEANING_ALONE = ("chroma_local", "lancedb_local")


@pytest.mark.parametrize("match", snippets(needing=True), ids=lambda match: match["needs"])
def test_a_snippet_with_a_framework_runs_alone(match: re.Match[str], url: str) -> None:
    run(match["code"], url, {})


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_search_prints_a_fitting_text_among_its_first_two(example: str, real_url: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "clients/python/src")}
    command = [sys.executable, str(FOLDER / f"{example}.py"), "--server", real_url]
    done = ran(*command, env=environment)
    lines = done.stdout.splitlines()
    assert len(lines) == len(LANGUAGES) * (1 + HITS), done.stdout
    firsts = [line.split() for line in lines[1 :: 1 + HITS]]
    languages = [words[1] for words in firsts]
    assert languages[1:] == LANGUAGES[1:], done.stdout
    assert example in MEANING_ALONE or languages[0] == LANGUAGES[0], done.stdout
    two = [" ".join(lines[at + 1 : at + HITS]) for at in range(0, len(lines), 1 + HITS)]
    assert all(word in hits for word, hits in zip(WORDS, two, strict=True)), done.stdout
    scores = [float(line.split()[0]) for line in lines if line.startswith("  ")]
    for at in range(0, len(scores), HITS):
        assert scores[at : at + HITS] == sorted(scores[at : at + HITS], reverse=True)
