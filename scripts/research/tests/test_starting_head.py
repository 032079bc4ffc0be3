"""The head that training starts from is of the texts and of the model's width."""

import json

from default_package import sparse_head, texts, wheel
from sparse_training.fit import START


def test_the_starting_head_belongs_to_the_texts() -> None:
    stored = json.loads(START.read_text(encoding="utf-8"))
    assert stored["texts_sha256"] == wheel.digest(texts.PATH), (
        "run scripts/research/fit_starting_head.py"
    )
    assert len(stored["weights"]) == len(sparse_head.load().weights) == 384
