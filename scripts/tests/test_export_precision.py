"""The exported graphs in 16 bits: which nodes, how close, what f16 cannot hold."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import (
    BATCH,
    cast_rows,
    changed,
    encoder_of,
    in_stated_types,
    packed,
    types_of,
    written,
)
from onnx import TensorProto

from default_package.checks import LIMITS, cosine, least_cosine, sparse_distance
from default_package.choices import Pooling, Precision
from default_package.encoder import Encoder
from default_package.errors import PackageError
from default_package.manifest import roomy
from default_package.reference import ReferenceEncoder
from fixtures import FAMILIES
from model_export import half as half_graphs

HALVES = {Precision.FP16: TensorProto.FLOAT16, Precision.BF16: TensorProto.BFLOAT16}


@pytest.mark.parametrize("precision", HALVES)
def test_real_arithmetic_in_16_bits_stays_close_to_the_reference(
    tmp_path: Path, precision: Precision
) -> None:
    encoder = encoder_of(token_width=12)
    batch, run = packed(), in_stated_types(written(encoder, precision, tmp_path))
    limits = LIMITS[precision]
    ran = run(batch.inputs)
    norms = np.linalg.norm(ran["dense"], axis=2)
    np.testing.assert_allclose(norms, [[1, 1], [1, 0], [0, 0]], atol=1e-4)
    assert not ran["token_weights"][batch.inputs["segments"] < 0].any()
    for text, found in batch.split(ran).items():
        expected = ReferenceEncoder(encoder).run(BATCH[text])
        assert cosine(found.dense, expected.dense) > limits["dense_cosine_min"]
        assert least_cosine(found, expected) > limits["dense_cosine_min"]
        weights, atol = found.token_weights, limits["sparse_max_abs"]
        np.testing.assert_allclose(weights, expected.token_weights, atol=atol)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize(("precision", "half"), HALVES.items())
def test_words_are_weighed_in_16_bits_up_to_their_choice(
    tmp_path: Path, precision: Precision, half: int, family: str
) -> None:
    encoder = snapshots.open_encoder(FAMILIES / f"{family}-words")
    network = encoder.architecture
    assert network.words is not None
    few = replace(network.words, kept=40, silent=(5, 9))
    encoder = replace(encoder, architecture=replace(network, words=few))
    path, batch = written(encoder, precision, tmp_path), packed(Pooling.MEAN)
    types = types_of(onnx.load(path))
    assert types["words.0.product"] == types["words.0.largest2"] == types["words.0.spans"] == half
    assert (types["words"], types["word_weights"]) == (TensorProto.INT32, TensorProto.FLOAT)
    ran = in_stated_types(path)(batch.inputs)
    ran |= {"token_weights": np.zeros(batch.inputs["segments"].shape, np.float32)}
    for text, found in batch.split(ran).items():
        expected = ReferenceEncoder(encoder).run(BATCH[text])
        assert found.words and expected.words
        assert not found.words.keys() & {5, 9}
        most = roomy(LIMITS[precision], few)["sparse_max_abs"]
        assert sparse_distance(found.words, expected.words, 40) <= most
        assert cosine(found.dense, expected.dense) > LIMITS[precision]["dense_cosine_min"]


@pytest.mark.parametrize(("precision", "half"), HALVES.items())
def test_16_bits_are_for_products_and_f32_for_norms_and_softmax(
    tmp_path: Path, precision: Precision, half: int
) -> None:
    model = onnx.load(written(encoder_of(token_width=12), precision, tmp_path))
    types = types_of(model)
    kinds: dict[str, set[int]] = {}
    for node in model.graph.node:
        if node.op_type != "Cast" and types[node.output[0]] in (TensorProto.FLOAT, half):
            kinds.setdefault(node.op_type, set()).add(types[node.output[0]])
    layer_products = {
        types[n.output[0]]
        for n in model.graph.node
        if n.op_type == "MatMul" and n.output[0].startswith("layer")
    }
    assert layer_products == kinds["Gelu"] == {half}
    assert kinds["LayerNormalization"] == kinds["Softmax"] == {TensorProto.FLOAT}
    assert types["embedding.norm"] == types["layer1.ffn.norm"] == half
    assert (types["tokens"], types["token_vectors"]) == (half, TensorProto.FLOAT)
    assert types["sparse.product"] == types["layer0.scores.masked"] == TensorProto.FLOAT
    assert types["layer0.attention.sum"] == types["dense"] == TensorProto.FLOAT
    assert types["penalty"] == types["dense.pooled"] == TensorProto.FLOAT
    assert types["input_ids"] == types["segments"] == types["positions"] == TensorProto.INT32
    casts = [node.input[0] for node in model.graph.node if node.op_type == "Cast"]
    assert max(Counter(casts).values()) <= 1, "a tensor is cast twice to the same type"


def test_a_weight_that_f16_cannot_hold_is_named(tmp_path: Path) -> None:
    def with_first(wanted: str, number: float) -> Encoder:
        def change(name: str, value: np.ndarray) -> np.ndarray:
            if name == wanted:
                value.flat[0] = number
            return value

        return changed(encoder_of(), change)

    huge = with_first("l1.fi.w", 7e4)
    with pytest.raises(PackageError, match=r"layer1\.ffn\.in\.weight .*float16 cannot hold"):
        written(huge, Precision.FP16, tmp_path)
    for precision in (Precision.BF16, Precision.FP32):
        written(huge, precision, tmp_path)
    for number in (np.nan, np.inf):
        with pytest.raises(PackageError, match=r"layer0\.q\.bias"):
            written(with_first("l0.q.b", number), Precision.FP32, tmp_path)


def test_large_scores_do_not_overflow_with_the_penalty(tmp_path: Path) -> None:
    def loud(name: str, value: np.ndarray) -> np.ndarray:
        """Queries and keys so large that the scores reach thousands."""
        return value * 20.0 if name.endswith((".q.w", ".k.w")) else value

    path = written(changed(encoder_of(), loud), Precision.FP16, tmp_path)
    ran = in_stated_types(path)(packed().inputs)
    dense, weights = ran["dense"], ran["token_weights"]
    assert np.isfinite(dense).all() and np.isfinite(weights).all()


@pytest.mark.parametrize("precision", HALVES)
def test_a_graph_of_the_time_before_tables_were_cast_gives_the_same_numbers(
    tmp_path: Path, precision: Precision
) -> None:
    single = written(encoder_of(), Precision.FP32, tmp_path)
    cast_rows(single)
    half_graphs.convert(single, tmp_path / "twin.onnx", precision)
    twin = in_stated_types(tmp_path / "twin.onnx")(packed().inputs)
    other = in_stated_types(written(encoder_of(), precision, tmp_path / "half"))(packed().inputs)
    for name, numbers in other.items():
        np.testing.assert_array_equal(twin[name], numbers, err_msg=name)
