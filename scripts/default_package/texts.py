"""The sentences in texts.jsonl, written for this project, that all checks run on."""

import json
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("texts.jsonl")


@dataclass(frozen=True)
class Text:
    """One line; texts that share a group of the kind `t…` are translations of each other."""

    lang: str
    text: str
    group: str


def load(path: Path = PATH) -> list[Text]:
    """All lines in file order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Text(**json.loads(line)) for line in lines if line]
