"""XLM-R's reference tokenizer: sentencepiece's own library around the vocabulary's pieces.

Nothing of it is shared with the server: neither `tokenizers` nor tokenizer.json has a part in it.
XLM-R's model file itself is in no registry, so it is put together again from the pieces and scores
(sentencepiece_model.proto) and the map `nmt_nfkc` that sentencepiece carries.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import sentencepiece

from default_package.tokenizer import ZERO_WIDTH_JOINER, charsmap

UNKNOWN, CONTROL, NORMAL = 2, 3, 1
"""Kinds of a piece in the model file."""
UNIGRAM = 1
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
    """ModelProto: field 1 the pieces, 2 the trainer's settings, 3 the normalizer's."""
    parts = [_piece("<unk>", 0.0, UNKNOWN), _piece("<s>", 0.0, CONTROL)]
    parts.append(_piece("</s>", 0.0, CONTROL))
    last = len(pieces) - 1
    for piece, score in zip(pieces[FIRST_NORMAL:last], scores[FIRST_NORMAL:last], strict=True):
        parts.append(_piece(piece, float(score), NORMAL))
    # Add a dummy prefix, remove extra spaces, escape spaces.
    switches = _number(3, 1) + _number(4, 1) + _number(5, 1)
    normalizer = _bytes(1, b"nmt_nfkc") + _bytes(2, charsmap()) + switches
    return b"".join([*parts, _bytes(2, _number(3, UNIGRAM)), _bytes(3, normalizer)])


def _piece(text: str, score: float, kind: int) -> bytes:
    return _bytes(1, _bytes(1, text.encode()) + _float(2, score) + _number(3, kind))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _float(field: int, number: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", number)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
