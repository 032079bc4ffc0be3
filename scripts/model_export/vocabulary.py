"""What the manifest needs of a tokenizer.json, and the file as the package gets it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from default_package.errors import PackageError


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and the ids that the server has to know."""

    tokenizer: tokenizers.Tokenizer
    size: int
    """Ids are below it."""
    bos: int
    eos: int
    pad: int
    unk: int
    has_charsmap: bool
    """Whether it is of XLM-R's kind, which can be read in two ways."""

    def encode(self, text: str) -> list[int]:
        """Ids with the special ones."""
        return self.tokenizer.encode(text).ids

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
    """Loads the file as the server does, without truncation and padding."""
    content = _content(path)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
    except Exception as error:  # The library raises nothing narrower.
        raise PackageError(f"{path} is not a tokenizer that can be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if (largest := max(tokenizer.get_vocab(with_added_tokens=True).values())) >= size:
        raise PackageError(f"{path} has {size} tokens but the id {largest}: ids have gaps")
    if pad_token_id >= size:
        raise PackageError(f"config.json has pad_token_id {pad_token_id}, {path} {size} tokens")
    around = tokenizer.encode("").ids
    if len(around) != 2:
        raise PackageError(
            f"{path} gives {len(around)} tokens for an empty text, not a first and a last one"
        )
    bos, eos = around
    unk = _unknown(path, content, tokenizer)
    return Vocabulary(tokenizer, size, bos, eos, pad_token_id, unk, _has_charsmap(content))


def write(source: Path, target: Path) -> None:
    """A copy; truncation and padding, which are the server's, are taken out."""
    content = _content(source)
    if content.get("truncation") is None and content.get("padding") is None:
        target.write_bytes(source.read_bytes())
        return
    content["truncation"] = content["padding"] = None
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    target.write_text(text, encoding="utf-8")


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PackageError(f"{path} is missing: a package needs a tokenizer.json") from error
    except ValueError as error:
        raise PackageError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise PackageError(f"{path} is not a tokenizer: it has no model")
    return content


def _has_charsmap(content: dict[str, Any]) -> bool:
    """Whether Unigram pieces stand behind sentencepiece's character map."""
    normalizer = content.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    has_map = any(step.get("type") == "Precompiled" for step in steps)
    return has_map and content["model"].get("type") == "Unigram"


def _unknown(path: Path, content: dict[str, Any], tokenizer: tokenizers.Tokenizer) -> int:
    """By id in Unigram, by its text in WordPiece and BPE."""
    model = content["model"]
    found = model.get("unk_id")
    if found is None and model.get("unk_token") is not None:
        found = tokenizer.token_to_id(model["unk_token"])
    if not isinstance(found, int):
        raise PackageError(f"{path} names no token for unknown text")
    return found
