"""Writes the layers of an encoder: attention and feed-forward, as its family has them."""

import numpy as np

from .encoder import Encoder, relative_buckets
from .graph_builder import GraphBuilder, Linear
from .segments import attention_penalty, relative_bias


class Layers:
    """All layers of one encoder in one graph; what they share is written first."""

    def __init__(self, builder: GraphBuilder, encoder: Encoder) -> None:
        self._builder, self._tensor = builder, encoder.source.tensor
        self._penalty = attention_penalty(builder)
        if encoder.architecture.family.has("emb.rel"):
            bias = relative_bias(builder, self._tensor("emb.rel")[relative_buckets()])
            self._penalty = builder.op("Add", [self._penalty, bias], "penalty.relative")

    def write(self, hidden: str) -> str:
        """The hidden states behind the last layer, of those in front of the first."""
        config = self._builder.config
        self._builder.ints("heads.split", 0, 0, config.heads, config.head_size)
        self._builder.ints("heads.join", 0, 0, config.hidden)
        for layer in range(config.layers):
            hidden = self._layer(layer, hidden)
        return hidden

    def norm(self, source: str, name: str, key: str) -> str:
        """The norm whose weights are the tensors `key`."""
        weight, bias = self._tensor(f"{key}.w"), self._tensor(f"{key}.b")
        return self._builder.layer_norm(source, name, weight, bias)

    def _layer(self, layer: int, hidden: str) -> str:
        """Attention and feed-forward, each followed by add and norm."""
        builder, prefix = self._builder, f"layer{layer}"
        context = self._attention(layer, hidden)
        attended = builder.linear(context, f"{prefix}.attention.out", *self._part(layer, "ao"))
        summed = builder.op("Add", [attended, hidden], f"{prefix}.attention.sum")
        normed = self.norm(summed, f"{prefix}.attention.norm", f"l{layer}.aln")
        wide = builder.linear(normed, f"{prefix}.ffn.in", *self._part(layer, "fi"))
        active = builder.op("Gelu", [wide], f"{prefix}.ffn.gelu", approximate="none")
        narrow = builder.linear(active, f"{prefix}.ffn.out", *self._part(layer, "fo"))
        summed = builder.op("Add", [narrow, normed], f"{prefix}.ffn.sum")
        return self.norm(summed, f"{prefix}.ffn.norm", f"l{layer}.oln")

    def _part(self, layer: int, name: str) -> Linear:
        return self._tensor(f"l{layer}.{name}.w"), self._tensor(f"l{layer}.{name}.b")

    def _attention(self, layer: int, hidden: str) -> str:
        """softmax(q k^T + penalty) v: `[rows, length, hidden]`; 1/sqrt(head size) is inside Wq."""
        builder, prefix = self._builder, f"layer{layer}"
        parts = {key: self._part(layer, key) for key in "qkv"}
        scale = np.float32(builder.config.head_size**-0.5)
        weight, bias = parts["q"]
        parts["q"] = weight * scale, bias * scale
        orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        heads = {}
        for key, order in orders.items():
            name = f"{prefix}.{key}"
            flat = builder.projection(hidden, prefix, key, parts)
            split = builder.op("Reshape", [flat, "heads.split"], f"{name}.split")
            heads[key] = builder.op("Transpose", [split], f"{name}.heads", perm=order)
        scores = builder.op("MatMul", [heads["q"], heads["k"]], f"{prefix}.scores")
        masked = builder.op("Add", [scores, self._penalty], f"{prefix}.scores.masked")
        shares = builder.op("Softmax", [masked], f"{prefix}.shares", axis=-1)
        mixed = builder.op("MatMul", [shares, heads["v"]], f"{prefix}.mixed")
        back = builder.op("Transpose", [mixed], f"{prefix}.mixed.back", perm=[0, 2, 1, 3])
        return builder.op("Reshape", [back, "heads.join"], f"{prefix}.context")
