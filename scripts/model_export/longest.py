"""Golden numbers of a text of the greatest length: what a GPU's plan must give for long rows."""

from itertools import cycle, islice
from pathlib import Path
from typing import Any

from default_package.command import say
from default_package.runtime import Runtime

KEY = "longest"
"""Of the manifest's canary."""
DIGITS = 5
"""That all processors agree on: sums of f32 are in another order on each."""


def added(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The manifest `content` with them, as model.onnx gives them in f32 on a CPU."""
    canary, tokens = content["canary"], content["max_input_tokens"]
    text = long_text(canary["token_ids"], tokens)
    if KEY in canary or len(text) != tokens:
        return content
    runtime = Runtime(folder / "model.onnx")
    [row] = runtime.run([text], content["pad_token_id"], content["pooling"])
    dropped = set(content["sparse"]["dropped_token_ids"]) if content["sparse"] else set()
    weights = row.lexical(text, dropped)
    sparse = [[word, round(weight, DIGITS)] for word, weight in weights.items()]
    dense = [round(float(value), DIGITS) for value in row.dense]
    say(f"golden numbers of a text of {tokens} tokens are in the manifest")
    golden = {"tokens": tokens, "dense": dense, "sparse": sparse}
    return content | {"canary": canary | {KEY: golden}}


def long_text(ids: list[int], tokens: int) -> list[int]:
    """The canary's tokens again and again, between its first and its last one.

    `crates/model/src/package/canary.rs` makes the same text.
    """
    first, *body, last = ids
    return [first, *islice(cycle(body), tokens - 2), last]
