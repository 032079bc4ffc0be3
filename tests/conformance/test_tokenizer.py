"""The server's token ids against sentencepiece's own library, on generated texts."""

from __future__ import annotations

from typing import Any

from conformance.reference_tokenizer import SentencepieceTokenizer
from own_code import Ask
from texts import disturbed, generated

TEXTS = 10_000
"""Of each kind."""
SHOWN = 5


def test_generated_texts_have_the_token_ids_of_the_reference(
    ask: Ask, reference: SentencepieceTokenizer, manifest: dict[str, Any]
) -> None:
    texts = generated(TEXTS, 12) + disturbed(TEXTS)
    prompts = [None, "query", "passage"]
    questions = [
        {"tokenize": text, "escape": index % 2 == 1, "prompt": prompts[index % 3]}
        for index, text in enumerate(texts)
    ]
    tokens = 0
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
        if seen[0] != expected or (seen[1] != len(own) and not melted):
            different.append((question, seen, expected))
    print(f"{len(texts)} texts, {tokens} tokens, {len(different)} different")
    assert not different, different[:SHOWN]
