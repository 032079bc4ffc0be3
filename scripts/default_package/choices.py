"""What the command line can choose; it must be importable without numpy."""

from enum import Enum


class Pooling(Enum):
    """How hidden states become one vector."""

    CLS = "cls"
    MEAN = "mean"
    LAST = "last"
    SPLADE = "splade"
    """For exports alone: lexical weights of any words, and no vector."""


class Precision(Enum):
    """Of weights and matrix products; the value is the command line's word."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def bytes(self) -> int:
        """Of one number."""
        return 4 if self is Precision.FP32 else 2


FORMAT_VERSION = 2
"""Of what a graph takes and gives: the second has several texts in a row."""
NORMALIZATIONS = ("sentencepiece", "huggingface")
"""Of an XLM-R tokenizer: as the model was trained, or as most other servers have it."""
SHAPES = {
    "bge-m3": {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "positions": 8194},
    "small": {"layers": 3, "hidden": 256, "heads": 4, "ffn": 1024, "positions": 514},
}
"""Sizes of networks with random weights."""
