"""XLM-R and RoBERTa: BGE-M3, bge-reranker, multilingual-e5, arctic-l-v2."""

from .bert import BERT
from .family import Family

XLM_ROBERTA = Family(
    name="xlm-roberta",
    model_types=("xlm-roberta", "roberta", "camembert"),
    names={name: ours for name, ours in BERT.names.items() if not name.startswith("*")}
    | {"*classifier.": "dense0=dense dense1=out_proj"},
    padding_has_positions=True,
)
