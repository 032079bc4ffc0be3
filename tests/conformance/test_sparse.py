"""Lexical weights against an independent way: onnxruntime, sentencepiece and the rules in Python.

Twice: the server's own selection on the very same raw weights must be equal bit for bit; the whole
server computes the weights with OpenVINO in f32, where only the order of summation differs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import onnxruntime
import pytest

from conformance.reference_tokenizer import SentencepieceTokenizer
from default_package.checks import batch as batch_of
from own_code import Ask
from rules import Selection, best_weights, edges, select
from server import Server, running
from texts import generated

TEXTS = 1200
LONGEST_WORDS = 8
BATCH_ROWS = 32
PAD = 1
TOLERANCE = 1e-5
"""Largest difference of an f32 weight between two runtimes; the largest seen is printed."""
FORMATS = ["indices", "dict", "tokens", "pgvector"]
EVERYTHING = Selection()
SELECTIONS = [
    Selection(top_k=3),
    Selection(min_weight=0.125),
    Selection(top_k=2, min_weight=0.0625),
]


@dataclass(frozen=True)
class Raw:
    """What the graph gives for one text, the prompt's positions left out."""

    text: str
    ids: list[int]
    weights: list[float]


@pytest.fixture(scope="module")
def raws(package: Path, manifest: dict[str, Any], reference: SentencepieceTokenizer) -> list[Raw]:
    """Every text behind the default prompt, through onnxruntime."""
    texts = generated(TEXTS, LONGEST_WORDS)
    prompt = manifest["prompts"][manifest["default_prompt"]]
    own = reference.encode(prompt, escape=False)
    sequences = []
    for text in texts:
        ids = reference.encode(prompt + text, escape=False)
        assert ids[: len(own)] == own, f"{text!r} melts into the prompt"
        sequences.append([manifest["bos_token_id"], *ids, manifest["eos_token_id"]])
    first = 1 + len(own)
    weights = token_weights(package / "model.onnx", sequences)
    return [
        Raw(text, ids[first:], row[first:])
        for text, ids, row in zip(texts, sequences, weights, strict=True)
    ]


def token_weights(path: Path, sequences: list[list[int]]) -> list[list[float]]:
    """The graph's output for each text, which has a row of its own: the server packs several."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found: list[list[float]] = [[] for _ in sequences]
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    for start in range(0, len(order), BATCH_ROWS):
        picked = order[start : start + BATCH_ROWS]
        length = max(len(sequences[i]) for i in picked)
        batch = batch_of(sequences, [[i] for i in picked], length, PAD, "mean")
        (weights,) = session.run(["token_weights"], batch.inputs)
        for text, (row, _) in batch.spans.items():
            found[text] = weights[row, : len(sequences[text])].tolist()
    return found


def bits(number: float) -> int:
    """The f32's bits."""
    return struct.unpack("<I", struct.pack("<f", number))[0]


def selections_of(best: dict[int, float]) -> Iterator[Selection]:
    """The fixed ones, and edges that are weights of the text itself."""
    yield from [EVERYTHING, *SELECTIONS, Selection(top_k=1)]
    for weight in sorted(best.values())[-3:]:
        if weight > 0:
            yield Selection(min_weight=weight)
            yield Selection(top_k=2, min_weight=weight)


def test_selection_equals_the_rules_bit_for_bit(
    ask: Ask, raws: list[Raw], manifest: dict[str, Any]
) -> None:
    dropped = manifest["sparse"]["dropped_token_ids"]
    questions, expected = [], []
    for raw in raws:
        # Rounded weights, so that ties at the top k are common.
        rounded = [round(weight * 16) / 16 for weight in raw.weights]
        for weights in (raw.weights, rounded):
            best = best_weights(raw.ids, weights, set(dropped))
            for selection in selections_of(best):
                least = None if selection.min_weight is None else bits(selection.min_weight)
                question = {"ids": raw.ids, "weights": [bits(weight) for weight in weights]}
                question |= {"dropped": dropped, "top_k": selection.top_k, "min_weight": least}
                questions.append({"select": question})
                kept = select(best, selection)
                indices, values = [i for i, _ in kept], [bits(weight) for _, weight in kept]
                expected.append({"indices": indices, "values": values})
    answers = ask(questions)
    different = [pair for pair in zip(answers, expected, strict=True) if pair[0] != pair[1]]
    texts, entries = len(raws), sum(len(answer["indices"]) for answer in answers)
    print(f"{texts} texts, {len(questions)} selections, {entries} weights: {len(different)} differ")
    assert texts >= 1000
    assert not different, different[:3]


@pytest.fixture(scope="module")
def f32_server(package: Path) -> Iterator[Server]:
    """The real binary in f32: half precision would differ in the third digit."""
    with running("--package", str(package), "--precision", "f32") as server:
        yield server


def read(values: Any, form: str, ids_by_piece: dict[str, int], size: int) -> dict[int, float]:
    """The answer's weights in any of the four formats, ids ascending."""
    if form == "indices":
        pairs = list(zip(values["indices"], values["values"], strict=True))
    elif form == "dict":
        pairs = [(int(token_id), weight) for token_id, weight in values.items()]
    elif form == "tokens":
        pairs = [(ids_by_piece[piece], weight) for piece, weight in values.items()]
    else:
        entries, dimension = values.removeprefix("{").split("}/")
        assert int(dimension) == size
        found = (entry.split(":") for entry in entries.split(",") if entry)
        pairs = [(int(index) - 1, float(weight)) for index, weight in found]
    ids = [token_id for token_id, _ in pairs]
    assert ids == sorted(set(ids)), values
    return dict(pairs)


def ask_server(client: httpx.Client, batch: list[Raw], chosen: Selection, form: str) -> list[Any]:
    """The `sparse_values` of each text."""
    body = {
        "input": [raw.text for raw in batch],
        "sparse_format": form,
        "sparse_top_k": chosen.top_k,
        "sparse_min_weight": chosen.min_weight,
    }
    answer = client.post("/v1/sparse-embeddings", json=body).raise_for_status().json()
    return [item["sparse_values"] for item in answer["data"]]


@dataclass
class Tally:
    """What was compared."""

    weights: int = 0
    largest: float = 0.0
    at_an_edge: int = 0

    def compare(self, raw: Raw, best: dict[int, float], chosen: Selection, seen: Any) -> None:
        """Every id on one side only must be within the tolerance of where ids stay or leave."""
        expected = dict(select(best, chosen))
        limits = edges(best, chosen)
        for token_id in expected.keys() | seen.keys():
            weight = best[token_id]
            if token_id in expected and token_id in seen:
                self.weights += 1
                self.largest = max(self.largest, abs(seen[token_id] - weight))
            else:
                self.at_an_edge += 1
                nearest = min(abs(weight - limit) for limit in limits)
                assert nearest <= TOLERANCE, (raw.text, token_id, weight, chosen)


def test_the_server_in_f32_gives_the_same_weights(
    f32_server: Server,
    raws: list[Raw],
    manifest: dict[str, Any],
    vocabulary: list[tuple[str, float]],
) -> None:
    dropped = set(manifest["sparse"]["dropped_token_ids"])
    ids_by_piece = {piece: token_id for token_id, (piece, _) in enumerate(vocabulary)}
    tallies = {chosen: Tally() for chosen in [EVERYTHING, *SELECTIONS]}
    with httpx.Client(base_url=f32_server.url, timeout=60) as client:
        for number, start in enumerate(range(0, len(raws), BATCH_ROWS)):
            batch = raws[start : start + BATCH_ROWS]
            # All texts without a selection, and each with one of the others.
            for chosen in (EVERYTHING, SELECTIONS[number % len(SELECTIONS)]):
                form = FORMATS[number % len(FORMATS)]
                answers = ask_server(client, batch, chosen, form)
                for raw, values in zip(batch, answers, strict=True):
                    best = best_weights(raw.ids, raw.weights, dropped)
                    seen = read(values, form, ids_by_piece, manifest["vocab_size"])
                    tallies[chosen].compare(raw, best, chosen, seen)
    for chosen, tally in tallies.items():
        print(f"{chosen}: {tally}")
        assert tally.largest <= TOLERANCE
        assert tally.weights > 500
