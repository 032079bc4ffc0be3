"""Small published models, written as others write them, without PyTorch."""

from __future__ import annotations

import json
import shutil
import string
import struct
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from default_package import vocabulary
from default_package.choices import Pooling
from default_package.encoder import Architecture, Config, Encoder, Words, tensor_shapes
from families import BERT, XLM_ROBERTA, Family
from fixtures import FAMILIES, TINY, random_encoder
from model_export import sentence, snapshot, stored
from model_export.snapshot import published_name
from model_export.stored import FLOATS

TOKENIZER = TINY / "tokenizer.json"
ROWS = 450
"""More than the tokenizer has tokens, as published tables are padded."""
SIZES = Config(
    hidden=16,
    layers=2,
    heads=2,
    ffn=24,
    vocab_rows=ROWS,
    positions=40,
    type_rows=2,
    layer_norm_epsilon=1e-5,
)

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published_configurations.json").read_text()
)
"""config.json of families as their authors write it, which is not always as transformers does."""


@dataclass(frozen=True)
class Written:
    """A snapshot and the encoder it was written from."""

    folder: Path
    encoder: Encoder


def architecture(family: Family = XLM_ROBERTA, pooling: Pooling = Pooling.CLS) -> Architecture:
    pad = 1 if family is XLM_ROBERTA else 0
    return Architecture(SIZES, family, pooling, pad)


def write(
    folder: Path,
    family: Family = XLM_ROBERTA,
    *,
    container: str = "safetensors",
    kind: str = "F32",
    prefix: str = "",
    with_head: bool = True,
    pooling: Pooling = Pooling.CLS,
    sizes: Config = SIZES,
    token_width: int | None = None,
    words: Words | None = None,
    seed: int = 7,
) -> Written:
    """A whole snapshot; every number can be held exactly by f16 and bf16.

    One of `words` needs --pooling splade.
    """
    folder.mkdir(parents=True, exist_ok=True)
    network = architecture(family, pooling)
    network = replace(network, sizes=sizes, token_width=token_width, words=words)
    exact = random_encoder.make(network, seed, with_head=with_head)
    read = exact.read
    encoder = replace(exact, read=lambda name, rows: rounded(read(name, rows)))
    tensors = published(encoder, prefix)
    if container == "safetensors":
        write_safetensors(folder / "model.safetensors", tensors, kind)
    else:
        write_torch(folder / "pytorch_model.bin", tensors, kind)
    if encoder.head is not None:
        head = {
            "weight": np.asarray([encoder.head.weights], np.float32),
            "bias": np.asarray([encoder.head.bias], np.float32),
        }
        write_torch(folder / "sparse_linear.pt", head, "F32")
    if token_width:
        parts = {"weight": encoder.tensor("tok.w"), "bias": encoder.tensor("tok.b")}
        write_torch(folder / snapshot.COLBERT_FILE, parts, "F32")
    write_config(folder, encoder.architecture)
    if not words:
        write_modules(folder, pooling)
    if family is BERT:
        put(folder / "tokenizer.json", wordpiece())
    else:
        shutil.copy(TOKENIZER, folder / "tokenizer.json")
    return Written(folder, encoder)


def rounded(value: np.ndarray) -> np.ndarray:
    """To what bf16 holds, and f16 too at these sizes."""
    return np.round(value * 128.0).clip(-255, 255).astype(np.float32) / np.float32(128.0)


def published(encoder: Encoder, prefix: str) -> dict[str, np.ndarray]:
    family = encoder.architecture.family
    names = tensor_shapes(replace(encoder.architecture, token_width=None))
    tensors = {
        prefix + published_name(family, n)[0].removeprefix("*"): encoder.tensor(n) for n in names
    }
    tensors["pooler.dense.bias"] = np.zeros(encoder.sizes.hidden, np.float32)
    return tensors


def write_config(folder: Path, what: Architecture) -> None:
    sizes = what.sizes
    content = {
        "model_type": what.family.model_types[0],
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "vocab_size": sizes.vocab_rows,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": sizes.type_rows,
        "layer_norm_eps": sizes.layer_norm_epsilon,
        "pad_token_id": what.pad_token_id,
        "hidden_act": "gelu",
    }
    put(folder / "config.json", content)


def write_modules(folder: Path, pooling: Pooling, *more: str, **keys: Any) -> None:
    """modules.json with these modules, and the pooling's file with these keys."""
    kinds = ["Transformer", "Pooling", *(more or ["Normalize"])]
    paths = ["", *(f"{at}_{kind}" for at, kind in enumerate(kinds[1:], 1))]
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in zip(kinds, paths, strict=True)
    ]
    put(folder / "modules.json", modules)
    name = {Pooling.CLS: "cls_token", Pooling.MEAN: "mean_tokens"}[pooling]
    keys = {"word_embedding_dimension": 16, f"pooling_mode_{name}": True} | keys
    (folder / "1_Pooling").mkdir(exist_ok=True)
    put(folder / "1_Pooling" / "config.json", keys)


def copied(name: str, folder: Path) -> Path:
    """That of tests/fixtures/families below `folder`, with a tokenizer."""
    found = shutil.copytree(FAMILIES / name, folder / "model")
    if not (tokenizer := found / "tokenizer.json").exists():
        shutil.copy(TOKENIZER, tokenizer)
    return found


def headers(folder: Path) -> dict[str, SimpleNamespace]:
    """Shapes and types of a model's tensors, as the hub tells them."""
    whole = stored.read(folder / "model.safetensors")
    return {n: SimpleNamespace(shape=list(t.shape), dtype=t.dtype) for n, t in whole.items()}


def put(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def change(path: Path, **keys: Any) -> None:
    """Sets keys of a JSON file, which is made where it is not there."""
    put(path, (json.loads(path.read_text()) if path.exists() else {}) | keys)


def open_encoder(folder: Path, pooling: Pooling | None = None) -> Encoder:
    said = sentence.read(folder, pooling)
    said = replace(said, tokens=(folder / snapshot.COLBERT_FILE).exists())
    encoder = snapshot.open_encoder(folder, said)
    tokenizer = folder / snapshot.TOKENIZER_FILE
    if said.scorer is None or not tokenizer.exists():
        return encoder
    words = vocabulary.read(tokenizer, encoder.architecture.pad_token_id)
    return snapshot.fitted(encoder, words, pairs=folder)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], kind: str = "F32") -> None:
    stored = {name: value.astype(FLOATS[kind]) for name, value in tensors.items()}
    # Many files have one.
    ids = {"embeddings.position_ids": np.zeros(1, np.int64)}
    save_file(stored | ids, path)


class Pickle:
    """Writes the opcodes that `torch.save` writes (protocol 2)."""

    def __init__(self) -> None:
        self.data = b"\x80\x02"

    def text(self, value: str) -> Pickle:
        raw = value.encode()
        self.data += b"X" + struct.pack("<I", len(raw)) + raw
        return self

    def number(self, value: int) -> Pickle:
        self.data += b"J" + struct.pack("<i", value)
        return self

    def symbol(self, module: str, name: str) -> Pickle:
        self.data += b"c" + f"{module}\n{name}\n".encode()
        return self

    def raw(self, opcodes: bytes) -> Pickle:
        self.data += opcodes
        return self

    def numbers(self, values: tuple[int, ...]) -> Pickle:
        self.raw(b"(")
        for value in values:
            self.number(value)
        return self.raw(b"t")

    def tensor(
        self,
        key: str,
        shape: tuple[int, ...],
        storage: str,
        *,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> Pickle:
        if strides is None:
            steps = np.cumprod([1, *shape[:0:-1]])[::-1].tolist() if shape else []
            strides = tuple(steps)
        self.symbol("torch._utils", "_rebuild_tensor_v2").raw(b"((")
        self.text("storage").symbol("torch", storage).text(key).text("cpu").number(0)
        self.raw(b"tQ").number(offset).numbers(shape).numbers(strides)
        self.raw(b"\x89").symbol("collections", "OrderedDict").raw(b")RtR")
        return self

    def table(self) -> Pickle:
        """Opens an OrderedDict; `close` ends it."""
        return self.symbol("collections", "OrderedDict").raw(b")Rq\x00(")

    def close(self) -> Pickle:
        """With the attribute that every module's state has."""
        self.raw(b"u").raw(b"}").text("_metadata").raw(b"}sb")
        return self.raw(b".")


STORAGE = {kind: storage for storage, kind in stored.STORAGES.items()}


def write_torch(path: Path, tensors: dict[str, np.ndarray], kind: str = "F32") -> None:
    pickle = Pickle().table()
    members = {}
    for i, (name, value) in enumerate(tensors.items()):
        pickle.text(name).tensor(str(i), value.shape, STORAGE[kind])
        members[str(i)] = value.astype(FLOATS[kind]).tobytes()
    pickle.text("embeddings.position_ids").tensor("ids", (1,), "LongStorage")
    write_archive(path, pickle.close().data, members | {"ids": bytes(8)})


def write_archive(
    path: Path,
    pickle: bytes,
    members: dict[str, bytes],
    *,
    byte_order: bytes = b"little",
    compression: int = zipfile.ZIP_STORED,
) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", byte_order)
        for key, data in members.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", b"3\n")


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece() -> dict[str, Any]:
    """A BERT tokenizer over lower-case letters, with the truncation that published ones have."""
    letters = string.ascii_lowercase
    pieces = [*SPECIAL, *letters, *("##" + letter for letter in letters), "what", "is"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    found = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    found.add_special_tokens(SPECIAL)
    found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    found.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, around)
    found.decoder = decoders.WordPiece()
    found.enable_truncation(4)
    content: dict[str, Any] = json.loads(found.to_str())
    return content
