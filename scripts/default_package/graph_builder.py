"""Collects what an ONNX graph is made of, nodes and numbers, and writes it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto, external_data_helper, helper, numpy_helper

from .errors import PackageError

OPSET = 20  # the first with `Gelu` as one operator; `LayerNormalization` is one since 17
IR_VERSION = 9  # what ONNX 1.15 wrote with opset 20: every reader of the opset accepts it
PRODUCER = "duovec"  # tells our graphs from others
TENSOR_BYTES_MIN = 1 << 16
"""Smaller numbers stay in the graph: shapes and axes must be there for its readers, and norms and
biases are not worth a page of their own."""
ALIGNMENT_BYTES = 4096  # every tensor starts a page, so that readers can map it


class GraphBuilder:
    """Collects the nodes and initializers, in f32, of the graph that `save` puts at `path`; other
    methods return the name of what they made. Large numbers are written to a file beside it as they
    come, and not held. OpenVINO maps that file: its pages are shared by all models and processes
    that read it. A graph with large tensors inside is copied into the memory of each process, and
    one above 2 GB cannot be read at all."""

    def __init__(self, path: Path) -> None:
        self.path, self._beside = path, path.with_name(f"{path.name}.data")
        self._beside.unlink(missing_ok=True)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._numbers: dict[str, tuple[object, ...]] = {}

    def save(self, inputs: Iterable[ValueInfoProto], outputs: Iterable[ValueInfoProto]) -> None:
        """The model around the collected nodes; it is checked with what lies beside it."""
        graph = helper.make_graph(self.nodes, "encoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        about = {"producer_name": PRODUCER, "ir_version": IR_VERSION}
        model = helper.make_model(graph, opset_imports=opsets, **about)
        # The same model gives the same bytes.
        self.path.write_bytes(model.SerializeToString(deterministic=True))
        onnx.checker.check_model(str(self.path), full_check=True)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Stores `value` under `name` as it is."""
        if not np.issubdtype(value.dtype, np.integer) and not np.isfinite(value).all():
            # np.float16 makes an infinity of what is above its largest number.
            raise PackageError(f"tensor {name} has numbers that {value.dtype} cannot hold")
        value = np.asarray(value, order="C")
        is_large = value.nbytes >= TENSOR_BYTES_MIN
        found = numpy_helper.from_array(np.empty(0, value.dtype) if is_large else value, name)
        if is_large:
            with self._beside.open("ab") as file:
                start = -(-file.tell() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                file.write(bytes(start - file.tell()))
                # bf16 is no type of numpy's own: it has no buffer but that of its bytes.
                file.write(value.view(np.uint8).data)
            found.dims[:] = value.shape
            place = {"location": self._beside.name, "offset": start, "length": value.nbytes}
            external_data_helper.set_external_data(found, **place)
            found.ClearField("raw_data")
        self.initializers.append(found)
        return name

    def floats(self, name: str, value: np.ndarray | float) -> str:
        """Stores `value` as f32."""
        return self.constant(name, np.asarray(value, np.float32))

    def number(self, name: str, value: np.ndarray | list[int] | float) -> str:
        """Stores floats as f32, one whole number as int32, the type of positions and ids, and a
        list as 1-d int64: axes, shapes and slice bounds. What has the name already stays, and
        ValueError says that it is another value."""
        keep, kind = self.constant, np.int32 if isinstance(value, int) else np.int64
        if not isinstance(value, int | list):
            keep, kind = self.floats, np.float32
        stored = np.asarray(value, kind)
        # Not the value itself, which may be large.
        told = (stored.dtype, stored.shape, hash(stored.tobytes()))
        if name not in self._numbers:
            self._numbers[name] = told
            return keep(name, stored)
        if self._numbers[name] != told:
            raise ValueError(f"the graph has another value called {name}")
        return name

    def op(
        self, kind: str, inputs: list[Any], output: str, more: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Adds a node, which is named after its first output; few have `more` of them. An input is
        a name, or a name and the `number` that is stored under it."""
        names = [one if isinstance(one, str) else self.number(*one) for one in inputs]
        outputs = [output, *more]
        self.nodes.append(helper.make_node(kind, names, outputs, name=output, **attributes))
        return output

    def lookup(self, table: np.ndarray, places: str, output: str) -> str:
        """Rows of `table`, which is f32 or f16, at `places`: f32 `[rows, length, width]`. An f16
        table is cast before the rows are taken, since OpenVINO then leaves it where it is, in f16,
        for all models that are compiled of the graph, and casts the rows. A cast behind the lookup
        makes it hold a copy of the table in f32 for each compiled model."""
        name = self.constant(f"{output}.table", table)
        if table.dtype == np.float16:
            name = self.op("Cast", [name], f"{output}.table.single", to=TensorProto.FLOAT)
        return self.op("Gather", [name, places], output)

    def linear(self, source: str, name: str, weight: np.ndarray, bias: np.ndarray | None) -> str:
        """`source @ weight.T + bias` for `weight` `[out, in]`."""
        inputs, product = [source, self.floats(f"{name}.weight", weight.T)], f"{name}.product"
        if bias is None:
            return self.op("MatMul", inputs, name)
        self.op("MatMul", inputs, product)
        return self.op("Add", [product, self.floats(f"{name}.bias", bias)], name)
