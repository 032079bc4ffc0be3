"""XLM-R and RoBERTa: BGE-M3, bge-reranker, multilingual-e5, arctic-l-v2."""

from .bert import BERT
from .family import Family, Scorer

XLM_ROBERTA = Family(
    name="xlm-roberta",
    model_types=("xlm-roberta", "roberta", "camembert"),
    names=BERT.names,
    padding_has_positions=True,
    scorer=Scorer("classifier.dense", "classifier.out_proj"),
)
