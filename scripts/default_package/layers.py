"""Writes the layers of an encoder: attention and feed-forward, as its family has them, and what a
graph makes of `segments`, which positions belong to one text."""

from pathlib import Path

import numpy as np

from .encoder import Encoder, Rotary, relative_buckets, tensor_shapes
from .graph_builder import GraphBuilder

PENALTY = -10000.0
"""Added to the attention scores of other texts: exp() of it is zero, and even with a large negative
score added it stays a finite fp16 number (whose lowest is -65504)."""
SAME_TEXT = "segments.same"  # bool `[rows, 1, length, length]`: of each pair of positions
ZERO = "zero"
COLUMN_AXES, ROW_AXES = ("pairs.column.axes", [1, 3]), ("pairs.row.axes", [1, 2])
"""Which axes a position's own number does not have."""
FIRST_HALF = ("turn.start", "turn.half", "turn.axis")
SECOND_HALF = ("turn.half", "turn.end", "turn.axis")  # of a head: start, end and axis of a slice


class Layers(GraphBuilder):
    """The graph of one encoder; what its layers share is written first."""

    def __init__(self, path: Path, encoder: Encoder) -> None:
        super().__init__(path)
        self.encoder, self.architecture, self.sizes = encoder, encoder.architecture, encoder.sizes
        self.family, self._scale = self.architecture.family, np.float32(self.sizes.head_size**-0.5)
        self._turns: dict[Rotary, tuple[str, str]] = {}
        """Cosines and sines, for those whose tables are written."""
        self._shapes = tensor_shapes(self.architecture)
        if self.family.rms:
            self.floats("rms.power", 2.0)
            self.floats("rms.epsilon", self.sizes.layer_norm_epsilon)
            self.number("rms.axis", [-1])
        self._penalties: dict[int | None, str] = {}
        """Window -> 0 where a token sees another and PENALTY elsewhere: f32 `[rows, 1, length,
        length]`. It sees its text as far as the window, if there is one. Padding sees padding, so
        that all of it stays finite."""
        self._write_penalties()

    def write(self, hidden: str) -> str:
        """The hidden states behind the last layer, of those in front of the first."""
        sizes = self.sizes
        self.number("heads.split", [0, 0, sizes.heads, sizes.head_size])
        self.number("heads.join", [0, 0, sizes.heads * sizes.head_size])
        if sizes.key_heads:
            self.number("heads.split.shared", [0, 0, sizes.key_heads, sizes.head_size])
            shared = np.arange(sizes.heads) * sizes.key_heads // sizes.heads
            self.number("heads.shared", shared.tolist())
        for layer in range(sizes.layers):
            hidden = self._branch(layer, "attention", "a", hidden)
            hidden = self._branch(layer, "ffn", "o", hidden)
        return self.norm(hidden, "final.norm", "fin.ln")

    def norm(self, source: str, name: str, key: str) -> str:
        """The norm whose weights are the tensors `key`; nothing where there are none."""
        if f"{key}.w" not in self._shapes:
            return source
        weight, bias = self.numbers(key)
        if self.family.norm_adds_one:
            weight = weight + 1
        if key.endswith(".qln"):
            weight = weight * self._scale
        if not self.family.rms:
            inputs = [source, (f"{name}.weight", weight)]
            inputs += [] if bias is None else [(f"{name}.bias", bias)]
            epsilon = self.sizes.layer_norm_epsilon
            return self.op("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)
        # In the form that OpenVINO fuses.
        squares = self.op("Pow", [source, "rms.power"], f"{name}.squares")
        mean = self.op("ReduceMean", [squares, "rms.axis"], f"{name}.mean", keepdims=1)
        safe = self.op("Add", [mean, "rms.epsilon"], f"{name}.safe")
        root = self.op("Sqrt", [safe], f"{name}.root")
        share = self.op("Div", [source, root], f"{name}.share")
        return self.op("Mul", [share, (f"{name}.weight", weight)], name)

    def numbers(self, key: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Weight and bias, if there is one, of the tensors `key`."""
        tensor, has_bias = self.encoder.tensor, f"{key}.b" in self._shapes
        return tensor(f"{key}.w"), tensor(f"{key}.b") if has_bias else None

    def activated(self, source: str, prefix: str) -> str:
        """The activation of the family's networks."""
        if self.family.activation == "silu":
            share = self.op("Sigmoid", [source], f"{prefix}.sigmoid")
            return self.op("Mul", [source, share], f"{prefix}.silu")
        way = "tanh" if self.family.activation == "gelu_tanh" else "none"
        return self.op("Gelu", [source], f"{prefix}.gelu", approximate=way)

    def distance_of_pairs(self) -> str:
        """Position of the second of each pair minus that of the first: int32, of its own text."""
        sides = [self.as_row("positions"), self.as_column("positions")]
        return self.op("Sub", sides, "pairs.distance")

    def as_column(self, source: str) -> str:
        """`[rows, length]` -> `[rows, 1, length, 1]`, for the first of each pair."""
        return self.op("Unsqueeze", [source, COLUMN_AXES], f"{source}.column")

    def as_row(self, source: str) -> str:
        """`[rows, length]` -> `[rows, 1, 1, length]`, for the second of each pair."""
        return self.op("Unsqueeze", [source, ROW_AXES], f"{source}.row")

    def _write_penalties(self) -> None:
        every, causal = range(self.sizes.layers), self.family.causal
        windows = dict.fromkeys(self.architecture.attention(layer).window for layer in every)
        # Numbers that are compared must be below 2^24: OpenVINO takes them as f32.
        sides = [self.as_column("segments"), self.as_row("segments")]
        same = self.op("Equal", sides, SAME_TEXT)
        distance = self.distance_of_pairs() if causal or any(windows) else ""
        if causal:
            before = self.op("LessOrEqual", [distance, ("causal.here", 0)], "causal.before")
            same = self.op("And", [same, before], "causal.seen")
        choices = [self.floats(ZERO, 0.0), self.floats("penalty.number", PENALTY)]
        if None in windows:
            self._penalties[None] = self.op("Where", [same, *choices], "penalty")
        for window in filter(None, windows):
            name = f"window{window}"
            far = self.op("Abs", [distance], f"{name}.far")
            near = self.op("LessOrEqual", [far, (name, window)], f"{name}.near")
            seen = self.op("And", [same, near], f"{name}.seen")
            self._penalties[window] = self.op("Where", [seen, *choices], f"penalty.{name}")
        if self.family.has("emb.rel"):
            sides = ["penalty", self._relative_bias()]
            self._penalties[None] = self.op("Add", sides, "penalty.relative")

    def _relative_bias(self) -> str:
        """What each head adds for the distance of key and query: f32 `[rows, heads, length,
        length]`. Further distances than there are in the table are like its first and its last."""
        by_distance = self.encoder.tensor("emb.rel")[relative_buckets()]
        reach, distance = len(by_distance) // 2, self.distance_of_pairs()
        largest = ("pairs.distance.largest", reach)
        # Not Clip, which TensorRT has for floats only.
        near = self.op("Max", [distance, ("pairs.distance.least", -reach)], "pairs.distance.from")
        near = self.op("Min", [near, largest], "pairs.distance.near")
        place = self.op("Add", [near, largest], "pairs.distance.place")
        flat = self.op("Squeeze", [place, ("pairs.axis", [1])], "pairs.distance.flat")
        found = self.op("Gather", [("relative.table", by_distance), flat], "relative.found")
        return self.op("Transpose", [found], "relative", perm=[0, 3, 1, 2])

    def _branch(self, layer: int, name: str, key: str, hidden: str) -> str:
        """Attention or feed-forward with its sum and its norm, in front of it or behind."""
        prefix, tensors = f"layer{layer}.{name}", f"l{layer}.{key}"
        norm, before = (f"{prefix}.norm", f"{tensors}ln"), self.family.norm_before
        source = self.norm(hidden, *norm) if before else hidden
        if key == "a":
            inner, part = self._attention(layer, source), "ao"
        else:
            inner, part = self._active(layer, source), "fo"
        found = self.linear(inner, f"{prefix}.out", *self.numbers(f"l{layer}.{part}"))
        found = self.norm(found, f"{prefix}.out.norm", f"{tensors}oln")
        summed = self.op("Add", [found, hidden], f"{prefix}.sum")
        return summed if before else self.norm(summed, *norm)

    def _active(self, layer: int, source: str) -> str:
        """The middle of the feed-forward: the activation of one product, or of its gate."""
        prefix = f"layer{layer}.ffn"
        wide = self.linear(source, f"{prefix}.in", *self.numbers(f"l{layer}.fi"))
        if not self.family.has("fg"):
            return self.activated(wide, prefix)
        gate = self.linear(source, f"{prefix}.gate", *self.numbers(f"l{layer}.fg"))
        return self.op("Mul", [self.activated(gate, prefix), wide], f"{prefix}.gated")

    def _attention(self, layer: int, hidden: str) -> str:
        """softmax(q k^T + penalty) v: `[rows, length, width of all heads]`. 1/sqrt(head size) is
        inside Wq, or inside the norm of queries."""
        prefix, own, heads = f"layer{layer}", self.architecture.attention(layer), {}
        for key, order in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items():
            name = f"{prefix}.{key}"
            weight, bias = self.numbers(f"l{layer}.{key}")
            if key == "q" and not self.family.has("qln"):
                weight, bias = weight * self._scale, None if bias is None else bias * self._scale
            flat = self.linear(hidden, name, weight, bias)
            is_shared = key != "q" and self.sizes.key_heads is not None
            shape = "heads.split.shared" if is_shared else "heads.split"
            split = self.op("Reshape", [flat, shape], f"{name}.split")
            split = self.norm(split, f"{name}.norm", f"l{layer}.{key}ln")
            if own.rotary and key != "v":
                split = self._turned(split, own.rotary)
            if is_shared:
                split = self.op("Gather", [split, "heads.shared"], f"{name}.repeated", axis=2)
            heads[key] = self.op("Transpose", [split], f"{name}.heads", perm=order)
        scores = self.op("MatMul", [heads["q"], heads["k"]], f"{prefix}.scores")
        masked = self.op("Add", [scores, self._penalties[own.window]], f"{prefix}.scores.masked")
        shares = self.op("Softmax", [masked], f"{prefix}.shares", axis=-1)
        mixed = self.op("MatMul", [shares, heads["v"]], f"{prefix}.mixed")
        back = self.op("Transpose", [mixed], f"{prefix}.mixed.back", perm=[0, 2, 1, 3])
        return self.op("Reshape", [back, "heads.join"], f"{prefix}.context")

    def _turned(self, source: str, rotary: Rotary) -> str:
        """Queries or keys `[rows, length, heads, width]`, turned by the angle of their position.
        The two numbers that turn together are half a head apart."""
        cosines, sines = self._turns.get(rotary) or self._table_of(rotary)
        first = self.op("Slice", [source, *FIRST_HALF], f"{source}.first")
        second = self.op("Slice", [source, *SECOND_HALF], f"{source}.second")
        negative = self.op("Neg", [second], f"{source}.negative")
        crossed = self.op("Concat", [negative, first], f"{source}.crossed", axis=-1)
        along = self.op("Mul", [source, cosines], f"{source}.along")
        across = self.op("Mul", [crossed, sines], f"{source}.across")
        return self.op("Add", [along, across], f"{source}.turned")

    def _table_of(self, rotary: Rotary) -> tuple[str, str]:
        """Cosines and sines of each token: f32 `[rows, length, 1, width]`. They are looked up, not
        computed: an engine in 16 bits would round the angles."""
        width = self.sizes.head_size
        if not self._turns:
            for name, value in (("start", 0), ("half", width // 2), ("end", width), ("axis", -1)):
                self.number(f"turn.{name}", [value])
            self.number("turn.heads", [2])
        angles = np.tile(rotary.angles(self.architecture.max_input_tokens, width), 2)
        both = []
        for kind, value in (("cosines", np.cos(angles)), ("sines", np.sin(angles))):
            name = f"turn{len(self._turns)}.{kind}"
            found = self.op("Gather", [(f"{name}.table", value), "positions"], f"{name}.found")
            both.append(self.op("Unsqueeze", [found, "turn.heads"], name))
        self._turns[rotary] = both[0], both[1]
        return self._turns[rotary]
