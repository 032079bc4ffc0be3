"""Makes the packages that the tests of plan building build from: one good, each other spoilt.

    python tests/tensorrt/make_packages.py OUT

The good ones are of models with random weights. Every package is whole as far as digests go: what
is wrong is in the graph.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/tests")]

import export_snapshots as snapshots  # noqa: E402

from default_package import command, manifest  # noqa: E402
from default_package.encoder import Words  # noqa: E402
from families import BERT  # noqa: E402
from quantization import fp8  # noqa: E402

HIDDEN, TOKENS_MAX, TOKENS = 64, 128, 443
SIZES = replace(snapshots.SIZES, hidden=HIDDEN, ffn=256, positions=TOKENS_MAX + 2)
MODEL = "model.onnx"


def export(*words: str | Path) -> None:
    """What scripts/export_onnx.py does; the numbers are not looked at."""
    command = [sys.executable, ROOT / "scripts/export_onnx.py", *words]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def random_package(
    folder: Path, precision: str, *flags: str, hidden: int = HIDDEN, **model: Any
) -> onnx.ModelProto:
    """A good package; its graph with all numbers inside."""
    with TemporaryDirectory() as written:
        snapshots.write(Path(written), sizes=replace(SIZES, hidden=hidden), **model)
        words = ["--model", written, "--precision", precision, "--skip-verify", "--out", folder]
        export(*words, *flags)
    return onnx.load(folder / MODEL)


def vouch(folder: Path) -> None:
    """Writes the digests of what is in the folder into its manifest."""
    content = manifest.read(folder)
    others = (manifest.NAME, command.PACKAGE_LOCK)
    paths = sorted(path for path in folder.iterdir() if path.name not in others)
    content["files"] = {path.name: manifest.entry(path) for path in paths}
    manifest.save(content, folder / manifest.NAME)


def spoilt(good: Path, name: str, graph: bytes) -> None:
    """The good package with another graph."""
    folder = good.with_name(name)
    shutil.copytree(good, folder)
    (folder / MODEL).write_bytes(graph)
    vouch(folder)


def rename(old: str, new: str, model: onnx.ModelProto) -> None:
    """Another name for one input or output, everywhere."""
    for value in [*model.graph.input, *model.graph.output]:
        value.name = new if value.name == old else value.name
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]


def read_positions_for_segments(model: onnx.ModelProto) -> None:
    """Which text a token belongs to is an input that nothing reads."""
    for node in model.graph.node:
        node.input[:] = ["positions" if name == "segments" else name for name in node.input]


def take_64_bit_ids(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64


def use_an_unknown_operator(model: onnx.ModelProto) -> None:
    [node] = [node for node in model.graph.node if node.name == "layer0.ffn.gelu"]
    node.op_type = "Frobnicate"
    del node.attribute[:]


def fix_the_shape(model: onnx.ModelProto) -> None:
    """Exported without dynamic axes."""
    sizes = {"rows": 1, "spans": 2, "length": 16}
    for value in model.graph.input:
        for axis in value.type.tensor_type.shape.dim:
            axis.dim_value = sizes[axis.dim_param]


def give_another_output(model: onnx.ModelProto) -> None:
    shape = ["rows", "length", HIDDEN]
    name = "embedding.norm"
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))


def give_one_vector_a_row(model: onnx.ModelProto) -> None:
    """As packages had it before rows held several texts."""
    rename("dense", "dense.spans", model)
    del model.graph.output[0]
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(0, np.int64), "span"))
    model.graph.node.append(helper.make_node("Gather", ["dense.spans", "span"], ["dense"], axis=1))
    shape = ["rows", HIDDEN]
    model.graph.output.append(helper.make_tensor_value_info("dense", TensorProto.FLOAT, shape))


def be_empty(model: onnx.ModelProto) -> None:
    """Inputs, no nodes."""
    for part in ("node", "output", "initializer"):
        model.graph.ClearField(part)


def change(name: str, edit: Callable[[np.ndarray], np.ndarray], model: onnx.ModelProto) -> None:
    """Other numbers in one place."""
    [stored] = [stored for stored in model.graph.initializer if stored.name == name]
    stored.CopyFrom(numpy_helper.from_array(edit(numpy_helper.to_array(stored)), name))


FAULTS: dict[str, Callable[[onnx.ModelProto], None]] = {
    "narrow_heads": partial(change, "heads.split", lambda _: np.asarray([0, 0, HIDDEN, 1])),
    "wrong_input_name": partial(rename, "input_ids", "ids"),
    "wrong_output_name": partial(rename, "dense", "sentence_embedding"),
    "wrong_type": take_64_bit_ids,
    "two_axes": give_one_vector_a_row,
    "fixed_shape": fix_the_shape,
    "additional_output": give_another_output,
    "lost_segments": read_positions_for_segments,
    "unknown_operator": use_an_unknown_operator,
    "no_nodes": be_empty,
    "short_positions": partial(change, "position.table", lambda table: table[: TOKENS_MAX // 2]),
    "small_vocabulary": partial(change, "word.table", lambda table: table[: TOKENS - 43]),
}


def add_other_graphs(single: Path, folder: Path) -> None:
    """A package with a graph of each precision."""
    shutil.copytree(single, folder)
    for precision in ("fp16", "bf16"):
        export(f"--{precision}-of-package", folder)
    fp8.write(folder / MODEL, folder / fp8.GRAPH, fp8.calibrate(folder / MODEL, [[0, 5, 6, 2]]))
    content = manifest.read(folder)
    about = {"file": fp8.GRAPH, "method": fp8.METHOD, "tolerances": fp8.TOLERANCES}
    manifest.save(content | {fp8.FIELD: about | {"retrieval": []}}, folder / manifest.NAME)
    vouch(folder)


def main(out: Path) -> None:
    good = out / "good"
    model = random_package(good, "fp16")
    for name, fault in FAULTS.items():
        wrong = onnx.ModelProto.FromString(model.SerializeToString())
        fault(wrong)
        spoilt(good, name, wrong.SerializeToString())
    whole = model.SerializeToString()
    for name, graph in {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "no_onnx": b"this is a text, no graph\n" * 100,
        "wrong_columns": random_package(out / "narrow", "fp16", hidden=32).SerializeToString(),
    }.items():
        spoilt(good, name, graph)
    random_package(out / "good_bf16", "bf16")
    random_package(out / "good_f32", "fp32")
    random_package(out / "with_tokens", "fp16", "--token-vectors", token_width=HIDDEN)
    for precision in ("fp32", "fp16", "bf16"):
        flags = ["--pooling", "splade"]
        random_package(
            out / f"words_{precision}", precision, *flags, family=BERT, words=Words(TOKENS)
        )
    add_other_graphs(out / "good_f32", out / "half_and_f32")
    # Weights in a file of their own, which may be missing.
    external = out / "external_data"
    shutil.copytree(good, external)
    path = external / MODEL
    data = {"save_as_external_data": True, "location": f"{MODEL}.data", "size_threshold": 1024}
    onnx.save_model(model, path, **data)
    shutil.copytree(external, out / "missing_data")
    (out / "missing_data" / f"{MODEL}.data").unlink()
    vouch(external)
    vouch(out / "missing_data")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
