"""The largest numbers in a graph's layers while texts run through it: whether fp16 holds them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from default_package import rows, texts
from default_package.command import say
from default_package.vocabulary import Vocabulary

KEY = "largest"
"""Of the manifest."""
FP16_LARGEST = float(np.finfo(np.float16).max)
ROOM = 8
"""Times as far as these texts, others may reach."""
LONG_TOKENS = 512
"""Of the longest text: scores of a layer take 1 MB for each head."""
KINDS = {
    "scores": r"scores",
    "feed_forward": r"ffn\.(in|gate|gelu|gated|out)(\.product)?",
    "values": r"v",
    "other": r"([qk]|qkv|attention\.out)(\.product)?|[qk]\.heads|mixed|(attention|ffn)\.norm",
}
"""Of a layer's numbers, those that graphs in 16 bits hold in 16 bits: name of the list -> tensors.
A score is counted as it is before the softmax, between all tokens of a row."""


def added(folder: Path, content: dict[str, Any], words: Vocabulary) -> dict[str, Any]:
    """The manifest of the package in `folder` with them, and a word on what they say."""
    if KEY not in content:
        sequences = corpus(words, content["max_input_tokens"])
        batches = list(rows.batches(sequences, words.pad, content["pooling"]))
        found = measure(folder / "model.onnx", batches)
        content = content | {KEY: {"texts": len(sequences)} | found}
    for line in told(content[KEY]):
        say(line)
    return content


def corpus(words: Vocabulary, tokens_max: int) -> list[list[int]]:
    """Token ids of the sentences of texts.jsonl, and of all of them as one text."""
    sentences = [line.text for line in texts.load()]

    def cut(ids: list[int], limit: int) -> list[int]:
        return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]

    found = [cut(words.encode(sentence), tokens_max) for sentence in sentences]
    return [*found, cut(words.encode(" ".join(sentences)), min(tokens_max, LONG_TOKENS))]


def measure(graph: Path, batches: list[rows.Batch]) -> dict[str, list[float]]:
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
    for batch in batches:
        result = compiled(batch.inputs)
        for number, (layer, kind) in enumerate(places):
            found[kind][layer] = max(found[kind][layer], float(result[number]))
    return {kind: [float(f"{v:.3g}") for v in values] for kind, values in found.items()}


def place_of(name: str) -> tuple[int, str] | None:
    """Layer and kind of a tensor."""
    found = re.fullmatch(r"layer(\d+)\.(.+)", name)
    kinds = [kind for kind, names in KINDS.items() if found and re.fullmatch(names, found[2])]
    return (int(found[1]), kinds[0]) if found and kinds else None


def told(content: dict[str, Any]) -> list[str]:
    """Lines for the person who waits."""
    peaks = {kind: max((v, i) for i, v in enumerate(content[kind])) for kind in KINDS}
    parts = [f"{kind} {value:g} in layer {layer}" for kind, (value, layer) in peaks.items()]
    lines = [f"largest numbers over {content['texts']} texts: {', '.join(parts)}"]
    if max(peaks.values())[0] * ROOM > FP16_LARGEST:
        lines.append(
            f"these are near {FP16_LARGEST:.0f}, the largest number of fp16: take bf16 for GPUs, "
            "--precision bf16 or --bf16-of-package"
        )
    return lines
