#!/usr/bin/env python3
"""Writes tests/golden/multilingual-e5-small.json: expected vectors for the default package.

    python scripts/make_golden.py

They come from the plain numpy forward pass and tokenizer in default_package/reference.py, straight
from the wheel's tensors: nothing of the package, ONNX, OpenVINO or `tokenizers` has a part in it.
Dense vectors are base64 of little-endian f32. Sparse ones leave out the prompt's positions, the
dropped ids and everything that is not above zero, as the server does.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from default_package import command, sparse_head, texts, weights, wheel
from default_package.command import say
from default_package.manifest import DEFAULT_PACKAGE, DROPPED_TOKEN_IDS
from default_package.reference import ReferenceEncoder, ReferenceTokenizer, select_sparse

DEFAULT_OUT = (
    Path(__file__).resolve().parent.parent / "tests" / "golden" / f"{DEFAULT_PACKAGE.model_id}.json"
)
EVERY = 2
"""Every second text and all longer than LONG_BYTES: all languages, and a file below 400 KB."""
LONG_BYTES = 900
PASSAGE_EVERY = 5
"""Every fifth golden text is a passage, the others are queries."""


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    return command.write_from_wheel(__doc__, DEFAULT_OUT, make)


def make(out: Path, options: argparse.Namespace) -> None:
    """Computes every item and writes one line for each."""
    with command.working_folder(out) as work:
        model = weights.load(command.unpacked_wheel(options, work).model)
        head = sparse_head.load()
        tokenizer, encoder = ReferenceTokenizer(model), ReferenceEncoder(model, head)
        picked = pick(texts.load())
        say(f"computing {len(picked)} items")
        items = []
        for i, line in enumerate([*picked, *edge_cases(picked)]):
            kind = "passage" if i % PASSAGE_EVERY == PASSAGE_EVERY - 1 else "query"
            items.append(item(line, kind, tokenizer, encoder))
        header = {
            "model_id": DEFAULT_PACKAGE.model_id,
            "made_by": "scripts/make_golden.py",
            "wheel_sha256": wheel.SHA256,
            "sparse_head_sha256": wheel.digest(sparse_head.PATH),
            "hidden_size": model.config.hidden,
        }
        part = work / out.name
        part.write_text(layout(header, items), encoding="utf-8")
        os.replace(part, out)
    say(f"wrote {out}: {out.stat().st_size} bytes")


def pick(lines: list[texts.Text]) -> list[texts.Text]:
    """An even share of all languages and lengths, and the long ones."""
    return [
        line
        for i, line in enumerate(lines)
        if i % EVERY == 0 or len(line.text.encode()) > LONG_BYTES
    ]


def edge_cases(lines: list[texts.Text]) -> list[texts.Text]:
    """The empty text, and one of more tokens than the model takes, which is cut at the end."""
    longest = sorted(lines, key=lambda line: len(line.text))[-2:]
    return [
        texts.Text("en", "", "empty"),
        texts.Text("en", " ".join(line.text for line in longest), "truncated"),
    ]


def item(
    line: texts.Text, kind: str, tokenizer: ReferenceTokenizer, encoder: ReferenceEncoder
) -> dict[str, Any]:
    """One expected answer; `tokens` were run, of `truncated_from` when the text was cut."""
    prompt, limit = DEFAULT_PACKAGE.prompts[kind], encoder.positions
    ids = tokenizer.encode(prompt + line.text)
    full_count = len(ids)
    if full_count > limit:
        ids = [*ids[: limit - 1], ids[-1]]
    first = len(tokenizer.encode(prompt)) - 1
    vectors = encoder.run(ids)
    sparse_ids, sparse_weights = select_sparse(
        ids, vectors.token_weights, set(DROPPED_TOKEN_IDS), first
    )
    cut = {"truncated_from": full_count} if full_count > limit else {}
    return {
        "text": line.text,
        "lang": line.lang,
        "input_type": kind,
        "tokens": len(ids),
        **cut,
        "first_text_position": first,
        "token_ids_sha256": ids_digest(ids),
        "dense": base64.b64encode(vectors.dense.astype("<f4").tobytes()).decode("ascii"),
        "sparse": [sparse_ids, [round(weight, 6) for weight in sparse_weights]],
    }


def ids_digest(ids: list[int]) -> str:
    """SHA-256 over the ids in decimal, joined by commas."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def layout(header: dict[str, Any], items: list[dict[str, Any]]) -> str:
    """JSON with one item on each line, so that a change shows as the lines it touches."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items()]
    body = ",\n".join(
        "  " + json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in items
    )
    return "{\n" + "".join(lines) + ' "items": [\n' + body + "\n ]\n}\n"


if __name__ == "__main__":
    sys.exit(main())
