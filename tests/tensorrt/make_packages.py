"""Makes the packages that the tests of plan building build from: one good, each other spoilt.

    python tests/tensorrt/make_packages.py OUT

Every package is whole as far as digests go: what is wrong is in the graph.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graph import RandomEncoder, Shape
from onnx import TensorProto, helper, numpy_helper

SMALL = Shape()


def small(**changes: Any) -> onnx.ModelProto:
    """The good graph with other sizes."""
    return RandomEncoder(Shape(**changes)).build()


def without_segments() -> onnx.ModelProto:
    """Which text a token belongs to is an input that nothing reads."""
    encoder = RandomEncoder(SMALL)
    encoder.uses_segments = False
    return encoder.build()


def renamed(model: onnx.ModelProto, old: str, new: str) -> onnx.ModelProto:
    """Another name for one input or output, everywhere."""
    for value in [*model.graph.input, *model.graph.output]:
        value.name = new if value.name == old else value.name
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = new if name == old else name
    return model


def unknown_operator() -> onnx.ModelProto:
    model = small()
    for node in model.graph.node:
        if node.name == "layer0.gelu":
            node.op_type = "Frobnicate"
            del node.attribute[:]
    return model


def fixed_shape() -> onnx.ModelProto:
    """Exported without dynamic axes."""
    model = small()
    sizes = {"rows": 1, "spans": 2, "length": 16}
    for value in model.graph.input:
        for axis in value.type.tensor_type.shape.dim:
            axis.dim_value = sizes[axis.dim_param]
    return model


def additional_output() -> onnx.ModelProto:
    model = small()
    kind = TensorProto.FLOAT
    shape = ["rows", "length", SMALL.hidden]
    model.graph.output.append(helper.make_tensor_value_info("hidden.f32", kind, shape))
    return model


def two_axes() -> onnx.ModelProto:
    """One dense vector a row, as packages had it before rows held several texts."""
    model = renamed(small(), "dense", "dense.spans")
    del model.graph.output[0]
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(0, np.int64), "span"))
    model.graph.node.append(helper.make_node("Gather", ["dense.spans", "span"], ["dense"], axis=1))
    shape = ["rows", SMALL.hidden]
    model.graph.output.append(helper.make_tensor_value_info("dense", TensorProto.FLOAT, shape))
    return model


def empty_graph() -> onnx.ModelProto:
    """Inputs, no nodes."""
    model = small()
    del model.graph.node[:]
    del model.graph.output[:]
    del model.graph.initializer[:]
    return model


def other_hidden_size() -> onnx.ModelProto:
    return small(hidden=32)


def manifest(files: dict[str, Any]) -> dict[str, Any]:
    """What `Shape()` is, in the manifest's words."""
    about = {
        "file": "model.fp8.onnx",
        "method": "one scale for all",
        "tolerances": {"dense_cosine_min": 0.9, "sparse_max_abs": 1.0},
        "retrieval": [],
    }
    return {
        "format_version": 2,
        "fp8": about if about["file"] in files else None,
        "model_id": "random-test",
        "revision": "1",
        "license": "Apache-2.0",
        "hidden_size": SMALL.hidden,
        "vocab_size": SMALL.vocabulary,
        "max_input_tokens": SMALL.positions,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "unk_token_id": 3,
        "pooling": "cls",
        "sparse": {"dropped_token_ids": [0, 1, 2, 3]},
        "outputs": {"dense": "float32", "token_weights": "float32"},
        "files": files,
        "plans": [],
        "canary": {
            "text": "a",
            "token_ids": [0, 5, 2],
            "dense": [0.125] * SMALL.hidden,
            "sparse": [[5, 0.25]],
            "tolerances": {"dense_cosine_min": 0.9, "sparse_max_abs": 1.0},
        },
    }


class Package:
    """One folder that is filled."""

    def __init__(self, out: Path, name: str) -> None:
        self.folder = out / name
        self.folder.mkdir(parents=True)
        self.files: dict[str, bytes] = {"tokenizer.json": b"{}"}

    def put(self, content: bytes, name: str = "model.onnx") -> Package:
        self.files[name] = content
        return self

    def finish(self) -> None:
        entries = {}
        for name, content in self.files.items():
            (self.folder / name).write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            entries[name] = {"sha256": digest, "bytes": len(content)}
        text = json.dumps(manifest(entries), indent=2) + "\n"
        (self.folder / "manifest.json").write_text(text)


def with_external_data(out: Path, name: str, *, complete: bool) -> None:
    """Weights in a file of their own, which may be missing."""
    model = small()
    weights = b""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.nbytes < 1024:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {
            "location": "model.onnx.data",
            "offset": len(weights),
            "length": array.nbytes,
        }.items():
            tensor.external_data.add(key=key, value=str(value))
        weights += array.tobytes() + b"\0" * (-array.nbytes % 64)
    package = Package(out, name).put(model.SerializeToString())
    if complete:
        package.put(weights, "model.onnx.data")
    package.finish()


def short_positions() -> onnx.ModelProto:
    """A table of positions that is shorter than the manifest says."""
    return small(positions=SMALL.positions // 2)


GRAPHS: dict[str, Callable[[], onnx.ModelProto]] = {
    "good": small,
    "good_bf16": lambda: small(element=TensorProto.BFLOAT16),
    "good_f32": lambda: small(element=TensorProto.FLOAT),
    "narrow_heads": lambda: small(heads=SMALL.hidden),
    "wrong_input_name": lambda: renamed(small(), "input_ids", "ids"),
    "wrong_output_name": lambda: renamed(small(), "dense", "sentence_embedding"),
    "wrong_type": lambda: small(ids_type=TensorProto.INT64),
    "wrong_columns": other_hidden_size,
    "two_axes": two_axes,
    "fixed_shape": fixed_shape,
    "additional_output": additional_output,
    "lost_segments": without_segments,
    "unknown_operator": unknown_operator,
    "no_nodes": empty_graph,
    "short_positions": short_positions,
    "small_vocabulary": lambda: small(vocabulary=SMALL.vocabulary - 100),
}


def main(out: Path) -> None:
    for name, make in GRAPHS.items():
        Package(out, name).put(make().SerializeToString(deterministic=True)).finish()
    whole = small().SerializeToString(deterministic=True)
    Package(out, "truncated").put(whole[: len(whole) // 2]).finish()
    Package(out, "empty").put(b"").finish()
    Package(out, "no_onnx").put(b"this is a text, no graph\n" * 100).finish()
    brain = small(element=TensorProto.BFLOAT16).SerializeToString()
    both = Package(out, "half_and_f32").put(small(element=TensorProto.FLOAT).SerializeToString())
    both.put(whole, "model.fp16.onnx").put(brain, "model.bf16.onnx")
    both.put(small(fp8=True).SerializeToString(), "model.fp8.onnx").finish()
    with_external_data(out, "external_data", complete=True)
    with_external_data(out, "missing_data", complete=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
