"""What the examples share: sixty texts in twelve languages, five questions, and printing hits."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from duovec import Client

TEXTS = Path(__file__).resolve().parents[2] / "scripts/default_package/texts.jsonl"
QUESTIONS = [
    "order 20417",
    "Wie lange muss das Brot backen?",
    "¿Cuándo hay que enviar la factura?",
    "バッテリーはどのくらい持ちますか。",
    "Почему пчёлы важны?",
]
HITS = 3
CANDIDATES = 100
"""Each ranking gives so many to the fusion."""


class Hit(NamedTuple):
    """One text that was found."""

    score: float
    lang: str
    text: str


Search = Callable[[str], list[Hit]]
"""The best texts for a question."""
Opener = Callable[[Client, Path], AbstractContextManager[Search]]
"""Fills a store with the texts, in an empty folder if it needs one, and closes it again."""


def texts() -> list[dict[str, str]]:
    """The same five texts in each of twelve languages, with `lang` and `text`."""
    return list(_texts())


def _texts() -> Iterator[dict[str, str]]:
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["group"].startswith("t-") and entry["lang"] != "th":
            yield {"lang": entry["lang"], "text": entry["text"]}


def run(about: str | None, opened: Opener) -> None:
    """Print the best hits of each question."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    with (
        tempfile.TemporaryDirectory() as folder,
        Client(parser.parse_args().server) as client,
        opened(client, Path(folder)) as search,
    ):
        for question in QUESTIONS:
            print(question)
            for hit in search(question):
                print(f"  {hit.score:.3f} {hit.lang} {hit.text}")
