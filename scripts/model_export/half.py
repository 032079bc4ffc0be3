"""Graphs in 16 bits, of graphs in f32: TensorRT runs a graph in the types it is written in.

The CPU engine is best served by f32 arithmetic, TensorRT by f16 or bf16. A graph is written in f32
first, and its nodes are written anew, so that all files of a package are one network. Query, key
and value become one product: one kernel for three, and the widest that the layer's input allows.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from default_package import checks, graph, manifest, vocabulary
from default_package.checks import Runtime
from default_package.choices import Precision
from default_package.command import clear_left, say
from default_package.encoder import Encoder
from default_package.errors import PackageError
from default_package.graph import TOKENS, WORDS
from default_package.graph_builder import PRODUCER, GraphBuilder

HALVES = {Precision.FP16: np.float16, Precision.BF16: ml_dtypes.bfloat16}
IS_HALF = "is in 16 bits already: TensorRT takes it as it is"
PROJECTION = re.compile(r"(layer\d+)\.([qkv])(\.product)?")
"""A layer's query, key or value, and the product that its bias is added to."""


class HalfBuilder(GraphBuilder):
    """Matrix products, their biases and GELU of the layers in 16 bits, the product that gives token
    vectors, and the head that weighs words up to its choice; all else in f32. LayerNormalization
    squares its input, and softmax sums over up to 8192 positions: both overflow or lose digits in
    f16. So do the residual sum, the pooling and the lexical head. What a norm gives is rounded to
    16 bits once, so that only half of it has to be moved to its two readers. The head for words has
    a product as dear as a quarter of the encoder. Maxima and the choice of the strongest words lose
    nothing of what it gives, and move half of the bytes. bf16 has the range of f32, and three bits
    fewer than f16."""

    def __init__(self, path: Path, half: Any = np.float16) -> None:
        super().__init__(path)
        self._half, self._code = half, helper.np_dtype_to_tensor_dtype(np.dtype(half))
        self._pending: dict[str, np.ndarray] = {}
        """Numbers that are stored in the type of their first reader."""
        self._floats: dict[str, bool] = {}  # tensor of floats -> whether it is in 16 bits
        self._ends: dict[str, list[int]] = {}
        """Layer -> where query, key and value end among the columns of their product."""

    def floats(self, name: str, value: np.ndarray | float) -> str:
        self._pending[name] = np.asarray(value, np.float32)
        return name

    def replay(self, source: Path) -> None:
        """Writes the f32 graph of these scripts at `source` anew, and saves it."""
        model = load(source)
        tables: dict[str, np.ndarray] = {}
        for stored in model.graph.initializer:
            keep = {TensorProto.FLOAT: self.floats, TensorProto.FLOAT16: tables.__setitem__}
            keep.get(stored.data_type, self.constant)(stored.name, numbers(stored, source))
        for node in model.graph.node:
            output, table = node.output[0], node.input[0].removesuffix(".single")
            if found := PROJECTION.fullmatch(output):
                self._project(node, *found.groups())
            elif table not in tables:
                attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                inputs = list(node.input)
                self.op(node.op_type, inputs, output, node.output[1:], **attributes)
            elif node.op_type == "Gather":
                # The rows are cast, not the table: TensorRT would hold all of it in f32.
                self.constant(table, tables[table])
                rows = super().op("Gather", [table, node.input[1]], f"{output}.stored")
                self.op("Cast", [rows], output, to=TensorProto.FLOAT)
        self.save(model.graph.input, model.graph.output)

    def _project(self, node: onnx.NodeProto, layer: str, key: str, product: str | None) -> None:
        """A part of the columns of one product, which is made for the first key."""
        if layer not in self._ends:
            both = ([f"{layer}.{k}.{part}" for k in "qkv"] for part in ("weight", "bias"))
            pop = self._pending.pop
            weights, biases = ([pop(n) for n in names if n in self._pending] for names in both)
            self._ends[layer] = [0, *np.cumsum([weight.shape[1] for weight in weights]).tolist()]
            bias = np.concatenate(biases) if biases else None
            self.linear(node.input[0], f"{layer}.qkv", np.concatenate(weights, axis=1).T, bias)
        if product is None:
            at, last_axis = "qkv".index(key), -1
            bounds = (*self._ends[layer][at : at + 2], last_axis)
            names = [self.number(f"integer.{value}", [value]) for value in bounds]
            self.op("Slice", [f"{layer}.qkv", *names], f"{layer}.{key}")

    def op(
        self, kind: str, inputs: list[str], output: str, more: Sequence[str] = (), **attributes: Any
    ) -> str:
        half = self._runs_in_half(kind, inputs, output)
        if kind != "Cast":
            inputs = [self._typed(name, half=half) for name in inputs]
        super().op(kind, inputs, output, more, **attributes)
        if kind == "Cast":
            if attributes["to"] in (self._code, TensorProto.FLOAT):
                self._floats[output] = attributes["to"] == self._code
        elif any(name in self._floats for name in inputs):
            self._floats[output] = half
        if kind == "LayerNormalization":
            # The last node's output is renamed, and its name is that of the copy in 16 bits.
            node, exact = self.nodes[-1], f"{output}.exact"
            node.output[0] = node.name = exact
            super().op("Cast", [exact], output, to=self._code)
            self._floats[exact], self._floats[output] = False, True
        return output

    def _runs_in_half(self, kind: str, inputs: list[str], output: str) -> bool:
        is_of_words = output.startswith(f"{WORDS}.")
        keeping = ["Reshape", "Transpose", "Slice", "Gather"]
        if is_of_words:
            # ONNX has no TopK of bf16 up to opset 23.
            keeping += ["Max", "Concat", *(["TopK"] if self._half is np.float16 else [])]
        if kind in keeping:
            return self._floats.get(inputs[0], False)
        is_bias = kind == "Add" and inputs[1] in self._pending and inputs[1].endswith(".bias")
        is_layer = output.startswith(("layer", TOKENS))
        return (is_layer or is_of_words) and (kind in ("MatMul", "Gelu") or is_bias)

    def _typed(self, name: str, *, half: bool) -> str:
        """The name under which `name` can be read in this type."""
        if name in self._pending:
            value = self._pending.pop(name)
            with np.errstate(over="ignore"):
                self.constant(name, value.astype(self._half) if half else value)
            self._floats[name] = half
        if self._floats.get(name, half) == half:
            return name
        cast = f"{name}.half" if half else f"{name}.single"
        if cast not in self._floats:
            self.op("Cast", [name], cast, to=self._code if half else TensorProto.FLOAT)
        return cast


def write(encoder: Encoder, path: Path, precision: Precision) -> None:
    """The graph of `encoder` at `path`; in 16 bits, that in f32 lies beside it meanwhile."""
    single = path if precision is Precision.FP32 else path.with_name("single.onnx")
    graph.write(encoder, single)
    if single != path:
        HalfBuilder(path, HALVES[precision]).replay(single)
        for part in path.parent.glob(f"{single.name}*"):
            part.unlink()


def add(package: Path, precision: Precision) -> None:
    """The command: the package at `package` is replaced by one that has the graph too. A graph in
    16 bits needs none in fp16 beside it: TensorRT computes in its types already. Who wants bf16
    wants its range, and numbers in fp16 no longer have it."""
    name, source = f"model.{precision.value}.onnx", package / "model.onnx"
    clear_left(package)
    manifest.read(package)
    if precision is Precision.FP16 and is_half(opened(source)):
        say(f"{source} {IS_HALF}")
        return

    def write(twin: Path) -> None:
        HalfBuilder(twin / name, HALVES[precision]).replay(source)

    def finish(twin: Path, content: dict[str, Any]) -> dict[str, Any]:
        words = (content["sparse"] or {}).get("words")
        limits = manifest.roomy(checks.LIMITS[precision], words)
        checks.check_canary(Runtime(twin / name), content, limits)
        words = vocabulary.read(twin / "tokenizer.json", content["pad_token_id"])
        return checks.added(twin, content, words)

    manifest.add_graph(package, name, write, finish)


def load(path: Path) -> onnx.ModelProto:
    """An f32 graph of these scripts; its large numbers stay in the file beside it."""
    model = opened(path)
    if is_half(model):
        raise PackageError(f"{path} {IS_HALF}")
    return model


def is_half(model: onnx.ModelProto) -> bool:
    """Whether a graph of these scripts is in 16 bits."""
    # The word table is f16 in an f32 graph too.
    types = {i.data_type for i in model.graph.initializer if i.name.startswith("layer")}
    return bool(types & {TensorProto.FLOAT16, TensorProto.BFLOAT16})


def opened(path: Path) -> onnx.ModelProto:
    """A graph of these scripts, f32 or not; its large numbers stay in the file beside it."""
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as error:
        raise PackageError(f"{path} is missing: it is no package") from error
    except Exception as error:  # protobuf and the external data reader raise what they like.
        raise PackageError(f"{path} cannot be read: {error}") from error
    if model.producer_name != PRODUCER:
        raise PackageError(f"{path} was not made by these scripts: export its model again")
    return model


def numbers(stored: TensorProto, source: Path) -> np.ndarray:
    """An initializer of the graph at `source`; those that lie beside it are mapped, not read."""
    if stored.data_location != TensorProto.EXTERNAL:
        return numpy_helper.to_array(stored)
    about = external_data_helper.ExternalDataInfo(stored)
    path = source.with_name(about.location)
    kind = helper.tensor_dtype_to_np_dtype(stored.data_type)
    try:
        return np.memmap(path, kind, "r", about.offset or 0, tuple(stored.dims))
    except (OSError, ValueError) as error:
        raise PackageError(f"{path} cannot be read: {error}") from error
