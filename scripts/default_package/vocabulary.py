"""What the manifest needs of a tokenizer.json, and the file as the package gets it."""

import json
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from .errors import PackageError


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and the ids that the server has to know."""

    text: str
    """Of the file in the package: truncation and padding, which are the server's, are taken out."""
    tokenizer: tokenizers.Tokenizer
    size: int  # ids are below it
    bos: int | None  # in front of every text; this one or the next may be absent
    eos: int | None
    pad: int
    unk: int
    has_charsmap: bool  # whether it is of XLM-R's kind, which can be read in two ways

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
            found = f"tokenizer.json gives the tokens of a pair the types {pair.type_ids}"
            only = "only type 0 as far as the first separator and type 1 behind it can be exported"
            raise PackageError(f"{found}: {only}")
        return pair.ids[first - 1] if first < len(pair.ids) else None

    def encode_cut(self, text: str, tokens_max: int) -> list[int]:
        """Ids with the special ones, of which the last stays where the text is too long."""
        ids = self.tokenizer.encode(text).ids
        return ids if len(ids) <= tokens_max else [*ids[: tokens_max - 1], ids[-1]]

    def encode_within(self, text: str, tokens_max: int) -> tuple[str, list[int]]:
        """The longest beginning of `text`, in whole words, that fits, and its ids."""
        words = text.split(" ")
        beginnings = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
        found = ((one, self.tokenizer.encode(one).ids) for one in (*beginnings, ""))
        return next(one for one in found if len(one[1]) <= tokens_max or not one[0])


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
    whole, own = tokenizer.encode("a").ids, tokenizer.encode("a", add_special_tokens=False).ids
    count = len(own)
    ways = (at for at in (0, 1) if whole[at : at + count] == own and len(whole) <= at + count + 1)
    first = next(ways, None)
    if first is None or whole == own:
        tokens = f"{len(tokenizer.encode('').ids)} tokens for an empty text"
        raise PackageError(f"{path} gives {tokens}, not a first or a last one or both")
    bos, eos = whole[0] if first else None, (*whole[first + count :], None)[0]
    # Unigram pieces behind sentencepiece's character map are XLM-R's.
    model, normalizer = content["model"], content.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    has_map = any(step.get("type") == "Precompiled" for step in steps)
    has_map = has_map and model.get("type") == "Unigram"
    # By id in Unigram, by its text in WordPiece and BPE. The pieces of BPE over bytes make any
    # text: then the padding stands for what never comes.
    unk = model.get("unk_id")
    if unk is None and model.get("unk_token") is not None:
        unk = tokenizer.token_to_id(model["unk_token"])
    if unk is None and "ByteLevel" in json.dumps(content.get("pre_tokenizer")):
        unk = pad_token_id
    if not isinstance(unk, int):
        raise PackageError(f"{path} names no token for unknown text")
    return Vocabulary(text, tokenizer, size, bos, eos, pad_token_id, unk, has_map)
