"""The hidden states that the sparse head is trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import make_tiny_package
from default_package.reference import ReferenceEncoder
from fixtures import tiny_package
from sparse_training import hidden_states
from sparse_training.hidden_states import Package


def test_states_of_texts_that_share_rows_are_the_references(tmp_path: Path) -> None:
    package = Package.load(make_tiny_package.OUT)
    texts = ["the quick test", "", "Wasser und Brot", "x" * 80, *["dog", "cat tree"] * 20]
    sequences, _ = package.encode(texts, "query")
    encoder = ReferenceEncoder(tiny_package.tiny_model(), tiny_package.tiny_head())
    for _ in range(2):
        states = hidden_states.cached(package, texts, "query", "f32", tmp_path)
        assert len(states) == len(texts)
        for text, ids in enumerate(sequences):
            expected = encoder.run(ids)
            kept = [at for at, i in enumerate(ids) if i not in package.dropped]
            own = slice(states.offsets[text], states.offsets[text + 1])
            np.testing.assert_allclose(states.hidden[own], expected.hidden[kept], atol=3e-3)
            np.testing.assert_allclose(states.dense[text], expected.dense, atol=1e-5)
            assert states.ids[own].tolist() == [ids[at] for at in kept]
    assert len(list((tmp_path / "states").iterdir())) == 1
