"""The sparse head: what turns hidden states into lexical weights, kept in sparse_head.json.

The value of a position is `weights . hidden + bias of its piece + repeat_weight * log(how often the
text has it)`, where a piece's bias is `bias + surprisal_weight * surprisal`. Its weight is
relu(value), divided by the L2 norm of all its text's weights raised to `norm_exponent`: passages of
different lengths become comparable, as BM25 makes them by their length. A head may have none of
these but weights and bias, as BGE-M3's.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .json_file import read_json
from .weights import Vocabulary

PATH = Path(__file__).with_name("sparse_head.json")
SURPRISAL_UNIT = 10.0
"""In nats: keeps surprisals near one, where hidden units are too."""
SPECIAL_BIAS = -10_000.0
"""Of special pieces: their weight is zero, and the number is finite in every precision."""
NORM_FLOOR = 1e-6
"""Smallest norm, so that a text without weights gives zeros, not NaN."""


@dataclass(frozen=True)
class SparseHead:
    """The numbers of a head."""

    weights: list[float]
    bias: float
    method: str
    """One sentence: how it was made."""
    piece_biases: np.ndarray | None = None
    """f32 `[vocabulary]`: in the place of `bias`, where the head reads surprisals too."""
    repeat_weight: float = 0.0
    norm_exponent: float = 0.0


def load(vocabulary: Vocabulary) -> SparseHead:
    """The head of the default package, in the file that its training wrote."""
    stored = read_json(PATH, "repository")
    names = ("weights", "bias", "method", "repeat_weight", "norm_exponent")
    biases = _piece_biases(stored["bias"], stored["surprisal_weight"], vocabulary)
    return SparseHead(**{name: stored[name] for name in names}, piece_biases=biases)


def _piece_biases(bias: float, surprisal_weight: float, vocabulary: Vocabulary) -> np.ndarray:
    """How rare a piece is follows from the vocabulary's Unigram scores: a score is the natural
    logarithm of the piece's probability in the text that the vocabulary was made from."""
    surprisals = np.asarray(vocabulary.scores, np.float32) / np.float32(-SURPRISAL_UNIT)
    found = surprisal_weight * surprisals + bias
    found[[vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk]] = SPECIAL_BIAS
    return found
