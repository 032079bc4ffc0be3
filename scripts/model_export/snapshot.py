"""A local copy of a published model: its weights by our names, checked before any is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from default_package.choices import Pooling
from default_package.encoder import Encoder, tensor_shapes
from default_package.errors import PackageError
from default_package.json_file import read_json
from default_package.sparse_head import SparseHead
from default_package.weights import Config

from . import config, safetensors_file, torch_file
from .stored import Stored

WORD_TABLE = "embeddings.word_embeddings.weight"
EMBEDDINGS = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
}
LAYER_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
OLD_NORM_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""BERT's first releases were converted with these, and were never renamed."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
HEAD_FILE = "sparse_linear.pt"
HEAD_METHOD = "the model's own sparse_linear layer"


@dataclass(frozen=True)
class Snapshot:
    """Implements TensorSource over the files of a snapshot."""

    tensors: dict[str, Stored]
    words: Stored

    def tensor(self, name: str) -> np.ndarray:
        return self.tensors[name].read()

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.words.read(rows)


def open_encoder(folder: Path, pooling: Pooling | None) -> Encoder:
    """Finds the weights and checks the name and shape of each against config.json."""
    architecture = config.read(folder, pooling)
    sizes = architecture.sizes
    stored = _read_weights(folder)
    prefix = _prefix(folder, stored)
    _check_depth(stored, prefix, sizes)
    words = _take(stored, prefix + WORD_TABLE, (sizes.vocab_rows, sizes.hidden))
    tensors = {
        name: _take(stored, prefix + published_name(name), shape)
        for name, shape in tensor_shapes(sizes).items()
    }
    return Encoder(architecture, Snapshot(tensors, words), _read_head(folder, sizes.hidden))


def published_name(name: str) -> str:
    """`l3.q.w` -> `encoder.layer.3.attention.self.query.weight`."""
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    part, kind = name.rsplit(".", 1)
    suffix = {"w": "weight", "b": "bias"}[kind]
    if part in EMBEDDINGS:
        return f"{EMBEDDINGS[part]}.{suffix}"
    layer, part = part.split(".")
    return f"encoder.layer.{layer[1:]}.{LAYER_PARTS[part]}.{suffix}"


def _read_weights(folder: Path) -> dict[str, Stored]:
    """Of one file, or of the parts that its index names."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _read_parts(index)
    raise PackageError(f"{folder} has no weights: neither {' nor '.join(WEIGHT_FILES)}")


def _read_parts(index: Path) -> dict[str, Stored]:
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict):
        raise PackageError(f"{index} has no weight_map")
    stored: dict[str, Stored] = {}
    for name in sorted(set(map(str, parts.values()))):
        path = index.parent / name
        if Path(name).name != name or not path.is_file():
            raise PackageError(f"{index} names {name!r}, which is no file beside it")
        stored |= _read_file(path)
    return stored


def _read_file(path: Path) -> dict[str, Stored]:
    reader = safetensors_file if path.suffix == ".safetensors" else torch_file
    return reader.read(path)


def _prefix(folder: Path, stored: dict[str, Stored]) -> str:
    """What stands before every name: nothing, `bert.`, `roberta.` …"""
    found = [name.removesuffix(WORD_TABLE) for name in stored if name.endswith(WORD_TABLE)]
    if len(found) != 1:
        raise PackageError(f"the weights in {folder} have {len(found)} tables {WORD_TABLE}, not 1")
    return found[0]


def _check_depth(stored: dict[str, Stored], prefix: str, sizes: Config) -> None:
    """More layers than config.json tells would give another model without a word."""
    pattern = re.compile(re.escape(prefix) + r"encoder\.layer\.(\d+)\.")
    numbers = [int(found[1]) for name in stored if (found := pattern.match(name))]
    if max(numbers, default=-1) >= sizes.layers:
        raise PackageError(
            f"the weights have {max(numbers) + 1} layers, config.json says {sizes.layers}"
        )


def _take(
    stored: dict[str, Stored], name: str, shape: tuple[int, ...], where: str = "the weights"
) -> Stored:
    for new, old in OLD_NORM_NAMES.items():
        if name not in stored and name.endswith(new):
            name = name.removesuffix(new) + old
    if name not in stored:
        raise PackageError(f"{where} lack the tensor {name}")
    found = stored[name]
    if found.shape != shape:
        raise PackageError(
            f"tensor {name} of {where} has shape {list(found.shape)}, "
            f"config.json asks for {list(shape)}"
        )
    return found


def _read_head(folder: Path, hidden: int) -> SparseHead | None:
    path = folder / HEAD_FILE
    if not path.is_file():
        return None
    stored = torch_file.read(path)
    weight = _take(stored, "weight", (1, hidden), f"the numbers in {HEAD_FILE}").read()[0]
    bias = _take(stored, "bias", (1,), f"the numbers in {HEAD_FILE}").read()
    return SparseHead(weight.tolist(), float(bias[0]), HEAD_METHOD)


def cut_to_vocabulary(encoder: Encoder, vocab_size: int) -> Encoder:
    """The same encoder with the word table's first `vocab_size` rows: files pad theirs."""
    sizes = encoder.sizes
    if vocab_size > sizes.vocab_rows:
        raise PackageError(
            f"tokenizer.json has {vocab_size} tokens, the model knows only {sizes.vocab_rows}"
        )
    cut = replace(encoder.architecture, sizes=replace(sizes, vocab_rows=vocab_size))
    return replace(encoder, architecture=cut)
