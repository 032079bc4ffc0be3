"""The exported graphs: operators, fusion, where numbers are stored.

What the graphs compute is in test_export_families.py, for all families and precisions.
"""

from collections import Counter
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import pytest
from export_graphs import cast_rows, encoder_of, packed, ran_nodes, written
from onnx import TensorProto

from default_package import graph_builder
from default_package.checks import Runtime
from default_package.choices import Precision


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
