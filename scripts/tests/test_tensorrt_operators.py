"""Every exported operator and the types that it reads, beside TensorRT's tables of them.

Operators and types are those of any size, so the encoders are small. The graph in whole numbers of
8 bits is for CPUs.
"""

import json
from dataclasses import replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
from export_graphs import encoder_of, types_of, written, written_in_fp8
from onnx import TensorProto, helper, numpy_helper

from default_package.choices import Pooling, Precision
from default_package.encoder import Encoder
from default_package.graph import IR_VERSION, OPSET
from families import BERT, XLM_ROBERTA
from fixtures import FAMILIES as FOLDERS
from model_export import half
from quantization import int8
from quantization.calibration import product_inputs

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


def like_bge_m3() -> Encoder:
    return encoder_of(XLM_ROBERTA, Pooling.CLS)


def like_e5_small() -> Encoder:
    """With all that a head may read."""
    encoder = encoder_of(BERT, Pooling.MEAN)
    assert encoder.head is not None
    biases = np.zeros(encoder.sizes.vocab_rows, np.float32)
    head = replace(encoder.head, piece_biases=biases, repeat_weight=0.3, norm_exponent=0.5)
    return replace(encoder, head=head)


def test_all_releases_take_every_graph_for_gpus(tmp_path: Path) -> None:
    exported = set()
    others = [snapshots.open_encoder(folder) for folder in sorted(FOLDERS.iterdir())]
    for encoder in (like_bge_m3(), like_e5_small(), *others):
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
