"""All files of a package in one folder, manifest.json last, as it vouches for the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from default_package import manifest as parts
from default_package.manifest import DEFAULT_PACKAGE, INPUTS, OUTPUTS, Description
from default_package.reference import Vectors, select_sparse, shorten
from default_package.wheel import digest

from . import graph, vocabulary
from .encoder import Encoder
from .half import Precision
from .reference import ExportReference
from .vocabulary import Vocabulary
from .weight_store import EXTERNAL_BYTES_MIN

CANARY_TEXT = DEFAULT_PACKAGE.canary_text
TOLERANCES = {"dense_cosine_min": 0.999, "sparse_max_abs": 0.02}
"""As in the default package: both engines compute in 16 bits, with sums and norms in f32."""


@dataclass(frozen=True)
class Plan:
    """What is to be written."""

    encoder: Encoder
    vocabulary: Vocabulary
    tokenizer: Path
    about: Description
    precision: Precision
    normalization: str
    """Whose way of reading unusual characters a tokenizer of XLM-R's kind follows."""
    external_bytes_min: int = EXTERNAL_BYTES_MIN


def write(plan: Plan, folder: Path) -> ExportReference:
    """model.onnx, its numbers where they are many, tokenizer.json and manifest.json.

    Returns the reference that the golden numbers come from, for further questions.
    """
    graph.write(plan.encoder, plan.precision, folder / "model.onnx", plan.external_bytes_min)
    vocabulary.write(plan.tokenizer, folder / "tokenizer.json")
    reference = ExportReference(plan.encoder)
    parts.write(build(plan, folder, reference), folder / "manifest.json")
    return reference


def files(folder: Path) -> dict[str, Any]:
    """Digest and size of everything in the folder but the manifest."""
    paths = sorted(path for path in folder.iterdir() if path.name != "manifest.json")
    return {path.name: entry(path) for path in paths}


def entry(path: Path) -> dict[str, Any]:
    """Digest and size of one file."""
    return {"sha256": digest(path), "bytes": path.stat().st_size}


def build(plan: Plan, folder: Path, reference: ExportReference) -> dict[str, Any]:
    """The manifest of the package whose other files lie in `folder`."""
    encoder, words, about = plan.encoder, plan.vocabulary, plan.about
    sparse = None
    if encoder.head is not None:
        sparse = {"dropped_token_ids": words.special_ids, "head": encoder.head.method}
    return {
        "format_version": 1,
        "model_id": about.model_id,
        "aliases": about.aliases,
        "revision": about.revision,
        "license": about.license,
        "hidden_size": encoder.config.hidden,
        "vocab_size": words.size,
        "max_input_tokens": encoder.architecture.max_input_tokens,
        "pad_token_id": words.pad,
        "bos_token_id": words.bos,
        "eos_token_id": words.eos,
        "unk_token_id": words.unk,
        "pooling": encoder.architecture.pooling.value,
        "matryoshka_dimensions": about.matryoshka_dimensions,
        "prompts": about.prompts,
        "default_prompt": about.default_prompt,
        **({"tokenizer": {"normalization": plan.normalization}} if words.has_charsmap else {}),
        "sparse": sparse,
        "inputs": INPUTS,
        "outputs": OUTPUTS if sparse else {"dense": OUTPUTS["dense"]},
        "files": files(folder),
        "plans": [],
        "canary": _canary(plan, reference),
    }


def _canary(plan: Plan, reference: ExportReference) -> dict[str, Any]:
    """The fixed input of the deep health check, and what the reference says of it."""
    tokens_max = plan.encoder.architecture.max_input_tokens
    text, token_ids = plan.vocabulary.encode_within(plan.about.canary_text, tokens_max)
    vectors = reference.run(token_ids)
    return {
        "text": text,
        "token_ids": token_ids,
        "dense": [shorten(value) for value in vectors.dense],
        "sparse": _lexical(plan, token_ids, vectors),
        "tolerances": TOLERANCES,
    }


def _lexical(plan: Plan, token_ids: list[int], vectors: Vectors) -> list[list[float]]:
    """Golden pairs of id and weight; none without a head."""
    if plan.encoder.head is None:
        return []
    dropped = set(plan.vocabulary.special_ids)
    ids, weights = select_sparse(token_ids, vectors.token_weights, dropped)
    return [list(pair) for pair in zip(ids, weights, strict=True)]
