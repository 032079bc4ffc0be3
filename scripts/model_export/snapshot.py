"""A local copy of a published model: what it says of its network, and its weights by our names.

They are checked before any is read.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from default_package.choices import Pooling
from default_package.encoder import Architecture, Encoder, tensor_shapes
from default_package.errors import PackageError
from default_package.json_file import read_json
from default_package.sparse_head import SparseHead
from families.family import Family

from . import dense, torch_file
from .configuration import Configuration
from .stored import Rows, Stored, read_safetensors

WORD_TABLE = "emb.word"
OLD_NORM_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""BERT's first releases were converted with these, and were never renamed."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
HEAD_FILE = "sparse_linear.pt"
HEAD_METHOD = "the model's own sparse_linear layer"


@dataclass(frozen=True)
class Shared:
    """Implements Stored: some rows of a tensor that several of ours share."""

    whole: Stored
    start: int
    shape: tuple[int, ...]

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        return self.whole.read(slice(self.start, self.start + self.shape[0]))[rows]


class Held:
    """Implements Stored: numbers in memory."""

    def __init__(self, value: np.ndarray) -> None:
        self._value, self.shape = value, value.shape

    def read(self, rows: Rows = ...) -> np.ndarray:
        """These rows as f32; all of them by default."""
        return self._value[rows]


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
    architecture = read_config(folder, pooling)
    sizes, family = architecture.sizes, architecture.family
    stored = _read_weights(folder)
    prefix = _prefix(folder, stored, published_name(family, WORD_TABLE)[0])
    _check_depth(stored, prefix, architecture)

    shapes = {WORD_TABLE: (sizes.vocab_rows, sizes.hidden)} | tensor_shapes(architecture)

    def take(name: str) -> Stored:
        published, sharers = published_name(family, name)
        rows = [shapes[sharer][0] for sharer in sharers]
        found = _take(stored, prefix + published, (sum(rows), *shapes[name][1:]))
        start = sum(rows[: sharers.index(name)])
        return found if len(rows) == 1 else Shared(found, start, shapes[name])

    words = take(WORD_TABLE)
    tensors: dict[str, Stored] = {name: take(name) for name in tensor_shapes(architecture)}
    product = dense.read(folder, sizes.hidden)
    if product is not None:
        architecture = replace(architecture, dense_width=len(product))
        tensors["dense.w"] = Held(product)
    head = _read_head(folder, sizes.hidden) or _head_among(stored, architecture)
    return Encoder(architecture, Snapshot(tensors, words), head)


def published_name(family: Family, name: str) -> tuple[str, list[str]]:
    """`l3.q.w` -> `encoder.layer.3.attention.self.query.weight`, and our names that share it."""
    layer, part, kind = re.fullmatch(r"(l\d+\.)?(.+?)(\.[wb])?", name).groups("")
    [ours] = [ours for ours in family.published if part in ours.split("+")]
    published = family.published[ours].replace("#", layer[1:-1])
    sharers = [f"{layer}{sharer}{kind}" for sharer in ours.split("+")]
    return f"{published}.{'bias' if kind == '.b' else 'weight'}", sharers


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
    read = read_safetensors if path.suffix == ".safetensors" else torch_file.read
    return read(path)


def _prefix(folder: Path, stored: dict[str, Stored], words: str) -> str:
    """What stands before every name, as it does before `words`: nothing, `bert.`, `roberta.` …"""
    found = [name.removesuffix(words) for name in stored if name.endswith(words)]
    if len(found) != 1:
        raise PackageError(f"the weights in {folder} have {len(found)} tables {words}, not 1")
    return found[0]


def _check_depth(stored: dict[str, Stored], prefix: str, architecture: Architecture) -> None:
    """More layers than config.json tells would give another model without a word."""
    before, _, _ = architecture.family.published["fo"].partition("#")
    pattern = re.compile(re.escape(prefix + before) + r"(\d+)\.")
    numbers = [int(found[1]) for name in stored if (found := pattern.match(name))]
    layers = architecture.sizes.layers
    if max(numbers, default=-1) >= layers:
        raise PackageError(f"the weights have {max(numbers) + 1} layers, config.json says {layers}")


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


def _head_among(stored: dict[str, Stored], architecture: Architecture) -> SparseHead | None:
    """The head that a family keeps with its other weights; classifiers of texts are none."""
    name = architecture.family.head
    if name is None or f"{name}.weight" not in stored:
        return None
    weight = _take(stored, f"{name}.weight", (1, architecture.sizes.hidden)).read()[0]
    bias = _take(stored, f"{name}.bias", (1,)).read()
    return SparseHead(weight.tolist(), float(bias[0]), f"the model's own {name} layer")


def cut_to_vocabulary(encoder: Encoder, vocab_size: int) -> Encoder:
    """The same encoder with the word table's first `vocab_size` rows: files pad theirs."""
    sizes = encoder.sizes
    if vocab_size > sizes.vocab_rows:
        raise PackageError(
            f"tokenizer.json has {vocab_size} tokens, the model knows only {sizes.vocab_rows}"
        )
    cut = replace(encoder.architecture, sizes=replace(sizes, vocab_rows=vocab_size))
    return replace(encoder, architecture=cut)


KNOWN_MODULES = {"Transformer", "Pooling", "Dense", "Normalize"}


def read_config(folder: Path, pooling: Pooling | None) -> Architecture:
    """The snapshot's architecture; `pooling` wins over what the snapshot says."""
    stored = Configuration(folder / "config.json")
    _check_modules(folder)
    sizes = stored.sizes()
    found = Architecture(
        sizes=sizes,
        family=stored.family,
        pooling=pooling or _pooling(folder),
        pad_token_id=stored.padding(),
        attentions=stored.attentions(sizes),
    )
    stored.check_all_is_known()
    return found


def _pooling(folder: Path) -> Pooling:
    """What sentence-transformers would do; CLS, as BGE does, when the snapshot does not say."""
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return Pooling.CLS
    stored = read_json(path)
    prefix = "pooling_mode_"
    modes = {key.removeprefix(prefix) for key, on in stored.items() if on is True}
    known = {"cls_token": Pooling.CLS, "mean_tokens": Pooling.MEAN, "lasttoken": Pooling.LAST}
    wanted = [known.get(mode) for mode in modes if f"{prefix}{mode}" in stored]
    if len(wanted) != 1 or wanted[0] is None:
        raise PackageError(f"{path} asks for {sorted(modes)}: only cls or mean can be exported")
    return wanted[0]


def _check_modules(folder: Path) -> None:
    """A layer behind the pooling would silently be lost."""
    path = folder / "modules.json"
    if not path.exists():
        return
    try:
        kinds = {entry["type"].split(".")[-1] for entry in json.loads(path.read_text("utf-8"))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PackageError(f"{path} is not a list of modules") from error
    if kinds - KNOWN_MODULES:
        raise PackageError(f"{path} has modules {sorted(kinds - KNOWN_MODULES)}: not supported")
