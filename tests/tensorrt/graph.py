"""Small random encoders for the tests of plan building: the good graph, and ways to spoil it.

The same inputs, outputs and arithmetic as a real export for TensorRT: half-precision weights and
activations, fp32 LayerNorm, fp32 outputs, the scale inside Wq, a penalty for other texts' tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Shape:
    """Sizes of a random encoder."""

    hidden: int = 64
    heads: int = 2
    layers: int = 2
    vocabulary: int = 500
    positions: int = 128
    element: int = TensorProto.FLOAT16
    ids_type: int = TensorProto.INT32
    fp8: bool = False
    """Whether products with weights are in 8 bits."""


class RandomEncoder:
    """Collects nodes and initializers; `build` gives the model."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = np.random.RandomState(7)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.float_type = helper.tensor_dtype_to_np_dtype(shape.element)
        self.uses_segments = True

    def constant(self, name: str, value: np.ndarray) -> str:
        # `ascontiguousarray` would turn a scalar into a list of one.
        value = np.ascontiguousarray(value) if value.ndim else value
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, name: str, *sizes: int, deviation: float = 0.05) -> str:
        values = self.random.standard_normal(sizes) * deviation
        return self.constant(name, values.astype(self.float_type))

    def op(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def cast(self, source: str, output: str, to: int) -> str:
        return self.op("Cast", [source], output, to=to)

    def linear(self, source: str, name: str, columns_in: int, columns_out: int) -> str:
        factors = [source, self.weights(f"{name}.w", columns_in, columns_out)]
        if self.shape.fp8 and columns_out > 1:
            factors = [self.rounded(one, f"{name}.{i}") for i, one in enumerate(factors)]
        product = self.op("MatMul", factors, f"{name}.mm")
        return self.op("Add", [product, self.weights(f"{name}.b", columns_out)], name)

    def rounded(self, source: str, name: str) -> str:
        """To 8 bits of floating point, and back."""
        scale = self.constant(f"{name}.scale", np.asarray(0.01, self.float_type))
        to = self.constant(f"{name}.zero", np.zeros((), ml_dtypes.float8_e4m3fn))
        small = self.op("QuantizeLinear", [source, scale, to], f"{name}.fp8")
        return self.op("DequantizeLinear", [small, scale], f"{name}.rounded")

    def norm(self, source: str, name: str) -> str:
        """LayerNormalization in f32, back to the graph's type."""
        wide = self.cast(source, f"{name}.in", TensorProto.FLOAT)
        ones = self.constant(f"{name}.w", np.ones(self.shape.hidden, np.float32))
        zeros = self.constant(f"{name}.b", np.zeros(self.shape.hidden, np.float32))
        normed = self.op("LayerNormalization", [wide, ones, zeros], f"{name}.f32", axis=-1)
        return self.cast(normed, name, self.shape.element)

    def attention(self, source: str, name: str, penalty: str | None) -> str:
        hidden = self.shape.hidden
        orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        parts = {}
        for key, order in orders.items():
            flat = self.linear(source, f"{name}.{key}", hidden, hidden)
            split = self.op("Reshape", [flat, "split"], f"{name}.{key}.split")
            parts[key] = self.op("Transpose", [split], f"{name}.{key}.heads", perm=order)
        scores = self.op("MatMul", [parts["q"], parts["k"]], f"{name}.scores")
        if penalty is not None:
            scores = self.op("Add", [scores, penalty], f"{name}.masked")
        shares = self.op("Softmax", [scores], f"{name}.shares", axis=-1)
        mixed = self.op("MatMul", [shares, parts["v"]], f"{name}.mixed")
        back = self.op("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        joined = self.op("Reshape", [back, "join"], f"{name}.joined")
        return self.linear(joined, f"{name}.out", hidden, hidden)

    def embeddings(self) -> str:
        shape = self.shape
        word_table = self.weights("word.table", shape.vocabulary, shape.hidden, deviation=1.0)
        words = self.op("Gather", [word_table, "input_ids"], "word")
        table = self.weights("position.table", shape.positions, shape.hidden, deviation=0.2)
        places = self.op("Gather", [table, "positions"], "position")
        return self.op("Add", [words, places], "embedded")

    def penalty(self) -> str:
        sides = [
            self.op("Unsqueeze", ["segments", self.axes(1, 3)], "column"),
            self.op("Unsqueeze", ["segments", self.axes(1, 2)], "row"),
        ]
        same = self.op("Equal", sides, "same")
        none = self.constant("none", np.asarray(0.0, self.float_type))
        low = self.constant("low", np.asarray(-10000.0, self.float_type))
        return self.op("Where", [same, none, low], "penalty")

    def axes(self, *numbers: int) -> str:
        name = "axes" + "".join(map(str, numbers))
        if all(one.name != name for one in self.initializers):
            self.constant(name, np.asarray(numbers, np.int64))
        return name

    def outputs(self, hidden: str) -> None:
        wide = self.cast(hidden, "hidden.f32", TensorProto.FLOAT)
        pooled = self.op("MatMul", ["span_weights", wide], "pooled")
        norm = self.op("ReduceL2", [pooled, self.axes(2)], "pooled.norm", keepdims=1)
        floor = self.constant("floor", np.asarray(1e-12, np.float32))
        self.op("Div", [pooled, self.op("Max", [norm, floor], "pooled.floor")], "dense")
        head = self.linear(hidden, "sparse", self.shape.hidden, 1)
        flat = self.op("Squeeze", [head, self.axes(2)], "sparse.flat")
        positive = self.op("Relu", [flat], "sparse.positive")
        positive = self.cast(positive, "sparse.f32", TensorProto.FLOAT)
        if not self.uses_segments:
            self.op("Identity", [positive], "token_weights")
            return
        first = self.constant("first", np.asarray(0, np.int32))
        real = self.op("GreaterOrEqual", ["segments", first], "real")
        nothing = self.constant("nothing", np.asarray(0.0, np.float32))
        self.op("Where", [real, positive, nothing], "token_weights")

    def build(self) -> onnx.ModelProto:
        shape = self.shape
        head_size = shape.hidden // shape.heads
        self.constant("split", np.asarray([0, 0, shape.heads, head_size], np.int64))
        self.constant("join", np.asarray([0, 0, shape.hidden], np.int64))
        penalty = self.penalty() if self.uses_segments else None
        hidden = self.norm(self.embeddings(), "embedding.norm")
        for layer in range(shape.layers):
            name = f"layer{layer}"
            attended = self.attention(hidden, f"{name}.attention", penalty)
            hidden = self.norm(self.op("Add", [attended, hidden], f"{name}.a"), f"{name}.an")
            wide = self.linear(hidden, f"{name}.up", shape.hidden, 4 * shape.hidden)
            active = self.op("Gelu", [wide], f"{name}.gelu", approximate="none")
            narrow = self.linear(active, f"{name}.down", 4 * shape.hidden, shape.hidden)
            hidden = self.norm(self.op("Add", [narrow, hidden], f"{name}.f"), f"{name}.fn")
        self.outputs(hidden)
        return self._model()

    def _model(self) -> onnx.ModelProto:
        tokens = ["rows", "length"]
        value = helper.make_tensor_value_info
        inputs = [
            value("input_ids", self.shape.ids_type, tokens),
            value("positions", TensorProto.INT32, tokens),
            value("segments", TensorProto.INT32, tokens),
            value("span_weights", TensorProto.FLOAT, ["rows", "spans", "length"]),
        ]
        outputs = [
            value("dense", TensorProto.FLOAT, ["rows", "spans", self.shape.hidden]),
            value("token_weights", TensorProto.FLOAT, tokens),
        ]
        graph = helper.make_graph(self.nodes, "encoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)
