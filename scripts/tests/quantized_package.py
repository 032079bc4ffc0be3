"""A small random package, and two texts to measure what a graph in 8 bits costs it."""

import argparse
from pathlib import Path

import pytest
from export_packages import made, random_model

from quantization import add, guide
from quantization.score import Collection, Passage, Query

LANGUAGES = ("de", "en")
PAGES = Collection(
    [Passage(lang, f"a text in {lang}") for lang in LANGUAGES],
    [Query(lang, lang, "title", "page", "a", (at,)) for at, lang in enumerate(LANGUAGES)],
)


def make(out: Path, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> Path:
    """Without prompts, as BGE-M3 is."""
    made(out, *random_model(positions=600, **sizes), "--precision", "fp32")
    measure_with_pages(monkeypatch)
    return out


def measure_with_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched."""
    monkeypatch.setattr(guide, "make", lambda: PAGES)
    monkeypatch.setattr(add, "LANGUAGES", LANGUAGES)


def quantize(package: Path, precision: str, *, quick: bool = False, keep: bool = False) -> None:
    add.run(argparse.Namespace(precision=precision, package=package, quick=quick, keep=keep))
