"""Kinds of networks as data: one file each, for all that reads, writes or computes them.

They must be importable without numpy.
"""

from .bert import BERT
from .distilbert import DISTILBERT
from .gemma3 import GEMMA3
from .gte import GTE
from .modernbert import MODERNBERT
from .mpnet import MPNET
from .nomic_bert import NOMIC_BERT
from .qwen3 import QWEN3
from .xlm_roberta import XLM_ROBERTA

FAMILIES = (BERT, XLM_ROBERTA, DISTILBERT, MPNET, NOMIC_BERT, GTE, MODERNBERT, QWEN3, GEMMA3)
