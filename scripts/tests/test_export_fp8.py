"""Graphs whose layers multiply numbers of 8 bits: which products, how stored, how close."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from export_graphs import BATCH, encoder_of, packed, written, written_in_fp8
from onnx import TensorProto, numpy_helper

from default_package.checks import Runtime
from default_package.choices import Precision
from default_package.errors import PackageError
from default_package.reference import cosine
from model_export import half
from quantization.fp8 import LARGEST, SCALE_MIN, EightBuilder, compensated


def test_layers_multiply_8_bits_with_weights_and_nothing_else_does(tmp_path: Path) -> None:
    encoder = encoder_of()
    graph = onnx.load(written_in_fp8(encoder, tmp_path)).graph
    makers = {node.output[0]: node.op_type for node in graph.node}
    products = {n.output[0]: n.input for n in graph.node if n.op_type == "MatMul"}
    in_8_bits = {
        name
        for name, inputs in products.items()
        if [makers.get(one) for one in inputs] == ["DequantizeLinear"] * 2
    }
    ends = ("qkv", "attention.out", "ffn.in", "ffn.out")
    layers = range(encoder.sizes.layers)
    assert in_8_bits == {f"layer{i}.{end}.product" for i in layers for end in ends}
    left = products.keys() - in_8_bits
    assert left == {"sparse.product", "dense.pooled"} | {
        f"layer{i}.{k}" for i in layers for k in ("scores", "mixed")
    }
    stored = {i.name: i.data_type for i in graph.initializer if i.name.endswith(".weight")}
    in_bytes = {name for name, kind in stored.items() if kind == TensorProto.FLOAT8E4M3FN}
    assert in_bytes == {f"layer{i}.{end}.weight" for i in layers for end in ends}


def test_a_weight_uses_the_whole_range(tmp_path: Path) -> None:
    path = written_in_fp8(encoder_of(), tmp_path)
    exact = {i.name: i for i in onnx.load(tmp_path / "model.onnx").graph.initializer}
    found = {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    name = "layer0.ffn.in.weight"
    weight, scale = found[name].astype(np.float32), found[f"{name}.scale"]
    assert scale.dtype == np.float16 and scale.shape == () and scale > SCALE_MIN
    assert np.abs(weight).max() == LARGEST and np.isfinite(weight).all()
    wanted = numpy_helper.to_array(exact[name])
    # Three bits of a number are kept; the smallest ones are multiples of 2^-9.
    limit = np.maximum(np.abs(wanted) / 16, scale * 2.0**-10) * 1.01
    assert (np.abs(weight * scale - wanted) <= limit).all()


def test_vectors_stay_close_to_f32(tmp_path: Path) -> None:
    path = written_in_fp8(encoder_of(), tmp_path)
    exact, near = (Runtime(p) for p in (tmp_path / "model.onnx", path))
    for one, other in zip(*(run.run(BATCH, "cls") for run in (exact, near)), strict=True):
        similarity = cosine(one.dense, other.dense)
        assert 0.99 < similarity < 0.999999, "it is not rounded, or too much"
        np.testing.assert_allclose(other.token_weights, one.token_weights, atol=0.1)


def test_inputs_over_the_calibrated_range_stay_finite(tmp_path: Path) -> None:
    path = written_in_fp8(encoder_of(), tmp_path, largest=0.01)
    ran = Runtime(path).run_rows(packed().inputs)
    dense, weights = ran["dense"], ran["token_weights"]
    assert np.isfinite(dense).all() and np.isfinite(weights).all()


def test_an_input_that_was_not_calibrated_is_named(tmp_path: Path) -> None:
    source = written(encoder_of(), Precision.FP32, tmp_path)
    with pytest.raises(PackageError, match=r"did not see embedding\.norm"):
        half.replay(source, tmp_path / "fp8.onnx", lambda store: EightBuilder(store, {}))


def test_what_rounding_loses_is_made_up_by_inputs_that_occur_together() -> None:
    random = np.random.default_rng(3)
    # 40 columns of 8 that are independent: each says what others say too.
    inputs = (random.standard_normal((500, 8)) @ random.standard_normal((8, 40))).astype(np.float32)
    weight = random.standard_normal((40, 5)).astype(np.float32)

    def lost(rounded: np.ndarray) -> float:
        return float(np.square(inputs @ (rounded - weight)).mean())

    rounded = compensated(weight, inputs.T @ inputs, np.round)
    assert (rounded == np.round(rounded)).all()
    assert lost(rounded) < lost(np.round(weight)) / 4
    alone = compensated(weight, np.eye(40, dtype=np.float32), np.round)
    np.testing.assert_array_equal(alone, np.round(weight))
