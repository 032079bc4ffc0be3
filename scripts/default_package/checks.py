"""Runs graphs on this machine's CPU with OpenVINO: compares what a written package gives with what
the numpy reference says in the manifest, and measures for the manifest what only a graph can say.

A batch is `[rows, length]`; a row has a text, or several one behind the other. A text gives one
dense vector, so it has one span. A check raises PackageError when its limit is missed; those of a
whole graph print one line to stderr. Measured of an f32 graph are the largest numbers of its
layers, which say whether fp16 holds them, and golden numbers of a text of the greatest length,
which say what a GPU's plan must give for long rows.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from . import manifest
from .choices import Precision
from .command import say
from .encoder import Architecture
from .errors import PackageError
from .reference import Found, cosine
from .vocabulary import Vocabulary

SPAN_TOKENS = 8  # room that a span takes at least, since a row has a span for each so many tokens
Arrays = dict[str, np.ndarray]  # inputs or outputs of a graph by their names
NEIGHBOURS_COSINE_MIN = 0.999999
NEIGHBOURS_WEIGHT_MAX = 1e-5  # sums of f32 in another order
ROUNDS = 3  # each with other neighbours
ROWS = 3  # that all texts share
MADE_UP_TEXTS = 24
LONG_TOKENS = 512  # of the longest text that runs: scores of a layer take 1 MB for each head
LIMITS = {
    # Sums of f32 in another order, and a word table that is rounded to f16.
    Precision.FP32: {"dense_cosine_min": 0.99999, "sparse_max_abs": 0.002},
    # All weights rounded to f16; sums are f32 here.
    Precision.FP16: {"dense_cosine_min": 0.9999, "sparse_max_abs": 0.005},
    # The same with three bits fewer: e5-small's are within 0.99996 and 0.0092 on 159 texts.
    Precision.BF16: {"dense_cosine_min": 0.999, "sparse_max_abs": 0.02},
}
"""How far a graph may be from the reference, in the words of the manifest."""
TEXTS = Path(__file__).with_name("texts.jsonl")
LARGEST = "largest"  # of the manifest
LONGEST = "longest"  # of the manifest's canary
LONGEST_MAX = 8192
"""Tokens of its text: one of 32,768 would take a CPU half an hour, and many gigabytes."""
DIGITS = 5
"""Of golden numbers, that all processors agree on: sums of f32 are in another order on each."""
FP16_LARGEST = float(np.finfo(np.float16).max)
ROOM = 8  # times as far as these texts, others may reach
KINDS = {
    "scores": r"scores",
    "feed_forward": r"ffn\.(in|gate|gelu|gated|out)(\.product)?",
    "values": r"v",
    "other": r"([qk]|qkv|attention\.out)(\.product)?|[qk]\.heads|mixed|(attention|ffn)\.norm",
}
"""Of a layer's numbers, those that graphs in 16 bits hold in 16 bits: name of the list -> tensors.
A score is counted as it is before the softmax."""


@dataclass(frozen=True)
class Batch:
    """What a graph runs at once."""

    inputs: Arrays
    spans: dict[int, tuple[int, int]]
    """Number of a text -> its row, and its number there, which is that of its span too."""

    def split(self, ran: Arrays) -> dict[int, Found]:
        """The graph's outputs, by the number of the text."""
        found, vectors = {}, ran.get("token_vectors")
        for text, (row, span) in self.spans.items():
            tokens, words = self.inputs["segments"][row] == span, None
            if "words" in ran:
                both = (ran[name][row, span].tolist() for name in ("words", "word_weights"))
                words = {word: weight for word, weight in zip(*both, strict=True) if weight > 0.0}
            of_tokens = None if vectors is None else vectors[row, tokens]
            weights = ran["token_weights"][row, tokens]
            found[text] = Found(ran["dense"][row, span], weights, of_tokens, words)
        return found


def alone(sequence: Sequence[int], pooling: str = "mean") -> Batch:
    """One text in a row that has no padding."""
    return batch([sequence], [[0]], len(sequence), 0, pooling)


def batch(
    sequences: Sequence[Sequence[int]], rows: list[list[int]], length: int, pad: int, pooling: str
) -> Batch:
    """The sequences whose numbers are in `rows`; a row without any is padding."""
    ids = np.full((len(rows), length), pad, np.int32)
    positions = np.zeros((len(rows), length), np.int32)
    segments = np.full((len(rows), length), -1, np.int32)
    spans = max(1, length // SPAN_TOKENS)
    span_weights = np.zeros((len(rows), spans, length), np.float32)
    places = {}
    for row, texts in enumerate(rows):
        start = 0
        for span, text in enumerate(texts):
            count = len(sequences[text])
            tokens = slice(start, start + count)
            ids[row, tokens] = sequences[text]
            positions[row, tokens] = np.arange(count)
            segments[row, tokens] = span
            counted = {"cls": tokens.start, "last": tokens.stop - 1}.get(pooling, tokens)
            span_weights[row, span, counted] = 1.0 / (count if counted is tokens else 1)
            places[text] = row, span
            start += room(count)
    inputs = {"input_ids": ids, "positions": positions, "segments": segments}
    return Batch(inputs | {"span_weights": span_weights}, places)


def room(count: int) -> int:
    """Tokens of a row that a text of `count` takes."""
    return max(count, SPAN_TOKENS)


class Runtime:
    """A compiled model, which computes in f32 but for what the graph rounds itself."""

    def __init__(self, path: Path) -> None:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        self.compiled = openvino.Core().compile_model(str(path), "CPU", settings)

    def run_rows(self, inputs: Arrays) -> Arrays:
        """All outputs of a batch; token weights are zeros for a graph without a head."""
        result = self.compiled(inputs)
        found = {port.any_name: np.array(result[port]) for port in self.compiled.outputs}
        return {"token_weights": np.zeros(inputs["input_ids"].shape, np.float32)} | found

    def run(self, sequences: Sequence[Sequence[int]], pooling: str) -> list[Found]:
        """What is found for each sequence of token ids, which runs alone."""
        batches = (alone(sequence, pooling) for sequence in sequences)
        return [batch.split(self.run_rows(batch.inputs))[0] for batch in batches]


def demand(holds: bool, failure: str) -> None:
    """Raises PackageError(failure) unless `holds`."""
    if not holds:
        raise PackageError(f"the package failed its check: {failure}")


def sparse_distance(
    found: dict[int, float], expected: dict[int, float], kept: int | None = None
) -> float:
    """Largest absolute difference; an absent id weighs zero. Where the strongest `kept` are there,
    an absent one weighs at most as much as the weakest."""

    def of(weights: dict[int, float], others: dict[int, float], key: int) -> float:
        least = (others.get(key, 0.0), *weights.values()) if len(weights) == kept else (0.0,)
        return weights.get(key, min(least))

    keys = found.keys() | expected.keys()
    distances = (abs(of(found, expected, key) - of(expected, found, key)) for key in keys)
    return max(distances, default=0.0)


def least_cosine(found: Found, expected: Found) -> float:
    """Of all token vectors of a text, which have length one; 1 where the model has none."""
    if found.token_vectors is None or expected.token_vectors is None:
        demand(found.token_vectors is expected.token_vectors, "token vectors are missing")
        return 1.0
    products = found.token_vectors.astype(np.float64) * expected.token_vectors
    return float(products.sum(axis=-1).min(initial=1.0))


def check_canary(runtime: Runtime, content: dict[str, Any], limits: dict[str, float]) -> None:
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
    demand(similarity >= limits["dense_cosine_min"], "vectors of the canary")
    demand(distance <= limits["sparse_max_abs"], "sparse weights of the canary")


def check_neighbours(
    runtime: Runtime, network: Architecture, seed: int = 0, word_max: float = NEIGHBOURS_WEIGHT_MAX
) -> None:
    """No text sees another one: its outputs are those that it has alone, whatever is beside it.
    Padding gives zeros. Weights of words may differ by `word_max`."""
    choose = random.Random(seed)
    texts = made_up(network, choose)
    alone = runtime.run(texts, network.pooling.value)
    least, largest, of_words = 1.0, 0.0, 0.0
    for _ in range(ROUNDS):
        # All texts in any order; the last row is padding.
        order = list(range(len(texts)))
        choose.shuffle(order)
        rows = [order[first::ROWS] for first in range(ROWS)]
        longest = max(sum(room(len(texts[text])) for text in row) for row in rows)
        length = longest + choose.randrange(SPAN_TOKENS)
        pad, pooling = network.pad_token_id, network.pooling.value
        crowd = batch(texts, [*rows, []], length, pad, pooling)
        ran = runtime.run_rows(crowd.inputs)
        dense, weights = ran["dense"], ran["token_weights"]
        demand(bool(np.isfinite(dense).all() and np.isfinite(weights).all()), "padding gives NaN")
        for text, found in crowd.split(ran).items():
            exact = alone[text]
            least = min(least, cosine(found.dense, exact.dense), least_cosine(found, exact))
            largest = max(largest, float(abs(found.token_weights - exact.token_weights).max()))
            if network.words:
                both = (one.words or {} for one in (found, exact))
                of_words = max(of_words, sparse_distance(*both, network.words.kept))
        is_empty = ~crowd.inputs["span_weights"].any(axis=-1)
        demand(not dense[is_empty].any(), "a span without weights is not zero")
        demand(not weights[crowd.inputs["segments"] < 0].any(), "padding has token weights")
    differs = f"largest weight difference {max(largest, of_words):.8f}"
    say(f"neighbours: cosine min {least:.8f}, {differs} to the same texts alone")
    demand(least >= NEIGHBOURS_COSINE_MIN, "a text's vectors depend on what is beside it")
    is_same = largest <= NEIGHBOURS_WEIGHT_MAX and of_words <= word_max
    demand(is_same, "a text's weights depend on what is beside it")


def made_up(network: Architecture, choose: random.Random) -> list[list[int]]:
    """Token ids of texts from one token to the longest; with few words, so that many repeat."""
    longest = min(network.max_input_tokens, LONG_TOKENS)
    ids = [i for i in range(network.sizes.vocab_rows) if i != network.pad_token_id]
    words = choose.sample(ids, min(len(ids), longest))
    # As many short ones as long ones.
    more = (round(longest ** choose.random()) for _ in range(MADE_UP_TEXTS - 4))
    return [choose.choices(words, k=count) for count in [1, 2, longest - 1, longest, *more]]


def run_all(folder: Path, network: Architecture, precision: Precision) -> None:
    """All checks of the package in `folder`."""
    content, limits = manifest.read(folder), manifest.roomy(LIMITS[precision], network.words)
    runtime = Runtime(folder / "model.onnx")
    # Sums that are added up in another order may be rounded to the next logit of 16 bits.
    single = precision is Precision.FP32
    word_max = NEIGHBOURS_WEIGHT_MAX if single else limits["sparse_max_abs"]
    check_neighbours(runtime, network, word_max=word_max)
    check_canary(runtime, content, limits)


def added(folder: Path, content: dict[str, Any], words: Vocabulary) -> dict[str, Any]:
    """The manifest of the package in `folder` with both, and a word on what they say."""
    graph, pooling = folder / "model.onnx", content["pooling"]
    if LARGEST not in content:
        sequences = corpus(words, content["max_input_tokens"])
        largest = measure(graph, sequences, pooling)
        content = content | {LARGEST: {"texts": len(sequences)} | largest}
    for line in told(content[LARGEST]):
        say(line)
    canary, tokens = content["canary"], content["max_input_tokens"]
    text = long_text(canary["token_ids"], tokens)
    if LONGEST in canary or len(text) != tokens or tokens > LONGEST_MAX:
        return content
    [row] = Runtime(graph).run([text], pooling)
    weights = row.lexical(text, (content["sparse"] or {}).get("dropped_token_ids", ()))
    golden: dict[str, Any] = {"tokens": tokens}
    golden["dense"] = [round(float(value), DIGITS) for value in row.dense]
    golden["sparse"] = [[word, round(weight, DIGITS)] for word, weight in weights.items()]
    say(f"golden numbers of a text of {tokens} tokens are in the manifest")
    return content | {"canary": canary | {LONGEST: golden}}


def long_text(ids: list[int], tokens: int) -> list[int]:
    """The canary's tokens again and again, between its first and its last one.
    `crates/model/src/package/canary.rs` makes the same text."""
    first, *body, last = ids
    return [first, *islice(cycle(body), tokens - 2), last]


def sentences() -> list[str]:
    """Those of texts.jsonl, which was written for this project, and which all checks run on."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines if line]


def corpus(words: Vocabulary, tokens_max: int) -> list[list[int]]:
    """Token ids of the sentences of texts.jsonl, and of all of them as one text."""
    every = sentences()
    found = [words.encode_cut(sentence, tokens_max) for sentence in every]
    return [*found, words.encode_cut(" ".join(every), min(tokens_max, LONG_TOKENS))]


def measure(graph: Path, sequences: list[list[int]], pooling: str) -> dict[str, list[float]]:
    """Kind -> the largest absolute number of each layer, rounded to three digits."""
    core = openvino.Core()
    model = core.read_model(graph)
    peaks, places = [], []
    # In the order of the graph: each tensor is then reduced, and its memory free again, before the
    # next layer runs. All tensors of a large model together fill the memory.
    for output in [output for node in model.get_ordered_ops() for output in node.outputs()]:
        for name in output.names:
            if place := place_of(name):
                axes = list(range(output.partial_shape.rank.get_length()))
                exact = opset13.convert(output, "f32")
                peak = opset13.reduce_max(opset13.abs(exact), axes, keep_dims=False)
                peaks.append(opset13.result(peak))
                places.append(place)
    watched = openvino.Model(peaks, model.get_parameters())
    compiled = core.compile_model(watched, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    layers = 1 + max(layer for layer, _ in places)
    found = {kind: np.zeros(layers) for kind in KINDS}
    for sequence in sequences:
        result = compiled(alone(sequence, pooling).inputs)
        for number, (layer, kind) in enumerate(places):
            found[kind][layer] = max(found[kind][layer], float(result[number]))
    return {kind: [float(f"{v:.3g}") for v in values] for kind, values in found.items()}


def place_of(name: str) -> tuple[int, str] | None:
    """Layer and kind of a tensor."""
    ways = ((kind, re.fullmatch(rf"layer(\d+)\.({names})", name)) for kind, names in KINDS.items())
    return next(((int(found[1]), kind) for kind, found in ways if found), None)


def told(content: dict[str, Any]) -> list[str]:
    """Lines for the person who waits."""
    peaks = {kind: max((v, i) for i, v in enumerate(content[kind])) for kind in KINDS}
    parts = [f"{kind} {value:g} in layer {layer}" for kind, (value, layer) in peaks.items()]
    line = f"largest numbers over {content['texts']} texts: {', '.join(parts)}"
    near = f"these are near {FP16_LARGEST:.0f}, the largest number of fp16"
    cure = "take bf16 for GPUs, --precision bf16 or --bf16-of-package"
    is_near = max(peaks.values())[0] * ROOM > FP16_LARGEST
    return [line, f"{near}: {cure}"] if is_near else [line]
