"""What the products of an f32 graph's layers read while texts run through it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import openvino

from default_package import checks
from model_export import half

from .score import Package


def product_inputs(model: onnx.ModelProto) -> dict[str, str]:
    """Weight -> what it is multiplied with, of all products of layers with weights."""
    stored = {initializer.name for initializer in model.graph.initializer}
    return {
        node.input[1]: node.input[0]
        for node in model.graph.node
        if node.op_type == "MatMul"
        and node.output[0].startswith("layer")
        and node.input[1] in stored
    }


def sequences(package: Package) -> list[list[int]]:
    """Token ids of the sentences of texts.jsonl, as queries and as passages."""
    sentences = checks.sentences()
    # Without prompts the two are the same.
    kinds = {package.prompts.get(kind, ""): kind for kind in ("query", "passage")}
    return [row for kind in kinds.values() for row in package.encode(sentences, kind)[0]]


def inputs(source: Path, sequences: list[list[int]]) -> Iterator[tuple[str, np.ndarray]]:
    """What each text gives of each tensor that is multiplied with weights: f32
    `[positions, width]`."""
    names = sorted(set(product_inputs(half.load(source)).values()))
    core = openvino.Core()
    model = core.read_model(source)
    model.add_outputs(names)
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for sequence in sequences:
        result = compiled(checks.alone(sequence).inputs)
        yield from ((name, result[name][0]) for name in names)
