"""The graph whose dense layers compute in whole numbers of 8 bits, for OpenVINO on CPUs.

QuantizeLinear and DequantizeLinear around each of a layer's products with weights say it. A weight
has a scale for each of its columns, an input one range. A few columns of an input reach many times
further than the others, and would make that range coarse: they are divided, and their rows of the
weights multiplied. All that is not in 8 bits stays in the file of the f32 graph's numbers.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from default_package.errors import PackageError
from default_package.graph_builder import GraphBuilder
from model_export import half

from . import calibration

FIELD = "quantized"
"""Of the manifest."""
GRAPH = "model.int8.onnx"
PREFIX = "model.int8."
"""Of its files; earlier ones ended in .xml and .bin."""
TOLERANCES = {"dense_cosine_min": 0.995, "sparse_max_abs": 0.1}
"""Of the canary."""
METHOD = "8 bits: weights and inputs of the dense layers; the widest columns of inputs are divided"
WIDE_SHARE = 48
"""One column of so many is divided. On 240 texts the mean of 1 − cosine to f32 was 0.0035 without
that, and 0.0006 with 4 to 64 columns of each input."""
SMALLEST = np.float32(1e-9)
"""Scale: of a weight or an input that is all zeros."""
LARGEST = 127
STEPS = 255
"""Between the least and the largest number of an input."""


@dataclass(frozen=True)
class Range:
    """What calibration texts gave of one input."""

    least: float
    largest: float
    """When the wide columns are divided."""
    wide: list[int]
    """Columns."""
    divisors: list[float]
    """Of each of them."""

    def factors(self, width: int) -> np.ndarray:
        """What each column is divided by."""
        found = np.ones(width, np.float32)
        found[self.wide] = self.divisors
        return found


def calibrate(source: Path, sequences: list[list[int]]) -> dict[str, Range]:
    """The ranges of all inputs in these sequences of token ids. Takes a minute."""
    ends: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, states in calibration.inputs(source, sequences):
        least, largest = states.min(axis=0), states.max(axis=0)
        if name in ends:
            least, largest = np.minimum(least, ends[name][0]), np.maximum(largest, ends[name][1])
        ends[name] = least, largest
    return {name: range_of(*both) for name, both in ends.items()}


def range_of(least: np.ndarray, largest: np.ndarray) -> Range:
    """Of an input whose columns reach from `least` to `largest`.

    The wide columns are divided down to the widest of the others. All numbers are written down
    with few digits, and used so: a graph of kept ranges is that of measured ones.
    """
    reach = np.maximum(np.abs(least), np.abs(largest))
    order = np.argsort(-reach, kind="stable")
    count = len(order) // WIDE_SHARE
    wide = sorted(order[:count].tolist())
    limit = max(reach[order[count]], SMALLEST)
    divided = Range(0.0, 0.0, wide, [_short(reach[column] / limit) for column in wide])
    factors = divided.factors(len(reach))
    # Zero is within: most of what a layer adds up is near it.
    least_of_all, largest_of_all = (least / factors).min(), (largest / factors).max()
    return replace(
        divided, least=_short(min(least_of_all, 0)), largest=_short(max(largest_of_all, 0))
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def write(source: Path, target: Path, ranges: dict[str, Range]) -> None:
    """`source`, an f32 graph of these scripts, as `target`, which reads its file of numbers too."""
    model = half.load(source)
    read_by = calibration.product_inputs(model)
    if absent := set(read_by.values()) - ranges.keys():
        raise PackageError(f"calibration did not see {', '.join(sorted(absent))}")
    weights = {
        stored.name: half.numbers(stored, source)
        for stored in model.graph.initializer
        if stored.name in read_by
    }
    builder = _Builder(target, ranges)
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            node.input[:] = builder.rounded(node.input[0], node.input[1], weights)
        builder.nodes.append(node)
    kept = [stored for stored in model.graph.initializer if stored.name not in weights]
    model.graph.ClearField("initializer")
    model.graph.ClearField("node")
    model.graph.initializer.extend([*kept, *builder.initializers])
    model.graph.node.extend(builder.nodes)
    target.write_bytes(model.SerializeToString(deterministic=True))


class _Builder(GraphBuilder):
    """Collects all nodes, those that round among them."""

    def __init__(self, path: Path, ranges: dict[str, Range]) -> None:
        super().__init__(path)
        self._ranges = ranges
        self._done: set[str] = set()

    def rounded(self, source: str, name: str, weights: dict[str, np.ndarray]) -> list[str]:
        """The two inputs of a product in 8 bits."""
        weight = weights[name]
        if source not in self._done:
            self._done.add(source)
            self._round_input(source, len(weight))
        exact = weight * self._ranges[source].factors(len(weight))[:, None]
        scale = np.maximum(np.abs(exact).max(axis=0) / np.float32(LARGEST), SMALLEST)
        self.constant(f"{name}.int8", np.rint(exact / scale).astype(np.int8))
        self.floats(f"{name}.scale", scale)
        both = [f"{name}.int8", f"{name}.scale"]
        return [f"{source}.rounded", self.op("DequantizeLinear", both, f"{name}.rounded", axis=1)]

    def _round_input(self, source: str, width: int) -> None:
        found = self._ranges[source]
        divided = source
        if found.wide:
            factors = self.floats(f"{source}.factors", 1 / found.factors(width))
            divided = self.op("Mul", [source, factors], f"{source}.divided")
        scale = max(np.float32(found.largest - found.least) / np.float32(STEPS), SMALLEST)
        zero = np.asarray(np.rint(-found.least / scale), np.uint8)
        how = [self.floats(f"{source}.scale", scale), self.constant(f"{source}.zero", zero)]
        self.op("QuantizeLinear", [divided, *how], f"{source}.int8")
        self.op("DequantizeLinear", [f"{source}.int8", *how], f"{source}.rounded")
