"""The server's token ids against sentencepiece's own library and against the crate `tokenizers`."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path
from typing import Any

import tokenizers

from conformance.reference_tokenizer import SentencepieceTokenizer
from own_code import Ask, asking
from texts import CONTROLS, MARKS, PIECES, SEED, SIGNS, disturbed, generated

TEXTS = 10_000
"""Of each kind."""
LIBRARY_TEXTS = 50_000
TIES_MAX = 0.001
"""Share of the texts that may differ because two ways of cutting are worth the same."""
SHOWN = 5
HARD = [
    *SIGNS,
    *PIECES,
    *MARKS,
    *CONTROLS,
    "  ",
    " <mask>",
    "____",
    "\r\n",
    "\u3000",
    "\uff76\uff9e",
]


def test_generated_texts_have_the_token_ids_of_the_reference(
    ask: Ask,
    reference: SentencepieceTokenizer,
    vocabulary: list[tuple[str, float]],
    manifest: dict[str, Any],
) -> None:
    texts = generated(TEXTS, 12) + disturbed(TEXTS)
    prompts = [None, "query", "passage"]
    questions = [
        {"tokenize": text, "escape": index % 2 == 1, "prompt": prompts[index % 3]}
        for index, text in enumerate(texts)
    ]
    tokens = ties = 0
    different = []
    for question, answer in zip(questions, ask(questions), strict=True):
        prompt = manifest["prompts"].get(question["prompt"], "")
        escape = question["escape"]
        expected = reference.encode(prompt + question["tokenize"], escape=escape)
        assert len(expected) < manifest["max_input_tokens"] - 2, "the texts are short"
        own = reference.encode(prompt, escape=escape)
        melted = expected[: len(own)] != own
        tokens += len(expected)
        seen = (answer["ids"][1:-1], answer["prompt_tokens"])
        if seen[0] != expected and is_tie(seen[0], expected, vocabulary):
            ties += 1
        elif seen[0] != expected or (seen[1] != len(own) and not melted):
            different.append((question, seen, expected))
    print(f"{len(texts)} texts, {tokens} tokens, {len(different)} different, {ties} ties")
    assert not different, different[:SHOWN]
    assert ties <= TIES_MAX * len(texts)


def is_tie(one: list[int], other: list[int], vocabulary: list[tuple[str, float]]) -> bool:
    """Whether both are the same text, cut in ways that are worth the same.

    sentencepiece sums in f32 over the whole text, so it cannot tell such ways apart.
    """
    sums = [sum(vocabulary[token_id][1] for token_id in ids) for ids in (one, other)]
    texts = ["".join(vocabulary[token_id][0] for token_id in ids) for ids in (one, other)]
    return texts[0] == texts[1] and abs(sums[0] - sums[1]) <= 1e-6 * abs(sums[0])


def test_hard_texts_have_the_token_ids_of_the_library(package: Path) -> None:
    """Exactly those of the crate, for indexes that others have made with it."""
    ask = asking(package, "huggingface")
    library = tokenizers.Tokenizer.from_file(str(package / "tokenizer.json"))
    texts = [*generated(TEXTS, 30, SEED + 2), *disturbed(TEXTS, SEED + 3)]
    texts += [mixed(texts, random.Random(seed)) for seed in range(LIBRARY_TEXTS - len(texts))]
    questions = [{"tokenize": text, "escape": False, "prompt": None} for text in texts]
    expected = [encoding.ids for encoding in library.encode_batch_fast(texts)]
    limit = 512
    different = [
        (text, answer["ids"], ids)
        for text, answer, ids in zip(texts, ask(questions), expected, strict=True)
        if answer["ids"] != (ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]])
    ]
    tokens = sum(map(len, expected))
    print(f"{len(texts)} texts, {tokens} tokens, {len(different)} different")
    assert len(texts) >= LIBRARY_TEXTS
    assert not different, different[:SHOWN]


def mixed(texts: list[str], choose: random.Random) -> str:
    """Parts of texts between what is hard, composed or not."""
    found = ""
    for _ in range(choose.randint(1, 14)):
        text = choose.choice(texts)
        at = choose.randrange(len(text) + 1)
        part = text[at : at + choose.randint(1, 6)]
        found += choose.choice(HARD) if choose.random() < 0.6 else part
    return unicodedata.normalize(choose.choice(["NFC", "NFC", "NFD", "NFKD"]), found)
