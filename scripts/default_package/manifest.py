"""Writes a package, with manifest.json: what the server must know of it before it loads it."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import command, graph
from .choices import CANARY, FORMAT_VERSION
from .command import digest, say
from .encoder import Encoder
from .errors import PackageError, read_json
from .reference import ReferenceEncoder, shorten
from .vocabulary import Vocabulary

NAME = "manifest.json"
QUESTIONS = "questions.f32"  # the weight of each word in a question, little-endian
# Ten times what bf16 costs the default package, whose dense cosine to f32 is at least 0.99998 on
# texts.jsonl, and whose token weights are within 0.0025. The wheel's own engine, with 4-bit weights
# and 8-bit activations, still reaches 0.9998. Mistakes are well outside: unmasked padding gives
# 0.9952 and 0.07, absent special tokens 0.9937 and 0.04. Exported packages have the same: their
# engines compute in 16 bits too, sums and norms in f32.
TOLERANCES = {"dense_cosine_min": 0.999, "sparse_max_abs": 0.02}
FIELDS = """format_version model_id aliases revision license kind hidden_size token_vector_size
vocab_size max_input_tokens pad_token_id bos_token_id eos_token_id unk_token_id pooling
matryoshka_dimensions prompts default_prompt tokenizer sources sparse outputs small_vectors files
plans canary"""
"""In the order of the file; some are only there where the model has what they say."""
WORDS_ROOM = 5
"""Times as far as other lexical weights, those of any words may be from the golden ones."""
RANGES = Path(__file__).with_name("small_vectors.json")
"""Where the numbers of the default package's vectors lie: docs/decisions/0055 says how."""


@dataclass(frozen=True)
class Plan:
    """A package that is to be written."""

    encoder: Encoder
    vocabulary: Vocabulary
    about: dict[str, Any]
    """Fields of the manifest that follow from neither: names, prompts, where both come from."""
    questions: np.ndarray | None = None
    """f32, what each word weighs in a question, where questions need no run."""
    canary_text: str = CANARY


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a package whose graphs are of FORMAT_VERSION."""
    content = read_json(folder / NAME, "package")
    found = content.get("format_version")
    if found != FORMAT_VERSION:
        again = "make it again with scripts/make_default_package.py or scripts/export_onnx.py"
        what = f"{folder} has format_version {found!r}, {FORMAT_VERSION} is needed"
        raise PackageError(f"{what}: {again}")
    return content


def write(
    plan: Plan, folder: Path, write_graph: Callable[[Encoder, Path], None] = graph.write
) -> None:
    """The graph, tokenizer.json, and manifest.json, which vouches for both."""
    say("writing model.onnx")
    write_graph(plan.encoder, folder / "model.onnx")
    (folder / "tokenizer.json").write_text(plan.vocabulary.text, encoding="utf-8")
    if plan.questions is not None:
        (folder / QUESTIONS).write_bytes(plan.questions.astype("<f4").tobytes())
    say("computing the golden numbers")
    save(_content(plan, folder), folder / NAME)


def add_graph(
    place: Path,
    prefix: str,
    write: Callable[[Path], None],
    finish: Callable[[Path, dict[str, Any]], dict[str, Any]],
) -> None:
    """The package at `place` is replaced by one that has a further graph. `write` puts the graph's
    files, whose names begin with `prefix`, into a folder. `finish` checks the package there and
    returns its manifest. Until both are done the old one stays as it is."""
    with command.locked(place, f"changes {place}"), command.replacing(place) as twin:
        content = read(place)
        # Before the links: the onnx library refuses to read numbers from a file with two names.
        write(twin)
        known = {name: one for name, one in content["files"].items() if not name.startswith(prefix)}
        added = {path.name: entry(path) for path in twin.iterdir()}
        for path in place.iterdir():
            if path.name != NAME and not path.name.startswith(prefix):
                _take_over(path, twin / path.name)
        files = {"files": dict(sorted((known | added).items()))}
        save(finish(twin, content | files), twin / NAME)


def _take_over(path: Path, target: Path) -> None:
    """A second name for a file; a copy of what can have none, as on some disks."""
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True)
        return
    try:
        os.link(path, target)
    except OSError:
        shutil.copy2(path, target)


def _content(plan: Plan, folder: Path) -> dict[str, Any]:
    words, encoder, architecture = plan.vocabulary, plan.encoder, plan.encoder.architecture
    head = encoder.head
    sparse = head and {"dropped_token_ids": words.special_ids, "head": head.method}
    if architecture.words:
        sparse = {
            "dropped_token_ids": [],
            "head": "the model's own head for masked words, as SPLADE has it",
            "words": min(architecture.words.kept, encoder.sizes.vocab_rows),
        }
        sparse |= {} if plan.questions is None else {"questions": QUESTIONS}
    outputs = {"dense": True, "token_weights": encoder.head}
    outputs |= {"token_vectors": architecture.token_width, "word_weights": architecture.words}
    found = {
        "format_version": FORMAT_VERSION,
        "hidden_size": architecture.width,
        "token_vector_size": architecture.token_width,
        "vocab_size": words.size,
        "max_input_tokens": architecture.max_input_tokens,
        **{f"{name}_token_id": getattr(words, name) for name in ("pad", "bos", "eos", "unk")},
        "pooling": architecture.pooling.value,
        "sparse": sparse,
        "outputs": {name: "float32" for name, is_there in outputs.items() if is_there},
        "files": {p.name: entry(p) for p in sorted(folder.iterdir()) if p.name != NAME},
        "plans": [],
        "canary": _canary(plan),
    } | plan.about
    if not architecture.token_width:
        del found["token_vector_size"]
    return {field: found[field] for field in FIELDS.split() if field in found}


def _canary(plan: Plan) -> dict[str, Any]:
    """The fixed input of the deep health check, what the reference says of it, and tolerances.
    `token_ids` are run exactly as they stand, without a prompt, and all positions count. `sparse`
    has pairs of id and weight, none without a head, and `token_vectors` pairs of place and
    vector."""
    words, architecture = plan.vocabulary, plan.encoder.architecture
    text, token_ids = words.encode_within(plan.canary_text, architecture.max_input_tokens)
    found = ReferenceEncoder(plan.encoder).run(token_ids)
    content = {
        "text": text,
        "token_ids": token_ids,
        "dense": [shorten(value) for value in found.dense],
        "sparse": [list(pair) for pair in found.lexical(token_ids, words.special_ids).items()],
    }
    if found.token_vectors is not None:
        # Some are enough: the first that is answered, the last, and one between them.
        places = (1, len(token_ids) // 2, len(token_ids) - 1)
        golden = [[at, [shorten(value) for value in found.token_vectors[at]]] for at in places]
        content["token_vectors"] = golden
    return content | {"tolerances": roomy(TOLERANCES, architecture.words)}


def roomy(limits: dict[str, float], words: object) -> dict[str, float]:
    """Those of a model that weighs any `words`, if it does: weights go up to 3, and errors of
    logits come through whole in small ones."""
    return limits | {"sparse_max_abs": limits["sparse_max_abs"] * (WORDS_ROOM if words else 1)}


def entry(path: Path) -> dict[str, Any]:
    """Digest and size of one file."""
    return {"sha256": digest(path), "bytes": path.stat().st_size}


def save(content: dict[str, Any], path: Path) -> None:
    """Indented JSON in which a list of numbers stays on one line."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    numbers = r"\[\s+([-+\d.e]+(?:,\s+[-+\d.e]+)*)\s+\]"
    text = re.sub(numbers, lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")
