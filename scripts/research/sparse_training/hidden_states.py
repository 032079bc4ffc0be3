"""The encoder's last hidden states, computed once with OpenVINO and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import openvino
from tokenizers import Tokenizer

from default_package import manifest, rows, sparse_head
from default_package.command import say
from default_package.errors import PackageError
from default_package.runtime import Runtime

HEAD_NODE = "sparse.product"
"""The node of the package's graph whose first input is the last hidden state."""
HIDDEN_OUTPUT = "hidden"
SAY_EVERY = 200
"""Batches between two progress lines."""


@dataclass(frozen=True)
class Package:
    """What is read of a model package."""

    root: Path
    model: str
    prompts: dict[str, str]
    dropped: frozenset[int]
    tokens_max: int
    pad: int
    pooling: str

    @classmethod
    def load(cls, root: Path) -> Package:
        """Reads the manifest."""
        stored = manifest.read(root)
        # A package without a head has none.
        dropped = frozenset((stored["sparse"] or {}).get("dropped_token_ids", ()))
        names = ("max_input_tokens", "pad_token_id", "pooling")
        numbers = (stored[name] for name in names)
        return cls(root, stored["model_id"], stored["prompts"], dropped, *numbers)

    def tokenizer(self) -> Tokenizer:
        """The package's tokenizer, without padding or truncation."""
        return Tokenizer.from_file(str(self.root / "tokenizer.json"))

    def surprisal(self) -> np.ndarray:
        """f32 `[vocabulary]`: of each token id, as `sparse_head.surprisal` has it."""
        stored = json.loads((self.root / "tokenizer.json").read_text(encoding="utf-8"))
        return sparse_head.surprisal([score for _, score in stored["model"]["vocab"]])

    def encode(self, texts: list[str], kind: str) -> tuple[list[list[int]], int]:
        """Token ids behind the prompt, cut as the server cuts; and the text's first position."""
        tokenizer, prompt = self.tokenizer(), self.prompts.get(kind, "")
        first = len(tokenizer.encode(prompt).ids) - 1
        encoded = tokenizer.encode_batch([prompt + text for text in texts])
        rows = [list(one.ids) for one in encoded]
        limit = self.tokens_max
        return [row if len(row) <= limit else [*row[: limit - 1], row[-1]] for row in rows], first


@dataclass(frozen=True)
class States:
    """Positions of many texts, one text after the other; dropped ids are left out."""

    ids: np.ndarray
    """i32 `[positions]`."""
    hidden: np.ndarray
    """f16 `[positions, width]`."""
    offsets: np.ndarray
    """i64 `[texts + 1]`: text i has the positions offsets[i] to offsets[i + 1]."""
    dense: np.ndarray
    """f32 `[texts, width]`."""
    prompt: int
    """How many positions at the head of each text are the prompt's."""

    def tokens(self, text: int) -> tuple[int, ...]:
        """Token ids of one text in order, without its prompt."""
        return tuple(self.ids[self.offsets[text] + self.prompt : self.offsets[text + 1]].tolist())

    def __len__(self) -> int:
        """How many texts."""
        return len(self.offsets) - 1


def cached(package: Package, texts: list[str], kind: str, precision: str, cache: Path) -> States:
    """From the cache folder, or computed and put there."""
    key = hashlib.sha256(b"with prompts")
    for part in (_file_digest(package), kind, precision, *texts):
        key.update(part.encode() + b"\0")
    folder = cache / "states" / f"{kind}-{precision}-{key.hexdigest()[:20]}"
    if not folder.exists():
        part = folder.with_name(f".{folder.name}.{os.getpid()}")
        part.mkdir(parents=True)
        try:
            _compute(package, texts, kind, precision, part)
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    names = ("ids", "hidden", "offsets", "dense")
    arrays = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
    return States(*arrays, prompt=package.encode([], kind)[1] - 1)


def _file_digest(package: Package) -> str:
    stored = manifest.read(package.root)
    # The head is part of the graph's file, but the hidden states do not depend on it.
    graph = onnx.load(str(package.root / "model.onnx")).graph
    known = hashlib.sha256(stored["files"]["tokenizer.json"]["sha256"].encode())
    for tensor in graph.initializer:
        if not tensor.name.startswith("sparse."):
            known.update(tensor.raw_data)
    return known.hexdigest()


def with_hidden_output(path: Path) -> onnx.ModelProto:
    """The package's graph with its last hidden state as a third output."""
    model = onnx.load(str(path))
    nodes = [node for node in model.graph.node if node.name == HEAD_NODE]
    if not nodes:
        raise PackageError(f"{path} has no node {HEAD_NODE}: it was not made by this repository")
    shape = ["rows", "length", "width"]
    value = onnx.helper.make_tensor_value_info(HIDDEN_OUTPUT, onnx.TensorProto.FLOAT, shape)
    copy = onnx.helper.make_node("Identity", [nodes[0].input[0]], [HIDDEN_OUTPUT])
    model.graph.node.append(copy)
    model.graph.output.append(value)
    return model


def resolve_precision(asked: str) -> str:
    """`auto` is what the server would use: bf16 where the CPU computes in it."""
    if asked != "auto":
        return asked
    return "bf16" if Runtime.supports("bf16") else "f32"


def _compute(package: Package, texts: list[str], kind: str, precision: str, into: Path) -> None:
    sequences, _ = package.encode(texts, kind)
    keep = [
        [at for at in range(1, len(one) - 1) if one[at] not in package.dropped] for one in sequences
    ]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in keep])]).astype(np.int64)
    core = openvino.Core()
    model = core.read_model(with_hidden_output(package.root / "model.onnx").SerializeToString())
    settings = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", settings)
    width = compiled.output(HIDDEN_OUTPUT).partial_shape[2].get_length()
    total = int(offsets[-1])
    hidden = np.lib.format.open_memmap(
        into / "hidden.npy", mode="w+", dtype=np.float16, shape=(total, width)
    )
    dense = np.zeros((len(sequences), width), np.float32)
    for number, batch in enumerate(rows.batches(sequences, package.pad, package.pooling)):
        result = compiled(batch.inputs)
        for at in batch.places:
            states = result[HIDDEN_OUTPUT][at.row, at.tokens]
            hidden[offsets[at.text] : offsets[at.text + 1]] = states[keep[at.text]]
            dense[at.text] = result["dense"][at.row, at.segment]
        if number % SAY_EVERY == 0:
            say(f"hidden states of {kind} texts, batch {number}")
    hidden.flush()
    kept = [one[at] for one, places in zip(sequences, keep, strict=True) for at in places]
    np.save(into / "ids.npy", np.asarray(kept, np.int32))
    np.save(into / "offsets.npy", offsets)
    np.save(into / "dense.npy", dense)
