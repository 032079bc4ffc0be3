"""Adds a graph in 16 bits to a package whose model.onnx is f32: TensorRT's plans are built from it.

The CPU engine is best served by f32 arithmetic, TensorRT by f16 or bf16, and it takes a graph's
types as they are written. The nodes of model.onnx are replayed through the builder of the
precision, so that all files are one network.
"""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from default_package import checks, manifest, vocabulary
from default_package import graph as parts
from default_package.choices import Precision
from default_package.errors import PackageError
from default_package.graph_builder import GraphBuilder, WeightStore
from default_package.runtime import Runtime

from . import largest, longest
from .half import BUILDERS

SINGLE_NAME = "model.onnx"
PROJECTION = re.compile(r"(layer\d+)\.([qkv])(\.product)?")
"""A layer's query, key or value, and the product that its bias is added to."""
TABLE = re.compile(r"((word|position)\.table)(\.single)?")
"""Of words or positions, as it is stored, or cast to f32."""
TABLE_CAST = re.compile(r"(word|position)(\.table\.single)?")
"""Of a table, or of the rows that were found in it."""
HELD = re.compile(r"layer\d+\.[qkv]\.(weight|bias)|(word|position)\.table")
"""Numbers that the builder stores in its own way when it comes to what reads them."""


def add(package: Path, precision: Precision) -> Path:
    """The command: the package at `package` is replaced by one that has the graph too.

    Returns the place of the graph, whose name the server looks for.
    """
    name = f"model.{precision.value}.onnx"

    def finish(twin: Path, content: dict[str, Any]) -> dict[str, Any]:
        checks.check_canary(Runtime(twin / name), content, checks.LIMITS[precision])
        words = vocabulary.read(twin / "tokenizer.json", content["pad_token_id"])
        return longest.added(twin, largest.added(twin, content, words))

    manifest.add_graph(
        package, name, lambda twin: write(package / SINGLE_NAME, twin / name, precision), finish
    )
    return package / name


def write(source: Path, target: Path, precision: Precision) -> None:
    """`source`, a graph that these scripts wrote in f32, in 16 bits."""
    replay(load(source), target, BUILDERS[precision])


def replay(
    model: onnx.ModelProto, target: Path, make: Callable[[WeightStore], GraphBuilder]
) -> None:
    """Writes the nodes of `model` anew, as the builder of `make` does."""
    width = model.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    with closing(WeightStore(target)) as store:
        builder = make(store)
        _replay(model, builder)
    parts.save(parts.finish(builder, width), target)


def load(path: Path, numbers: bool = True) -> onnx.ModelProto:
    """An f32 graph of these scripts; without `numbers` large ones stay in the file beside it."""
    try:
        model = onnx.load(path, load_external_data=numbers)
    except FileNotFoundError as error:
        raise PackageError(f"{path} is missing: it is no package") from error
    except Exception as error:  # protobuf and the external data reader raise what they like.
        raise PackageError(f"{path} cannot be read: {error}") from error
    if model.producer_name != parts.PRODUCER:
        raise PackageError(f"{path} was not made by these scripts: export its model again")
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if any(i.data_type in halves for i in model.graph.initializer if _is_weight(i)):
        raise PackageError(f"{path} is in 16 bits already: TensorRT takes it as it is")
    return model


def _is_weight(initializer: TensorProto) -> bool:
    """Of a layer: the word table is f16 in an f32 graph too."""
    return initializer.name.startswith("layer")


def _replay(model: onnx.ModelProto, builder: GraphBuilder) -> None:
    """Constants first: the builder stores each in the type of its first reader."""
    held: dict[str, np.ndarray] = {}
    for initializer in model.graph.initializer:
        name, value = initializer.name, numpy_helper.to_array(initializer)
        if HELD.fullmatch(name):
            held[name] = value
        elif initializer.data_type == TensorProto.FLOAT:
            builder.floats(name, value)
        else:
            builder.constant(name, value)
    source = ""
    for node in model.graph.node:
        output = node.output[0]
        if node.op_type == "Gather" and (found := TABLE.fullmatch(node.input[0])):
            builder.lookup(held[found[1]], node.input[1], found[2])
        elif node.op_type == "Cast" and TABLE_CAST.fullmatch(output):
            # Of what is looked up, which the builder casts in its own way.
            continue
        elif found := PROJECTION.fullmatch(output):
            layer, key, product = found.groups()
            if node.op_type == "MatMul":
                source = node.input[0]
            if product:
                continue
            names = {k: (f"{layer}.{k}.weight", f"{layer}.{k}.bias") for k in "qkv"}
            parts = {k: (held[weight].T, held.get(bias)) for k, (weight, bias) in names.items()}
            builder.projection(source, layer, key, parts)
        else:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            builder.op(node.op_type, list(node.input), output, node.output[1:], **attributes)
