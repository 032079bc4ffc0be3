"""A small random package, and two texts to measure what a graph in 8 bits costs it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from export_packages import RANDOM, run

from quantization import add
from quantization.collection import Collection, Passage, Query


def make(out: Path, monkeypatch: pytest.MonkeyPatch, *sizes: str) -> Path:
    """Without prompts, as BGE-M3 is."""
    words = ["--positions", "600", "--precision", "fp32", "--out", out]
    assert run(monkeypatch, *RANDOM, *sizes, *words) == 0
    passages = [Passage(lang, "page", f"a text in {lang}") for lang in ("de", "en")]
    queries = [Query(lang, lang, "title", "page", "a", (i,)) for i, lang in enumerate(["de", "en"])]
    both = Collection(passages, queries)
    monkeypatch.setattr(add, "collections", lambda cache: {"pages": both})
    return out


def quantize(package: Path, precision: str, *, quick: bool = False, keep: bool = False) -> None:
    add.run(
        argparse.Namespace(
            precision=precision,
            package=package,
            languages=["de", "en"],
            cache=None,
            quick=quick,
            keep=keep,
        )
    )
