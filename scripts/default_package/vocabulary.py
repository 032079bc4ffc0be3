"""What the manifest needs of a tokenizer.json, and the file as the package gets it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from .errors import PackageError


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and the ids that the server has to know."""

    text: str
    """Of the file in the package: truncation and padding, which are the server's, are taken out."""
    tokenizer: tokenizers.Tokenizer
    size: int
    """Ids are below it."""
    bos: int | None
    """In front of every text; this one or the next may be absent."""
    eos: int | None
    pad: int
    unk: int
    has_charsmap: bool
    """Whether it is of XLM-R's kind, which can be read in two ways."""

    @property
    def special_ids(self) -> list[int]:
        """Ascending; they stand for no word, so they have no lexical weight."""
        found = {self.bos, self.eos, self.pad, self.unk}
        return sorted(token_id for token_id in found if token_id is not None)

    @property
    def wordless_ids(self) -> list[int]:
        """These and all others that stand for no word."""
        added = self.tokenizer.get_added_tokens_decoder().items()
        return sorted({*self.special_ids, *(token for token, about in added if about.special)})

    @property
    def separator(self) -> int | None:
        """The token behind which those of a pair of texts have type 1; none if all have type 0."""
        pair = self.tokenizer.encode("a", "a")
        first = pair.type_ids.count(0)
        if pair.type_ids != [0] * first + [1] * (len(pair.ids) - first):
            raise PackageError(
                f"tokenizer.json gives the tokens of a pair the types {pair.type_ids}: only type 0 "
                "as far as the first separator and type 1 behind it can be exported"
            )
        return pair.ids[first - 1] if first < len(pair.ids) else None

    def encode(self, text: str) -> list[int]:
        """Ids with the special ones."""
        return self.tokenizer.encode(text).ids

    def encode_cut(self, text: str, tokens_max: int) -> list[int]:
        """Ids with the special ones, of which the last stays where the text is too long."""
        ids = self.encode(text)
        return ids if len(ids) <= tokens_max else [*ids[: tokens_max - 1], ids[-1]]

    def encode_within(self, text: str, tokens_max: int) -> tuple[str, list[int]]:
        """The longest beginning of `text`, in whole words, that fits, and its ids."""
        words = text.split(" ")
        while words:
            beginning = " ".join(words)
            ids = self.encode(beginning)
            if len(ids) <= tokens_max:
                return beginning, ids
            words.pop()
        return "", self.encode("")


def read(path: Path, pad_token_id: int) -> Vocabulary:
    """That of a tokenizer.json, loaded as the server loads it."""
    return parse(path.read_text(encoding="utf-8"), pad_token_id, str(path))


def parse(text: str, pad_token_id: int, path: str = "tokenizer.json") -> Vocabulary:
    """That of the text of a tokenizer.json, which stands in `path`."""
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # The library raises nothing narrower.
        raise PackageError(f"{path} is not a tokenizer that can be read: {error}") from error
    content = json.loads(text)
    if content.get("truncation") or content.get("padding"):
        content["truncation"] = content["padding"] = None
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        tokenizer = tokenizers.Tokenizer.from_str(text)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if (largest := max(tokenizer.get_vocab(with_added_tokens=True).values())) >= size:
        raise PackageError(f"{path} has {size} tokens but the id {largest}: ids have gaps")
    if pad_token_id >= size:
        raise PackageError(f"config.json has pad_token_id {pad_token_id}, {path} {size} tokens")
    around = _around(tokenizer)
    if around is None or around == (None, None):
        raise PackageError(
            f"{path} gives {len(tokenizer.encode('').ids)} tokens for an empty text, not a first "
            "or a last one or both"
        )
    unk = _unknown(path, content, tokenizer, pad_token_id)
    return Vocabulary(text, tokenizer, size, *around, pad_token_id, unk, _has_charsmap(content))


def _around(tokenizer: tokenizers.Tokenizer) -> tuple[int | None, int | None] | None:
    """The special tokens in front of and behind a text; nothing where there are more."""
    whole = tokenizer.encode("a").ids
    own = tokenizer.encode("a", add_special_tokens=False).ids
    for before in (0, 1):
        end = before + len(own)
        if whole[before:end] == own and len(whole) <= end + 1:
            return whole[0] if before else None, whole[end] if len(whole) > end else None
    return None


def _has_charsmap(content: dict[str, Any]) -> bool:
    """Whether Unigram pieces stand behind sentencepiece's character map."""
    normalizer = content.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    has_map = any(step.get("type") == "Precompiled" for step in steps)
    return has_map and content["model"].get("type") == "Unigram"


def _unknown(path: str, content: dict[str, Any], tokenizer: tokenizers.Tokenizer, pad: int) -> int:
    """By id in Unigram, by its text in WordPiece and BPE.

    The pieces of BPE over bytes make any text: then the padding stands for what never comes.
    """
    model = content["model"]
    found = model.get("unk_id")
    if found is None and model.get("unk_token") is not None:
        found = tokenizer.token_to_id(model["unk_token"])
    if found is None and "ByteLevel" in json.dumps(content.get("pre_tokenizer")):
        found = pad
    if not isinstance(found, int):
        raise PackageError(f"{path} names no token for unknown text")
    return found
