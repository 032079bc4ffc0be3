"""Seeded weights of any size: for builds, benches and tests where the shape is what counts.

Vectors of such a model mean nothing, but every token, its place and every weight change them, so
that a mistake in a graph shows.
"""

import hashlib
import math

import numpy as np

from default_package.encoder import (
    WORD_TABLE,
    Architecture,
    Encoder,
    Rows,
    SparseHead,
    tensor_shapes,
)

TABLE_DEVIATIONS = {"emb.pos": 0.3, "emb.type": 0.1}
"""Beside words of deviation 1."""
NORM_DEVIATION = 0.03
"""Of a norm's weights around 1, and of every bias around 0."""
ATTENTION_GAIN = 2.0
"""Of q and k: scores of deviation 4, so that attention picks and does not average."""
BRANCH_GAINS = {"ao": 1.5, "fo": 1.0}
"""Over the root of the number of branches. With more, or with larger biases, all tokens of a text
become one vector after 24 layers, and a graph that mixes them up would not be noticed."""
HEAD_DEVIATION = 0.1
"""Gives token weights of the size that a trained head gives."""
HEAD_METHOD = "seeded random numbers, for tests and benches"


def make(architecture: Architecture, seed: int, *, with_head: bool) -> Encoder:
    """An encoder with these sizes; the same seed gives the same numbers everywhere.

    Each tensor has a stream of its own, made when it is asked for.
    """
    sizes, shapes = architecture.sizes, tensor_shapes(architecture)

    def read(name: str, rows: Rows) -> np.ndarray:
        if name == WORD_TABLE:
            start, stop, _ = (slice(None) if rows is ... else rows).indices(sizes.vocab_rows)
            count = (stop - start) * sizes.hidden
            exact = _stream(seed, name, start * sizes.hidden, count).reshape(-1, sizes.hidden)
            # Graphs store the table as f16: rounded here, the reference sees the same numbers.
            return exact.astype(np.float16).astype(np.float32)
        shape = shapes[name]
        values = _stream(seed, name, 0, math.prod(shape)).reshape(shape)
        values *= _deviation(name, shape, sizes.layers)
        if name.endswith("ln.w"):
            values += 1.0
        return values[rows]

    deviation = np.float32(HEAD_DEVIATION / math.sqrt(sizes.hidden))
    weights = _stream(seed, "head", 0, sizes.hidden) * deviation
    head = SparseHead(weights.tolist(), 0.01, HEAD_METHOD) if with_head else None
    return Encoder(architecture, read, head)


def _deviation(name: str, shape: tuple[int, ...], layers: int) -> np.float32:
    """Matrices keep the size of what goes through them: 1 / sqrt(inputs), times a gain."""
    if name in TABLE_DEVIATIONS:
        return np.float32(TABLE_DEVIATIONS[name])
    if len(shape) == 1:
        return np.float32(NORM_DEVIATION)
    part = name.split(".")[-2]
    gain = ATTENTION_GAIN if part in ("q", "k") else 1.0
    if part in BRANCH_GAINS:
        gain = BRANCH_GAINS[part] / math.sqrt(2.0 * layers)
    return np.float32(gain / math.sqrt(shape[1]))


def _stream(seed: int, name: str, start: int, count: int) -> np.ndarray:
    """Numbers `start` to `start + count` of a tensor, f32: uniform, mean 0, deviation 1.

    One step of PCG64 gives two numbers, so rows start at a whole step only when the width is even.
    """
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    bits = np.random.PCG64(int.from_bytes(key[:16], "little"))
    bits.advance(start // 2)
    values = np.random.Generator(bits).random(count, np.float32)
    values -= np.float32(0.5)
    values *= np.float32(2.0 * math.sqrt(3.0))
    return values
