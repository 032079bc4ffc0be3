"""What an f32 graph gives while texts run through it, for the manifest: the largest numbers
of its layers, which say whether fp16 holds them, and golden numbers of a text of the greatest
length, which say what a GPU's plan must give for long rows.
"""

import json
import re
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from default_package.checks import Runtime, alone
from default_package.command import SCRIPTS, say
from default_package.vocabulary import Vocabulary

TEXTS = SCRIPTS / "default_package/texts.jsonl"
LARGEST = "largest"  # of the manifest
LONGEST = "longest"  # of the manifest's canary
LONGEST_MAX = 8192
"""Tokens of its text: one of 32,768 would take a CPU half an hour, and many gigabytes."""
DIGITS = 5
"""Of golden numbers, that all processors agree on: sums of f32 are in another order on each."""
FP16_LARGEST = float(np.finfo(np.float16).max)
ROOM = 8  # times as far as these texts, others may reach
LONG_TOKENS = 512  # of the longest text: scores of a layer take 1 MB for each head
KINDS = {
    "scores": r"scores",
    "feed_forward": r"ffn\.(in|gate|gelu|gated|out)(\.product)?",
    "values": r"v",
    "other": r"([qk]|qkv|attention\.out)(\.product)?|[qk]\.heads|mixed|(attention|ffn)\.norm",
}
"""Of a layer's numbers, those that graphs in 16 bits hold in 16 bits: name of the list -> tensors.
A score is counted as it is before the softmax."""


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
