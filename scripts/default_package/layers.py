"""Writes the layers of an encoder: attention and feed-forward, as its family has them."""

import numpy as np

from .encoder import Encoder, Rotary, relative_buckets, tensor_shapes
from .graph_builder import GraphBuilder
from .segments import attention_penalties, relative_bias

FIRST_HALF = ("turn.start", "turn.half", "turn.axis")
SECOND_HALF = ("turn.half", "turn.end", "turn.axis")
"""Of a head: start, end and axis of a slice."""


class Layers:
    """All layers of one encoder in one graph; what they share is written first."""

    def __init__(self, builder: GraphBuilder, encoder: Encoder) -> None:
        self._builder, self._tensor = builder, encoder.tensor
        self._architecture, self._family = encoder.architecture, encoder.architecture.family
        self._sizes, self._scale = encoder.sizes, np.float32(encoder.sizes.head_size**-0.5)
        self._turns: dict[Rotary, tuple[str, str]] = {}
        """Cosines and sines, for those whose tables are written."""
        self._shapes = tensor_shapes(encoder.architecture)
        if self._family.rms:
            builder.floats("rms.power", 2.0)
            builder.floats("rms.epsilon", self._sizes.layer_norm_epsilon)
            builder.ints("rms.axis", -1)
        every = range(self._sizes.layers)
        windows = dict.fromkeys(self._architecture.attention(layer).window for layer in every)
        self._penalties = attention_penalties(builder, windows, causal=self._family.causal)
        if self._family.has("emb.rel"):
            bias = relative_bias(builder, self._tensor("emb.rel")[relative_buckets()])
            self._penalties[None] = builder.op("Add", ["penalty", bias], "penalty.relative")

    def write(self, hidden: str) -> str:
        """The hidden states behind the last layer, of those in front of the first."""
        builder, sizes = self._builder, self._sizes
        builder.ints("heads.split", 0, 0, sizes.heads, sizes.head_size)
        builder.ints("heads.join", 0, 0, sizes.heads * sizes.head_size)
        if sizes.key_heads:
            builder.ints("heads.split.shared", 0, 0, sizes.key_heads, sizes.head_size)
            shared = np.arange(sizes.heads) * sizes.key_heads // sizes.heads
            builder.ints("heads.shared", *shared)
        for layer in range(sizes.layers):
            hidden = self._branch(layer, "attention", "a", hidden)
            hidden = self._branch(layer, "ffn", "o", hidden)
        return self.norm(hidden, "final.norm", "fin.ln")

    def norm(self, source: str, name: str, key: str) -> str:
        """The norm whose weights are the tensors `key`; nothing where there are none."""
        if f"{key}.w" not in self._shapes:
            return source
        weight, bias = self._numbers(key)
        if self._family.norm_adds_one:
            weight = weight + 1
        if key.endswith(".qln"):
            weight = weight * self._scale
        if self._family.rms:
            return self._rms_norm(source, name, weight)
        inputs = [source, self._builder.floats(f"{name}.weight", weight)]
        if bias is not None:
            inputs.append(self._builder.floats(f"{name}.bias", bias))
        epsilon = self._sizes.layer_norm_epsilon
        return self._builder.op("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)

    def _rms_norm(self, source: str, name: str, weight: np.ndarray) -> str:
        """In the form that OpenVINO fuses."""
        builder = self._builder
        squares = builder.op("Pow", [source, "rms.power"], f"{name}.squares")
        mean = builder.op("ReduceMean", [squares, "rms.axis"], f"{name}.mean", keepdims=1)
        safe = builder.op("Add", [mean, "rms.epsilon"], f"{name}.safe")
        root = builder.op("Sqrt", [safe], f"{name}.root")
        share = builder.op("Div", [source, root], f"{name}.share")
        return builder.op("Mul", [share, builder.floats(f"{name}.weight", weight)], name)

    def _branch(self, layer: int, name: str, key: str, hidden: str) -> str:
        """Attention or feed-forward with its sum and its norm, in front of it or behind."""
        builder, prefix = self._builder, f"layer{layer}.{name}"
        norm = f"{prefix}.norm", f"l{layer}.{key}ln"
        before = self._family.norm_before
        source = self.norm(hidden, *norm) if before else hidden
        inner = self._attention(layer, source) if key == "a" else self._active(layer, source)
        part = "ao" if key == "a" else "fo"
        found = builder.linear(inner, f"{prefix}.out", *self._numbers(f"l{layer}.{part}"))
        found = self.norm(found, f"{prefix}.out.norm", f"l{layer}.{key}oln")
        summed = builder.op("Add", [found, hidden], f"{prefix}.sum")
        return summed if before else self.norm(summed, *norm)

    def _numbers(self, key: str) -> tuple[np.ndarray, np.ndarray | None]:
        has_bias = f"{key}.b" in self._shapes
        return self._tensor(f"{key}.w"), self._tensor(f"{key}.b") if has_bias else None

    def _active(self, layer: int, source: str) -> str:
        """The middle of the feed-forward: the activation of one product, or of its gate."""
        builder, prefix = self._builder, f"layer{layer}.ffn"
        wide = builder.linear(source, f"{prefix}.in", *self._numbers(f"l{layer}.fi"))
        if not self._family.has("fg"):
            return self.activated(wide, prefix)
        gate = builder.linear(source, f"{prefix}.gate", *self._numbers(f"l{layer}.fg"))
        return builder.op("Mul", [self.activated(gate, prefix), wide], f"{prefix}.gated")

    def activated(self, source: str, prefix: str) -> str:
        """The activation of the family's networks."""
        if self._family.activation == "silu":
            share = self._builder.op("Sigmoid", [source], f"{prefix}.sigmoid")
            return self._builder.op("Mul", [source, share], f"{prefix}.silu")
        way = "tanh" if self._family.activation == "gelu_tanh" else "none"
        return self._builder.op("Gelu", [source], f"{prefix}.gelu", approximate=way)

    def _attention(self, layer: int, hidden: str) -> str:
        """softmax(q k^T + penalty) v: `[rows, length, width of all heads]`.

        1/sqrt(head size) is inside Wq, or inside the norm of queries.
        """
        builder, prefix = self._builder, f"layer{layer}"
        own = self._architecture.attention(layer)
        orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        heads = {}
        for key, order in orders.items():
            name = f"{prefix}.{key}"
            weight, bias = self._numbers(f"l{layer}.{key}")
            if key == "q" and not self._family.has("qln"):
                weight, bias = weight * self._scale, None if bias is None else bias * self._scale
            flat = builder.linear(hidden, name, weight, bias)
            is_shared = key != "q" and self._sizes.key_heads is not None
            shape = "heads.split.shared" if is_shared else "heads.split"
            split = builder.op("Reshape", [flat, shape], f"{name}.split")
            split = self.norm(split, f"{name}.norm", f"l{layer}.{key}ln")
            if own.rotary and key != "v":
                split = self._turned(split, own.rotary)
            if is_shared:
                split = builder.op("Gather", [split, "heads.shared"], f"{name}.repeated", axis=2)
            heads[key] = builder.op("Transpose", [split], f"{name}.heads", perm=order)
        scores = builder.op("MatMul", [heads["q"], heads["k"]], f"{prefix}.scores")
        masked = builder.op("Add", [scores, self._penalties[own.window]], f"{prefix}.scores.masked")
        shares = builder.op("Softmax", [masked], f"{prefix}.shares", axis=-1)
        mixed = builder.op("MatMul", [shares, heads["v"]], f"{prefix}.mixed")
        back = builder.op("Transpose", [mixed], f"{prefix}.mixed.back", perm=[0, 2, 1, 3])
        return builder.op("Reshape", [back, "heads.join"], f"{prefix}.context")

    def _turned(self, source: str, rotary: Rotary) -> str:
        """Queries or keys `[rows, length, heads, width]`, turned by the angle of their position.

        The two numbers that turn together are half a head apart.
        """
        builder = self._builder
        cosines, sines = self._turns.get(rotary) or self._table_of(rotary)
        first, second = (
            builder.op("Slice", [source, *bounds], f"{source}.{name}")
            for name, bounds in (("first", FIRST_HALF), ("second", SECOND_HALF))
        )
        negative = builder.op("Neg", [second], f"{source}.negative")
        crossed = builder.op("Concat", [negative, first], f"{source}.crossed", axis=-1)
        along = builder.op("Mul", [source, cosines], f"{source}.along")
        across = builder.op("Mul", [crossed, sines], f"{source}.across")
        return builder.op("Add", [along, across], f"{source}.turned")

    def _table_of(self, rotary: Rotary) -> tuple[str, str]:
        """Cosines and sines of each token: f32 `[rows, length, 1, width]`.

        They are looked up, not computed: an engine in 16 bits would round the angles.
        """
        builder, width = self._builder, self._sizes.head_size
        if not self._turns:
            for name, value in (("start", 0), ("half", width // 2), ("end", width), ("axis", -1)):
                builder.ints(f"turn.{name}", value)
            builder.ints("turn.heads", 2)
        angles = np.tile(rotary.angles(self._architecture.max_input_tokens, width), 2)
        both = []
        for kind, value in (("cosines", np.cos(angles)), ("sines", np.sin(angles))):
            name = f"turn{len(self._turns)}.{kind}"
            rows = [builder.floats(f"{name}.table", value), "positions"]
            found = builder.op("Gather", rows, f"{name}.found")
            both.append(builder.op("Unsqueeze", [found, "turn.heads"], name))
        self._turns[rotary] = both[0], both[1]
        return self._turns[rotary]
