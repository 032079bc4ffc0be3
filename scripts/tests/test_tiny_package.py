"""The tiny package of the Rust tests is what its recipe makes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers

from default_package import graph
from default_package.checks import Runtime, check_neighbours
from default_package.choices import Pooling
from default_package.encoder import SPECIAL_BIAS, SparseHead
from default_package.errors import PackageError
from default_package.layers import SAME_TEXT
from default_package.reference import ReferenceEncoder
from fixtures import TINY, TINY_TOKENS, TINY_WORDS, tiny_package

NETWORK = tiny_package.tiny_encoder().architecture
TOKENIZER = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))


@pytest.mark.parametrize(
    ("make", "committed", "more"),
    [
        (tiny_package.make, TINY, ["tokenizer.json"]),
        (tiny_package.make_with_token_vectors, TINY_TOKENS, []),
        (tiny_package.make_with_words, TINY_WORDS, ["questions.f32"]),
    ],
)
def test_every_run_writes_the_committed_bytes(
    tmp_path: Path, make: Callable[[Path], None], committed: Path, more: list[str]
) -> None:
    make(tmp_path / "tiny")
    found = {path.name: path.read_bytes() for path in (tmp_path / "tiny").iterdir()}
    assert sorted(found) == ["manifest.json", "model.onnx", *more]
    for name, data in found.items():
        assert data == (committed / name).read_bytes(), name


def test_ascii_text_has_no_unknown_token() -> None:
    for text in ("".join(map(chr, range(128))), *map(chr, range(128)), "Hello_World-42 {}"):
        assert 3 not in TOKENIZER.encode(text).ids, repr(text)
    assert 3 in TOKENIZER.encode("\u13a0").ids


def lexical_head() -> SparseHead:
    """With surprisals, repeats and norm, as the default package's."""
    pieces = tiny_package.tiny_vocabulary().pieces
    biases = np.linspace(0.1, 0.6, len(pieces)).astype(np.float32)
    biases[:4] = SPECIAL_BIAS
    head = tiny_package.tiny_head()
    return replace(head, piece_biases=biases, repeat_weight=0.2, norm_exponent=0.5)


def test_graph_and_reference_agree_whatever_is_beside_a_text(tmp_path: Path) -> None:
    tiny, path = tiny_package.tiny_encoder(lexical_head()), tmp_path / "model.onnx"
    graph.write(tiny, path)
    encoder = ReferenceEncoder(tiny)
    texts = ["", "a", "the the quick test", "Wasser und Brot", "x" * 61]
    sequences = [TOKENIZER.encode(text).ids for text in texts]
    for row, ids in zip(Runtime(path).run(sequences, "mean"), sequences, strict=True):
        expected = encoder.run(ids)
        np.testing.assert_allclose(row.dense, expected.dense, atol=1e-5)
        np.testing.assert_allclose(row.token_weights, expected.token_weights, atol=1e-5)


def test_weights_are_divided_by_a_power_of_their_norm() -> None:
    def weights(head: SparseHead) -> np.ndarray:
        ids = TOKENIZER.encode("the the quick").ids
        return ReferenceEncoder(tiny_package.tiny_encoder(head)).run(ids).token_weights

    found = weights(lexical_head())
    assert found[0] == found[-1] == 0.0
    plain = weights(replace(lexical_head(), norm_exponent=0.0))
    np.testing.assert_allclose(found, plain / np.linalg.norm(plain) ** 0.5, rtol=1e-5)


def test_no_text_sees_another_one(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph.write(tiny_package.tiny_encoder(lexical_head()), path)
    runtime = Runtime(path)
    for seed in range(10):
        for pooling in (Pooling.MEAN, Pooling.CLS):
            check_neighbours(runtime, replace(NETWORK, pooling=pooling), seed)


@pytest.mark.parametrize(
    ("node", "what"),
    [("penalty", "vectors"), ("sparse.repeats.same", "weights"), ("sparse.norm.own", "weights")],
)
def test_a_graph_that_mixes_texts_is_noticed(tmp_path: Path, node: str, what: str) -> None:
    path = tmp_path / "model.onnx"
    graph.write(tiny_package.tiny_encoder(lexical_head()), path)
    wrong = onnx.load(path)
    [found] = (one for one in wrong.graph.node if one.name == node)
    [at] = (i for i, name in enumerate(found.input) if name == SAME_TEXT)
    found.input[at] = "everything"
    own = ["segments.column", "segments.column"]
    wrong.graph.node.insert(2, onnx.helper.make_node("Equal", own, ["everything"]))
    onnx.save(wrong, path)
    with pytest.raises(PackageError, match=f"a text's {what}.* what is beside it"):
        check_neighbours(Runtime(path), NETWORK)
