"""XLM-R's reference tokenizer: sentencepiece's own library around the vocabulary's pieces.

Nothing of it is shared with the server: neither `tokenizers` nor tokenizer.json has a part in it.
XLM-R's model file itself is in no registry, so it is put together again from the pieces and scores
(sentencepiece_model.proto) and the map `nmt_nfkc` that sentencepiece carries.
"""

import re
from collections.abc import Sequence

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from default_package.wheel import CHARSMAP_RULE, ZERO_WIDTH_JOINER, charsmap

FIRST_NORMAL = 4
"""XLM-R's ids: `<s> <pad> </s> <unk>`, then the pieces of the model file behind its own three."""
SHIFT = 1
"""From the model file's ids to XLM-R's."""
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
MASK = "<mask>"


class SentencepieceTokenizer:
    """Text -> XLM-R's token ids, without `<s>` and `</s>` around them."""

    def __init__(self, pieces: Sequence[str], scores: Sequence[float]) -> None:
        """`pieces` by token id: the four special ones first and `<mask>` last."""
        if list(pieces[:FIRST_NORMAL]) != list(SPECIAL) or pieces[-1] != MASK:
            raise ValueError("these are not XLM-R's pieces")
        self._special = {**SPECIAL, MASK: len(pieces) - 1}
        self._literals = re.compile("|".join(f"({re.escape(s)})" for s in self._special))
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(_model_file(pieces, scores))

    def encode(self, text: str, *, escape: bool) -> list[int]:
        """Special tokens written in the text become those tokens, with `escape` plain text."""
        if escape:
            return self._plain(text)
        ids: list[int] = []
        start = 0
        for literal in self._literals.finditer(text):
            before = text[start : literal.start()]
            # XLM-R's <mask> takes the spaces in front of it, a next-line character among them.
            ids += self._plain(before.rstrip() if literal.group() == MASK else before)
            ids.append(self._special[literal.group()])
            start = literal.end()
        return ids + self._plain(text[start:])

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        # XLM-R's map made it a space, today's leaves it.
        found = self._processor.encode(text.replace(ZERO_WIDTH_JOINER, " "))
        return [SPECIAL["<unk>"] if i == 0 else i + SHIFT for i in found]


def _model_file(pieces: Sequence[str], scores: Sequence[float]) -> bytes:
    """The pieces, the kind of the model, and the normalizer with its three switches."""
    model = ModelProto()
    kinds = ModelProto.SentencePiece
    for piece, kind in (("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)):
        model.pieces.add(piece=piece, score=0.0, type=kind)
    last = len(pieces) - 1
    for piece, score in zip(pieces[FIRST_NORMAL:last], scores[FIRST_NORMAL:last], strict=True):
        model.pieces.add(piece=piece, score=score, type=kinds.NORMAL)
    model.trainer_spec.model_type = TrainerSpec.UNIGRAM
    normalizer = model.normalizer_spec
    normalizer.name, normalizer.precompiled_charsmap = CHARSMAP_RULE, charsmap()
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = True
    normalizer.escape_whitespaces = True
    return model.SerializeToString()
