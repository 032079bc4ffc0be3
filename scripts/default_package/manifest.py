"""Writes manifest.json: what the server must know about a package before it loads it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .description import Description
from .errors import PackageError
from .json_file import read_json
from .reference import ReferenceEncoder, ReferenceTokenizer, Vectors, select_sparse, shorten
from .sparse_head import SparseHead
from .weights import Model
from .wheel import digest

NAME = "manifest.json"
FORMAT_VERSION = 2
"""Of what a graph takes and gives: the second has several texts in a row."""
POOLING = "mean"
"""Of weights in the wheel's form."""
# Ten times what bf16 costs the default package: `verify` measures on texts.jsonl a dense cosine of
# at least 0.99998 between bf16 and f32, and token weights within 0.0025. The wheel's own engine,
# with 4-bit weights and 8-bit activations, still reaches 0.9998. Mistakes are well outside:
# unmasked padding gives 0.9952 and 0.07, absent special tokens 0.9937 and 0.04.
# Exported packages have the same: their engines compute in 16 bits too, sums and norms in f32.
TOLERANCES = {"dense_cosine_min": 0.999, "sparse_max_abs": 0.02}


@dataclass(frozen=True)
class Network:
    """What the files of a package do not say in a form that the server reads."""

    hidden_size: int
    max_input_tokens: int
    """Special tokens included."""
    pooling: str
    vocab_size: int
    pad: int
    bos: int
    eos: int
    unk: int
    head: SparseHead | None
    """None for a model without lexical weights."""
    normalization: str | None = None
    """Whose way of reading unusual characters the tokenizer follows, where there are two."""

    @property
    def special_ids(self) -> list[int]:
        """Ascending; they stand for no word, so they have no lexical weight."""
        return sorted({self.bos, self.eos, self.pad, self.unk})


@dataclass(frozen=True)
class Canary:
    """The fixed input of the deep health check, and what the reference says of it.

    `token_ids` are run exactly as they stand, without a prompt, and all positions count.
    """

    text: str
    token_ids: list[int]
    vectors: Vectors


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a package whose graphs are of FORMAT_VERSION."""
    content = read_json(folder / NAME, "package")
    found = content.get("format_version")
    if found != FORMAT_VERSION:
        raise PackageError(
            f"{folder} has format_version {found!r}, {FORMAT_VERSION} is needed: make it again "
            "with scripts/make_default_package.py or scripts/export_onnx.py"
        )
    return content


def write(about: Description, network: Network, canary: Canary, folder: Path) -> None:
    """manifest.json of the package whose other files lie in `folder`."""
    save(build(about, network, canary, folder), folder / NAME)


def build(about: Description, network: Network, canary: Canary, folder: Path) -> dict[str, Any]:
    """The manifest's content."""
    head = network.head
    outputs = ("dense", "token_weights") if head else ("dense",)
    tokenizer = {"normalization": network.normalization} if network.normalization else None
    return {
        "format_version": FORMAT_VERSION,
        "model_id": about.model_id,
        "aliases": about.aliases,
        "revision": about.revision,
        "license": about.license,
        "hidden_size": network.hidden_size,
        "vocab_size": network.vocab_size,
        "max_input_tokens": network.max_input_tokens,
        "pad_token_id": network.pad,
        "bos_token_id": network.bos,
        "eos_token_id": network.eos,
        "unk_token_id": network.unk,
        "pooling": network.pooling,
        "matryoshka_dimensions": about.matryoshka_dimensions,
        "prompts": about.prompts,
        "default_prompt": about.default_prompt,
        **({"tokenizer": tokenizer} if tokenizer else {}),
        "sparse": head and {"dropped_token_ids": network.special_ids, "head": head.method},
        "outputs": dict.fromkeys(outputs, "float32"),
        "files": {p.name: entry(p) for p in sorted(folder.iterdir()) if p.name != NAME},
        "plans": [],
        "canary": _golden(canary, network),
    }


def write_for_model(about: Description, model: Model, head: SparseHead, folder: Path) -> None:
    """manifest.json for weights in the wheel's form, golden numbers from the reference."""
    vocabulary = model.vocabulary
    network = Network(
        hidden_size=model.config.hidden,
        max_input_tokens=model.config.positions,
        pooling=POOLING,
        vocab_size=len(vocabulary.pieces),
        pad=vocabulary.pad,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        unk=vocabulary.unk,
        head=head,
    )
    token_ids = ReferenceTokenizer(model).encode(about.canary_text)
    vectors = ReferenceEncoder(model, head).run(token_ids)
    write(about, network, Canary(about.canary_text, token_ids, vectors), folder)


def entry(path: Path) -> dict[str, Any]:
    """Digest and size of one file."""
    return {"sha256": digest(path), "bytes": path.stat().st_size}


def save(content: dict[str, Any], path: Path) -> None:
    """Indented JSON in which a list of numbers stays on one line."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    text = re.sub(r"\[\s+([-+\d.e]+(?:,\s+[-+\d.e]+)*)\s+\]", _one_line, text)
    path.write_text(text + "\n", encoding="utf-8")


def _golden(canary: Canary, network: Network) -> dict[str, Any]:
    """The canary with its tolerances; `sparse` has pairs of id and weight, none without a head."""
    pairs = []
    if network.head:
        weights = canary.vectors.token_weights
        selected = select_sparse(canary.token_ids, weights, set(network.special_ids))
        pairs = [list(pair) for pair in zip(*selected, strict=True)]
    return {
        "text": canary.text,
        "token_ids": canary.token_ids,
        "dense": [shorten(value) for value in canary.vectors.dense],
        "sparse": pairs,
        "tolerances": TOLERANCES,
    }


def _one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r"\s+", " ", found.group(1)) + "]"
