"""Writes tokenizer.json: XLM-R's Unigram tokenizer, in the format the `tokenizers` crate reads."""

import sentencepiece
import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from .wheel import Vocabulary

CHARSMAP_RULE = "nmt_nfkc"
"""The normalization XLM-R's vocabulary was trained with; `sentencepiece` carries it by name."""
ZERO_WIDTH_JOINER = "\u200d"
"""A space in the map XLM-R was trained with, but no longer in today's; many emoji and some Indic
words contain it."""


def charsmap() -> bytes:
    """The compiled character map of CHARSMAP_RULE."""
    return compiled(sentencepiece.SentencePieceNormalizer(rule_name=CHARSMAP_RULE))


def compiled(normalizer: sentencepiece.SentencePieceNormalizer) -> bytes:
    """A normalizer's character map."""
    model = ModelProto.FromString(normalizer.serialized_model_proto())
    return model.normalizer_spec.precompiled_charsmap


def build(vocabulary: Vocabulary) -> str:
    """The text of tokenizer.json."""
    return assemble(
        vocabulary,
        normalizers.Replace(ZERO_WIDTH_JOINER, " "),
        normalizers.Precompiled(charsmap()),
        normalizers.Replace(Regex(" {2,}"), " "),
    )


def assemble(vocabulary: Vocabulary, *steps: normalizers.Normalizer) -> str:
    """tokenizer.json around a vocabulary and steps of a normalizer."""
    scores = map(float, vocabulary.scores)
    unigram = list(zip(vocabulary.pieces, scores, strict=True))
    made = tokenizers.Tokenizer(models.Unigram(unigram, vocabulary.unk, byte_fallback=False))
    # Special pieces are never split.
    special = ("<s>", "<pad>", "</s>", "<unk>")
    made.add_special_tokens([AddedToken(piece, normalized=False) for piece in special])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.normalizer = normalizers.Sequence(list(steps))
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    # Of a pair as XLM-R has it.
    ends = [("<s>", vocabulary.bos), ("</s>", vocabulary.eos)]
    pair = "<s> $A </s> </s> $B </s>"
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, ends)
    made.decoder = decoders.Metaspace()
    return made.to_str()
