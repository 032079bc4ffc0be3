"""Runs a written package with OpenVINO and compares it with itself, and with what the numpy
reference says in the manifest.

Each raises PackageError when its limit is missed; those of a whole graph print one line to stderr.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import manifest
from .choices import Precision
from .command import say
from .encoder import Architecture
from .errors import PackageError
from .reference import Found, cosine
from .runtime import SPAN_TOKENS, Batch, Runtime, batch, room

NEIGHBOURS_COSINE_MIN = 0.999999
NEIGHBOURS_WEIGHT_MAX = 1e-5
"""Sums of f32 in another order."""
ROUNDS = 3
"""Each with other neighbours."""
ROWS = 3
"""That all texts share."""
MADE_UP_TEXTS = 24
LONGEST = 512
"""Of the texts that are made up."""


@dataclass(frozen=True)
class Limits:
    """How far a graph may be from the reference."""

    dense_cosine_min: float
    token_weight_max: float

    def of(self, words: object) -> "Limits":
        """Those of a model that weighs any `words`, if it does: weights go up to 3, and errors of
        logits come through whole in small ones."""
        room = manifest.WORDS_ROOM if words else 1
        return Limits(self.dense_cosine_min, room * self.token_weight_max)


LIMITS = {
    # Sums of f32 in another order, and a word table that is rounded to f16.
    Precision.FP32: Limits(0.99999, 0.002),
    # All weights rounded to f16; sums are f32 here.
    Precision.FP16: Limits(0.9999, 0.005),
    # The same with three bits fewer: e5-small's are within 0.99996 and 0.0092 on 159 texts.
    Precision.BF16: Limits(0.999, 0.02),
}


def demand(holds: bool, failure: str) -> None:
    """Raises PackageError(failure) unless `holds`."""
    if not holds:
        raise PackageError(f"the package failed its check: {failure}")


def sparse_distance(
    found: dict[int, float], expected: dict[int, float], kept: int | None = None
) -> float:
    """Largest absolute difference; an absent id weighs zero.

    Where the strongest `kept` are there, an absent one weighs at most as much as the weakest.
    """
    keys = found.keys() | expected.keys()

    def of(weights: dict[int, float], key: int, other: float) -> float:
        least = min([other, *weights.values()]) if len(weights) == kept else 0.0
        return weights.get(key, least)

    def distance(key: int) -> float:
        one, other = found.get(key, 0.0), expected.get(key, 0.0)
        return abs(of(found, key, other) - of(expected, key, one))

    return max(map(distance, keys), default=0.0)


def least_cosine(found: Found, expected: Found) -> float:
    """Of all token vectors of a text, which have length one; 1 where the model has none."""
    if found.token_vectors is None or expected.token_vectors is None:
        demand(found.token_vectors is expected.token_vectors, "token vectors are missing")
        return 1.0
    products = found.token_vectors.astype(np.float64) * expected.token_vectors
    return float(products.sum(axis=-1).min(initial=1.0))


def check_canary(runtime: Runtime, content: dict[str, Any], limits: Limits) -> None:
    """The manifest's golden numbers, read back from the file."""
    canary = content["canary"]
    [row] = runtime.run([canary["token_ids"]], content["pooling"])
    similarity = cosine(row.dense, np.asarray(canary["dense"]))
    for place, golden in canary.get("token_vectors", []):
        demand(row.token_vectors is not None, "token vectors are missing")
        similarity = min(similarity, cosine(row.token_vectors[place], np.asarray(golden)))
    # A package without lexical weights has none in its canary either.
    sparse = content["sparse"] or {}
    of_text = row.lexical(canary["token_ids"], sparse.get("dropped_token_ids", ()))
    golden = {int(token_id): weight for token_id, weight in canary["sparse"]}
    distance = sparse_distance(of_text, golden, sparse.get("words"))
    say(f"canary: cosine {similarity:.8f}, largest sparse difference {distance:.6f}")
    demand(similarity >= limits.dense_cosine_min, "vectors of the canary")
    demand(distance <= limits.token_weight_max, "sparse weights of the canary")


def check_neighbours(
    runtime: Runtime, network: Architecture, seed: int = 0, word_max: float = NEIGHBOURS_WEIGHT_MAX
) -> None:
    """No text sees another one: its outputs are those that it has alone, whatever is beside it.

    Padding gives zeros. Weights of words may differ by `word_max`.
    """
    choose = random.Random(seed)
    texts = made_up(network, choose)
    alone = runtime.run(texts, network.pooling.value)
    least, largest, of_words = 1.0, 0.0, 0.0
    for _ in range(ROUNDS):
        crowd = crowded(texts, network, choose)
        ran = runtime.run_rows(crowd.inputs)
        dense, weights = ran["dense"], ran["token_weights"]
        demand(bool(np.isfinite(dense).all() and np.isfinite(weights).all()), "padding gives NaN")
        among = crowd.split(ran)
        for at in crowd.places:
            least = min(least, cosine(dense[at.row, at.segment], alone[at.text].dense))
            least = min(least, least_cosine(among[at.text], alone[at.text]))
            difference = np.abs(weights[at.row, at.tokens] - alone[at.text].token_weights)
            largest = max(largest, float(difference.max()))
            if network.words:
                both = (one[at.text].words or {} for one in (among, alone))
                of_words = max(of_words, sparse_distance(*both, network.words.kept))
            dense[at.row, at.segment] = 0.0
            weights[at.row, at.tokens] = 0.0
        demand(not dense.any(), "a span without weights is not zero")
        demand(not weights.any(), "padding has token weights")
    differs = f"largest weight difference {max(largest, of_words):.8f}"
    say(f"neighbours: cosine min {least:.8f}, {differs} to the same texts alone")
    demand(least >= NEIGHBOURS_COSINE_MIN, "a text's vectors depend on what is beside it")
    is_same = largest <= NEIGHBOURS_WEIGHT_MAX and of_words <= word_max
    demand(is_same, "a text's weights depend on what is beside it")


def made_up(network: Architecture, choose: random.Random) -> list[list[int]]:
    """Token ids of texts from one token to the longest; with few words, so that many repeat."""
    longest = min(network.max_input_tokens, LONGEST)
    ids = [i for i in range(network.sizes.vocab_rows) if i != network.pad_token_id]
    words = choose.sample(ids, min(len(ids), longest))
    counts = [1, 2, longest - 1, longest]
    while len(counts) < MADE_UP_TEXTS:
        # As many short ones as long ones.
        counts.append(round(longest ** choose.random()))
    return [choose.choices(words, k=count) for count in counts]


def crowded(texts: list[list[int]], network: Architecture, choose: random.Random) -> Batch:
    """All texts in any order; the last row is padding."""
    order = list(range(len(texts)))
    choose.shuffle(order)
    rows = [order[first::ROWS] for first in range(ROWS)]
    longest = max(sum(room(len(texts[text])) for text in row) for row in rows)
    length = longest + choose.randrange(SPAN_TOKENS)
    return batch(texts, [*rows, []], length, network.pad_token_id, network.pooling.value)


def run_all(folder: Path, network: Architecture, precision: Precision) -> None:
    """All checks of the package in `folder`."""
    content, limits = manifest.read(folder), LIMITS[precision].of(network.words)
    runtime = Runtime(folder / "model.onnx")
    # Sums that are added up in another order may be rounded to the next logit of 16 bits.
    single = precision is Precision.FP32
    word_max = NEIGHBOURS_WEIGHT_MAX if single else limits.token_weight_max
    check_neighbours(runtime, network, word_max=word_max)
    check_canary(runtime, content, limits)
