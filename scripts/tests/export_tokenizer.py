"""A tokenizer.json of BERT's kind, as published models have it."""

import json
import string
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece() -> dict[str, Any]:
    """A BERT tokenizer over lower-case letters, with the truncation that published ones have."""
    letters = string.ascii_lowercase
    pieces = [*SPECIAL, *letters, *("##" + letter for letter in letters), "what", "is"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    found = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    found.add_special_tokens(SPECIAL)
    found.normalizer = normalizers.Lowercase()
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    found.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, around)
    found.decoder = decoders.WordPiece()
    found.enable_truncation(4)
    content: dict[str, Any] = json.loads(found.to_str())
    return content
