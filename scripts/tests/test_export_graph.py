"""The exported graphs: operators, also beside TensorRT's tables of them, fusion, where numbers are
stored, those in 16 and in 8 bits.

What the graphs compute is in test_export_families.py, for all families and precisions. Operators
and types are those of any size, so the encoders are small."""

import json
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
    ran_nodes,
    types_of,
    written,
    written_in_fp8,
)
from onnx import TensorProto, helper, numpy_helper

from default_package import graph_builder
from default_package.checks import LIMITS, Runtime, least_cosine, sparse_distance
from default_package.choices import Pooling, Precision
from default_package.encoder import Encoder
from default_package.errors import PackageError
from default_package.graph_builder import IR_VERSION, OPSET
from default_package.manifest import roomy
from default_package.reference import ReferenceEncoder, cosine
from families import BERT
from fixtures import FAMILIES
from model_export import half
from quantization import int8
from quantization.calibration import product_inputs
from quantization.fp8 import LARGEST, SCALE_MIN, EightBuilder, compensated


# Between the casts of bf16 it finds no attention; those graphs are for GPUs.
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_attention_and_gelu_are_fused_by_openvino(tmp_path: Path, precision: Precision) -> None:
    nodes = ran_nodes(written(encoder_of(), precision, tmp_path))
    # The pooling's products have nothing that they could be parts of.
    kinds = {kind for name, (kind, _) in nodes.items() if not name.startswith("dense.")}
    assert "FullyConnected" in kinds
    assert not kinds & {"Softmax", "SoftMax", "Gelu", "Erf", "MatMul"}


def test_openvino_reads_the_word_table_as_it_is_stored(tmp_path: Path) -> None:
    path = written(encoder_of(), Precision.FP32, tmp_path)
    assert ran_nodes(path)["word.table"][1] == "f16"
    cast_rows(path)
    assert ran_nodes(path)["word.table"][1] == "f32"


@pytest.mark.parametrize("precision", list(Precision))
def test_norms_are_one_operator_and_the_opset_allows_it(
    tmp_path: Path, precision: Precision
) -> None:
    model = onnx.load(written(encoder_of(), precision, tmp_path))
    kinds = Counter(node.op_type for node in model.graph.node)
    layers = snapshots.SIZES.layers
    assert (kinds["LayerNormalization"], kinds["Gelu"]) == (2 * layers + 1, layers)
    assert kinds["Softmax"] == layers
    assert model.opset_import[0].version >= 17
    # For what a position may see, and for padding's weights.
    assert kinds["Where"] == 2
    assert not {"Erf", "Pow", "Sqrt", "If", "Loop", "CumSum", "Shape"} & kinds.keys()


def test_a_model_without_a_head_has_one_output(tmp_path: Path) -> None:
    model = onnx.load(written(encoder_of(with_head=False), Precision.FP16, tmp_path))
    assert [output.name for output in model.graph.output] == ["dense"]
    assert not [node.name for node in model.graph.node if "sparse" in node.name]


@pytest.mark.parametrize("precision", list(Precision))
def test_numbers_beside_the_graph_are_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    encoder = encoder_of()
    inline = written(encoder, precision, tmp_path / "inline")
    monkeypatch.setattr(graph_builder, "TENSOR_BYTES_MIN", 1024)
    beside = written(encoder, precision, tmp_path / "beside")
    assert [path.name for path in inline.parent.iterdir()] == ["model.onnx"]
    names = sorted(path.name for path in beside.parent.iterdir())
    assert names == ["model.onnx", "model.onnx.data"]
    header = onnx.load(beside, load_external_data=False)
    outside = [i for i in header.graph.initializer if i.data_location == TensorProto.EXTERNAL]
    assert "word.table" in {initializer.name for initializer in outside}
    for initializer in outside:
        place = {entry.key: entry.value for entry in initializer.external_data}
        assert place["location"] == "model.onnx.data"
        assert int(place["offset"]) % 4096 == 0
    left, right = onnx.load(inline), onnx.load(beside)
    for a, b in zip(left.graph.initializer, right.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(a), onnx.numpy_helper.to_array(b))
    assert list(left.graph.node) == list(right.graph.node)
    one, two = (Runtime(path).run_rows(packed().inputs) for path in (inline, beside))
    np.testing.assert_array_equal(one["dense"], two["dense"])
    np.testing.assert_array_equal(one["token_weights"], two["token_weights"])


@pytest.mark.parametrize("other", [2, [1], 1.0])
def test_two_values_of_one_name_are_an_error(tmp_path: Path, other: list[int] | float) -> None:
    builder = graph_builder.GraphBuilder(tmp_path / "model.onnx")
    assert [builder.number("one", 1) for _ in range(2)] == ["one", "one"]
    assert len(builder.initializers) == 1
    with pytest.raises(ValueError, match="another value called one"):
        builder.number("one", other)


@pytest.mark.parametrize(
    ("precision", "products"), [(Precision.FP32, 8), (Precision.FP16, 6), (Precision.BF16, 6)]
)
def test_query_key_and_value_are_one_product_in_half_precision(
    tmp_path: Path, precision: Precision, products: int
) -> None:
    model = onnx.load(written(encoder_of(), precision, tmp_path))
    names = [n.output[0] for n in model.graph.node if n.op_type == "MatMul"]
    in_layers = [name for name in names if name.startswith("layer")]
    assert len(in_layers) == products * snapshots.SIZES.layers


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
@pytest.mark.parametrize(
    ("precision", "stored"), [*HALVES.items(), (Precision.FP32, TensorProto.FLOAT)]
)
def test_words_are_weighed_in_the_precision_and_the_strongest_stay(
    tmp_path: Path, precision: Precision, stored: int, family: str
) -> None:
    encoder = snapshots.open_encoder(FAMILIES / f"{family}-words")
    network = encoder.architecture
    assert network.words is not None
    few = replace(network.words, kept=40, silent=(5, 9))
    encoder = replace(encoder, architecture=replace(network, words=few))
    path, batch = written(encoder, precision, tmp_path), packed(Pooling.MEAN)
    types = types_of(onnx.load(path))
    assert types["words.0.product"] == types["words.0.largest2"] == types["words.0.spans"] == stored
    assert (types["words"], types["word_weights"]) == (TensorProto.INT32, TensorProto.FLOAT)
    ran = in_stated_types(path)(batch.inputs)
    ran |= {"token_weights": np.zeros(batch.inputs["segments"].shape, np.float32)}
    for text, found in batch.split(ran).items():
        expected = ReferenceEncoder(encoder).run(BATCH[text])
        assert found.words and expected.words
        assert len(expected.words) == 40 and not found.words.keys() & {5, 9}
        most = roomy(LIMITS[precision], few)["sparse_max_abs"]
        assert sparse_distance(found.words, expected.words, 40) <= most
        assert cosine(found.dense, expected.dense) > LIMITS[precision]["dense_cosine_min"]


@pytest.mark.parametrize(("precision", "short"), HALVES.items())
def test_16_bits_are_for_products_and_f32_for_norms_and_softmax(
    tmp_path: Path, precision: Precision, short: int
) -> None:
    model = onnx.load(written(encoder_of(token_width=12), precision, tmp_path))
    types = types_of(model)
    kinds: dict[str, set[int]] = {}
    for node in model.graph.node:
        if node.op_type != "Cast" and types[node.output[0]] in (TensorProto.FLOAT, short):
            kinds.setdefault(node.op_type, set()).add(types[node.output[0]])
    layer_products = {
        types[n.output[0]]
        for n in model.graph.node
        if n.op_type == "MatMul" and n.output[0].startswith("layer")
    }
    assert layer_products == kinds["Gelu"] == {short}
    assert kinds["LayerNormalization"] == kinds["Softmax"] == {TensorProto.FLOAT}
    assert types["embedding.norm"] == types["layer1.ffn.norm"] == short
    assert (types["tokens"], types["token_vectors"]) == (short, TensorProto.FLOAT)
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
    half.HalfBuilder(tmp_path / "twin.onnx", half.HALVES[precision]).replay(single)
    twin = in_stated_types(tmp_path / "twin.onnx")(packed().inputs)
    other = in_stated_types(written(encoder_of(), precision, tmp_path / "half"))(packed().inputs)
    for name, numbers in other.items():
        np.testing.assert_array_equal(twin[name], numbers, err_msg=name)


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


def test_inputs_over_the_calibrated_range_stay_finite(tmp_path: Path) -> None:
    path = written_in_fp8(encoder_of(), tmp_path, largest=0.01)
    ran = Runtime(path).run_rows(packed().inputs)
    dense, weights = ran["dense"], ran["token_weights"]
    assert np.isfinite(dense).all() and np.isfinite(weights).all()


def test_an_input_that_was_not_calibrated_is_named(tmp_path: Path) -> None:
    source = written(encoder_of(), Precision.FP32, tmp_path)
    with pytest.raises(PackageError, match=r"did not see embedding\.norm"):
        EightBuilder(tmp_path / "fp8.onnx", {}).replay(source)


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


FACTS = json.loads(Path(__file__).with_name("tensorrt_operators.json").read_text("utf-8"))
NAMES = {
    TensorProto.FLOAT: "FP32",
    TensorProto.FLOAT16: "FP16",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.FLOAT8E4M3FN: "FP8",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.INT8: "INT8",
    TensorProto.UINT8: "UINT8",
    TensorProto.BOOL: "BOOL",
}
CONVERTING = ("DequantizeLinear", "QuantizeLinear")


def problems(model: onnx.ModelProto) -> list[str]:
    """What some release does not take."""
    found: set[str] = set()
    types: dict[str, str] = {}
    opset: list[int] = []
    named = types_of(model)
    stored = {initializer.name for initializer in model.graph.initializer}
    for release, facts in FACTS["releases"].items():
        types |= facts.get("types", {})
        opset = facts.get("opset", opset)
        if not opset[0] <= model.opset_import[0].version <= opset[1]:
            found.add(f"{release}: opset {model.opset_import[0].version}")
        for node in model.graph.node:
            reads = node.input[:1] if node.op_type in CONVERTING else node.input
            taken = types.get(node.op_type, "").split()
            read = {NAMES[named[name]] for name in reads}
            found |= {f"{release}: {node.op_type} of {kind}" for kind in read - set(taken)}
    for node in model.graph.node:
        if node.op_type in FACTS["constant_axes"] and not stored.issuperset(node.input[1:]):
            found.add(f"{node.op_type} with axes that are no constants")
        if node.op_type == "TopK" and number_of(model, node.input[1]) > FACTS["largest_top_k"]:
            found.add(f"TopK of more than {FACTS['largest_top_k']}")
        if node.op_type == "LayerNormalization" and len(node.output) > 1:
            found.add("LayerNormalization with more than one output")
    return sorted(found)


def number_of(model: onnx.ModelProto, name: str) -> int:
    """A stored list of one number; 0 for what is not stored."""
    stored = (one for one in model.graph.initializer if one.name == name)
    return max((int(numpy_helper.to_array(one)[0]) for one in stored), default=0)


def like_e5_small() -> Encoder:
    """With all that a head may read."""
    encoder = encoder_of(BERT, Pooling.MEAN)
    assert encoder.head is not None
    biases = np.zeros(encoder.sizes.vocab_rows, np.float32)
    head = replace(encoder.head, piece_biases=biases, repeat_weight=0.3, norm_exponent=0.5)
    return replace(encoder, head=head)


def test_all_releases_take_every_graph_for_gpus(tmp_path: Path) -> None:
    exported = set()
    others = [snapshots.open_encoder(folder) for folder in sorted(FAMILIES.iterdir())]
    for encoder in (encoder_of(), like_e5_small(), *others):
        graphs = [written(encoder, one, tmp_path / one.value) for one in Precision]
        for path in [*graphs, written_in_fp8(encoder, tmp_path / "fp8")]:
            model = onnx.load(path)
            assert problems(model) == []
            exported |= {node.op_type for node in model.graph.node}
    listed = {kind for facts in FACTS["releases"].values() for kind in facts.get("types", {})}
    assert listed - exported == {"Attention", "CumSum"}, "more is listed than the tests need"


def test_only_the_numbers_of_8_bits_of_the_graph_for_cpus_are_refused(tmp_path: Path) -> None:
    single = written(like_e5_small(), Precision.FP32, tmp_path)
    inputs = set(product_inputs(half.load(single)).values())
    ranges = dict.fromkeys(inputs, int8.Range(-1.0, 1.0, [], []))
    int8.write(single, tmp_path / "int8.onnx", ranges)
    refused = [f"{release}: DequantizeLinear of UINT8" for release in FACTS["releases"]]
    assert problems(onnx.load(tmp_path / "int8.onnx")) == sorted(refused)


def test_what_a_release_does_not_take_is_found() -> None:
    """A running sum of whole numbers, which positions were once made with; an operator of later
    releases; axes that come from the graph; more words than a list may have."""
    ids = helper.make_tensor_value_info("ids", TensorProto.INT32, ["rows", "length"])
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [1])
    heads = helper.make_tensor_value_info("heads", TensorProto.FLOAT, [1, 1, 4, 4000])
    outputs = [
        helper.make_tensor_value_info("places", TensorProto.INT32, ["rows", "length"]),
        helper.make_tensor_value_info("wide", TensorProto.INT32, None),
        helper.make_tensor_value_info("mixed", TensorProto.FLOAT, None),
    ]
    nodes = [
        helper.make_node("CumSum", ["ids", "axis"], ["places"]),
        helper.make_node("Unsqueeze", ["ids", "axes"], ["wide"]),
        helper.make_node("Attention", ["heads"] * 3, ["mixed"]),
        helper.make_node("TopK", ["heads", "count"], ["largest", "places_of_largest"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    count = helper.make_tensor("count", TensorProto.INT64, [1], [3841])
    graph = helper.make_graph(nodes, "graph", [ids, axes, heads], outputs, [axis, count])
    found = problems(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET + 3)], ir_version=IR_VERSION
        )
    )
    releases = list(FACTS["releases"])
    sums = {f"{r}: CumSum of {kind}" for r in releases for kind in ("INT32", "INT64")}
    early = {f"{r}: {what}" for r in releases[:2] for what in ("Attention of FP32", "opset 23")}
    axes_too = {"Unsqueeze with axes that are no constants", "TopK of more than 3840"}
    assert set(found) == sums | early | axes_too
