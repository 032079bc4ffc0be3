"""Small encoders, changed where a test wants it, and their graphs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from default_package import graph, rows
from default_package.choices import Pooling, Precision
from default_package.encoder import Encoder, Tensors
from families import XLM_ROBERTA
from families.family import Family
from model_export import half_package, random_encoder
from model_export.half import BUILDERS
from quantization.calibration import product_inputs
from quantization.fp8 import Calibrated, EightBuilder

Run = Callable[[dict[str, np.ndarray]], rows.Outputs]
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
    graph.write(encoder, folder / "model.onnx", BUILDERS[precision])
    return folder / "model.onnx"


def written_in_fp8(encoder: Encoder, folder: Path, largest: float = 8.0) -> Path:
    """Beside the f32 graph; all inputs were at most `largest`, and independent."""
    model = half_package.load(written(encoder, Precision.FP32, folder))
    stored = {i.name: i for i in model.graph.initializer}
    widths = {s: stored[weight].dims[0] for weight, s in product_inputs(model).items()}
    inputs = {s: Calibrated(largest, np.eye(w, dtype=np.float32)) for s, w in widths.items()}
    half_package.replay(model, folder / "fp8.onnx", lambda *given: EightBuilder(*given, inputs))
    return folder / "fp8.onnx"


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor -> its number in TensorProto."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    typed = [*inferred.value_info, *inferred.output, *inferred.input]
    return {v.name: v.type.tensor_type.elem_type for v in typed} | {
        i.name: i.data_type for i in inferred.initializer
    }


def assert_same_graph(path: Path, other: Path) -> None:
    """Nodes in their order, outputs, and all numbers to the bit."""
    one, two = onnx.load(path).graph, onnx.load(other).graph
    assert list(one.node) == list(two.node)
    assert list(one.output) == list(two.output)
    numbers = [{i.name: (i.data_type, i.raw_data) for i in g.initializer} for g in (one, two)]
    assert numbers[0] == numbers[1]


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
    read = encoder.source.read
    return replace(encoder, source=Tensors(lambda name, rows: change(name, read(name, rows))))


def packed(pooling: Pooling = Pooling.CLS, pad: int = 1) -> rows.Batch:
    """BATCH: two texts in a row, one in the next, and a row of padding."""
    return rows.batch(BATCH, [[0, 1], [2], []], 18, pad, pooling.value)


def in_stated_types(path: Path) -> Run:
    """Runs a graph with numpy in the types that are written in it, as TensorRT does."""
    evaluator = ReferenceEvaluator(onnx.load(path))

    def run(inputs: dict[str, np.ndarray]) -> rows.Outputs:
        dense, weights, *vectors = evaluator.run(None, inputs)
        assert {one.dtype for one in (dense, weights, *vectors)} == {np.dtype(np.float32)}
        return rows.Outputs(dense, weights, *vectors)

    return run
