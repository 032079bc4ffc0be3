"""Small encoders, changed where a test wants it, and their graphs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
import openvino
from onnx.reference import ReferenceEvaluator

from default_package.checks import Arrays, Batch, Runtime, batch
from default_package.choices import Pooling, Precision
from default_package.encoder import Encoder
from default_package.graph import WORDS
from families import XLM_ROBERTA, Family
from fixtures import random_encoder
from model_export import half
from quantization.calibration import product_inputs
from quantization.fp8 import Calibrated, EightBuilder

Run = Callable[[Arrays], Arrays]
BATCH = [[0, 5, 6, 7, 8, 2], [0, 9, 10, 2], [0, 2]]


def encoder_of(
    family: Family = XLM_ROBERTA,
    pooling: Pooling = Pooling.CLS,
    *,
    with_head: bool = True,
    token_width: int | None = None,
) -> Encoder:
    architecture = replace(snapshots.architecture(family, pooling), token_width=token_width)
    return random_encoder.make(architecture, 11, with_head=with_head)


def written(encoder: Encoder, precision: Precision, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    half.write(encoder, folder / "model.onnx", precision)
    return folder / "model.onnx"


def written_in_fp8(encoder: Encoder, folder: Path, largest: float = 8.0) -> Path:
    """Beside the f32 graph; all inputs were at most `largest`, and independent."""
    source = written(encoder, Precision.FP32, folder)
    model = half.load(source)
    stored = {i.name: i for i in model.graph.initializer}
    widths = {s: stored[weight].dims[0] for weight, s in product_inputs(model).items()}
    inputs = {s: Calibrated(largest, np.eye(w, dtype=np.float32)) for s, w in widths.items()}
    EightBuilder(folder / "fp8.onnx", inputs).replay(source)
    return folder / "fp8.onnx"


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor -> its number in TensorProto."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    typed = [*inferred.value_info, *inferred.output, *inferred.input]
    return {v.name: v.type.tensor_type.elem_type for v in typed} | {
        i.name: i.data_type for i in inferred.initializer
    }


def cast_rows(path: Path) -> None:
    """Rewrites an f32 graph so that words are looked up in f16, and their rows cast."""
    model = onnx.load(path)
    [cast] = (node for node in model.graph.node if node.output[0] == "word.table.single")
    [lookup] = (node for node in model.graph.node if node.output[0] == "word")
    cast.op_type, lookup.op_type = lookup.op_type, cast.op_type
    cast.input.append(lookup.input.pop())
    lookup.attribute.append(cast.attribute.pop())
    cast.output[0] = lookup.input[0] = "word.half"
    onnx.save(model, path)


def changed(encoder: Encoder, change: Callable[[str, np.ndarray], np.ndarray]) -> Encoder:
    """The same with tensors that go through a function of name and value."""
    read = encoder.read
    return replace(encoder, read=lambda name, rows: change(name, read(name, rows)))


def packed(pooling: Pooling = Pooling.CLS, pad: int = 1) -> Batch:
    """BATCH: two texts in a row, one in the next, and a row of padding."""
    return batch(BATCH, [[0, 1], [2], []], 18, pad, pooling.value)


def in_stated_types(path: Path) -> Run:
    """Runs a graph with numpy in the types that are written in it, as TensorRT does."""
    evaluator = ReferenceEvaluator(onnx.load(path))

    def run(inputs: Arrays) -> Arrays:
        found = dict(zip(evaluator.output_names, evaluator.run(None, inputs), strict=True))
        floats = {one.dtype for name, one in found.items() if name != WORDS}
        assert floats == {np.dtype(np.float32)}
        return found

    return run


def ran_nodes(path: Path) -> dict[str, tuple[str, str]]:
    """Kind and type of each node that OpenVINO really runs, constants too, by its name."""

    def told(node: openvino.Node, key: str) -> str:
        value = node.get_rt_info()[key]
        return str(value.astype(str) if hasattr(value, "astype") else value)

    nodes = Runtime(path).compiled.get_runtime_model().get_ops()
    keys = ("layerType", "outputPrecisions")
    return {n.get_friendly_name(): (told(n, keys[0]), told(n, keys[1])) for n in nodes}
