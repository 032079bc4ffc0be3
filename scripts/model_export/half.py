"""Graph builders for all precisions over one description of the network.

`GraphBuilder` writes what it is told. `HalfBuilder` decides for each node whether it runs in 16
bits and puts the casts between: TensorRT runs a graph in the types it is written in. Query, key and
value are one product there: one kernel for three, and the widest that the layer's input allows.
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from default_package.choices import Precision
from default_package.graph import TOKENS
from default_package.graph_builder import GraphBuilder, Linear, WeightStore


class HalfBuilder(GraphBuilder):
    """Matrix products, their biases and GELU of the layers in 16 bits, and the product that gives
    token vectors; all else in f32.

    LayerNormalization squares its input, and softmax sums over up to 8192 positions: both overflow
    or lose digits in f16. So do the residual sum, the pooling and the lexical head. What a norm
    gives is rounded to 16 bits once, so that only half of it has to be moved to its two readers.
    """

    half: type[np.generic] = np.float16
    half_code = TensorProto.FLOAT16

    def __init__(self, store: WeightStore) -> None:
        super().__init__(store)
        self._pending: dict[str, np.ndarray] = {}
        """f32 constants whose first reader will tell their type."""
        self._floats: dict[str, bool] = {}
        """Float tensor, a node's or a stored one -> whether it has 16 bits."""
        self._integers: set[str] = set()
        """Stored lists of one integer."""

    def floats(self, name: str, value: np.ndarray | float) -> str:
        self._pending[name] = np.asarray(value, np.float32)
        return name

    def lookup(self, table: np.ndarray, places: str, output: str) -> str:
        if table.dtype != np.float16:
            return super().lookup(table, places, output)
        # The rows are cast, not the table: TensorRT would hold all of it in f32.
        name = self.constant(f"{output}.table", table)
        found = self.op("Gather", [name, places], f"{output}.stored")
        return self.op("Cast", [found], output, to=TensorProto.FLOAT)

    def projection(self, source: str, prefix: str, key: str, parts: dict[str, Linear]) -> str:
        """A part of the columns of one product, which is made for the first key."""
        keys = list(parts)
        if key == keys[0]:
            weight = np.concatenate([weight for weight, _ in parts.values()])
            biases = [bias for _, bias in parts.values() if bias is not None]
            bias = np.concatenate(biases) if biases else None
            self.linear(source, f"{prefix}.{''.join(keys)}", weight, bias)
        start = sum(len(parts[earlier][0]) for earlier in keys[: keys.index(key)])
        end, last_axis = start + len(parts[key][0]), -1
        bounds = [self._integer(value) for value in (start, end, last_axis)]
        return self.op("Slice", [f"{prefix}.{''.join(keys)}", *bounds], f"{prefix}.{key}")

    def _integer(self, value: int) -> str:
        name = f"integer.{value}"
        if name not in self._integers:
            self._integers.add(self.ints(name, value))
        return name

    def op(
        self, kind: str, inputs: list[str], output: str, more: Sequence[str] = (), **attributes: Any
    ) -> str:
        half = self._runs_in_half(kind, inputs, output)
        if kind != "Cast":
            inputs = [self._typed(name, half=half) for name in inputs]
        super().op(kind, inputs, output, more, **attributes)
        if kind == "Cast":
            self._floats[output] = attributes["to"] == self.half_code
        elif any(name in self._floats for name in inputs):
            self._floats[output] = half
        if kind == "LayerNormalization":
            self._round(output)
        return output

    def _runs_in_half(self, kind: str, inputs: list[str], output: str) -> bool:
        if kind in ("Reshape", "Transpose", "Slice", "Gather"):
            return self._floats.get(inputs[0], False)
        is_bias = kind == "Add" and inputs[1] in self._pending and inputs[1].endswith(".bias")
        is_layer = output.startswith(("layer", TOKENS))
        return is_layer and (kind in ("MatMul", "Gelu") or is_bias)

    def _typed(self, name: str, *, half: bool) -> str:
        """The name under which `name` can be read in this type."""
        if name in self._pending:
            value = self._pending.pop(name)
            with np.errstate(over="ignore"):
                self.constant(name, value.astype(self.half) if half else value)
            self._floats[name] = half
        if self._floats.get(name, half) == half:
            return name
        cast = f"{name}.half" if half else f"{name}.single"
        if cast not in self._floats:
            self.op("Cast", [name], cast, to=self.half_code if half else TensorProto.FLOAT)
        return cast

    def _round(self, output: str) -> None:
        """Renames the last node's output, and gives its name to the copy in 16 bits."""
        node = self.nodes[-1]
        node.output[0] = node.name = f"{output}.exact"
        super().op("Cast", [node.output[0]], output, to=self.half_code)
        self._floats[node.output[0]], self._floats[output] = False, True


class BrainBuilder(HalfBuilder):
    """The same in bf16: the range of f32 with three bits fewer than f16."""

    half = ml_dtypes.bfloat16
    half_code = TensorProto.BFLOAT16


BUILDERS: dict[Precision, type[GraphBuilder]] = {
    Precision.FP16: HalfBuilder,
    Precision.BF16: BrainBuilder,
    Precision.FP32: GraphBuilder,
}
