"""What fit_starting_head.py does: hidden states, targets, a relu-aware ridge regression."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from default_package import command, texts, weights
from default_package.command import say
from default_package.description import DEFAULT_PACKAGE
from default_package.reference import META, ReferenceEncoder, ReferenceTokenizer
from default_package.sparse_head import SparseHead

SURPRISAL_ZERO, SURPRISAL_FULL = 7.0, 15.0
"""In nats. At 7 and below lie inflections and single letters of every language here; from 15 on
pieces are too rare for the difference to mean anything."""
WEIGHT_FULL = 0.4
"""Target at SURPRISAL_FULL; the largest weights published for BGE-M3 are about this size."""
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
HELD_OUT_EVERY = 5
"""Every fifth group of texts judges the fit; translations of one sentence stay on one side."""
DECIMALS = 6
"""Of the stored weights: below what f32 resolves in the sum, above the noise of a BLAS."""
ROUNDS = 8
"""Of the relu-aware fit; the held-out score stands still well before."""
MARGIN = 0.1
"""How far below zero wordless tokens are pushed, so that an unseen one still ends near zero."""
FUNCTION_WORDS = Path(__file__).with_name("function_words.json")
METHOD = (
    "relu-aware ridge regression from the last hidden state to the Unigram surprisal of the token, "
    "scaled to 0..0.4 and zero for punctuation, special tokens and function words"
)


@dataclass(frozen=True)
class Samples:
    """One row for each position of each text."""

    hidden: np.ndarray
    """f64 `[positions, hidden]`."""
    target: np.ndarray
    """f64 `[positions]`."""
    held_out: np.ndarray
    """bool `[positions]`."""


def run(options: argparse.Namespace) -> None:
    """Collects the samples, chooses the ridge, fits and writes."""
    out = options.out.resolve()
    with command.working_folder(out) as work:
        model = weights.load(command.unpacked_wheel(options, work).model)
        say("computing hidden states")
        samples = collect(model, texts.load())
        ridge, scores = choose_ridge(samples)
        coefficients = solve(samples.hidden, samples.target, ridge)
        say(f"ridge {ridge:g}: R² {scores['r2_train']:.3f} train, {scores['r2_held_out']:.3f} out")
        content = {
            "method": METHOD,
            "made_by": "scripts/research/fit_starting_head.py",
            "texts_sha256": hashlib.sha256(texts.PATH.read_bytes()).hexdigest(),
            "texts": len(texts.load()),
            "positions": len(samples.target),
            "ridge": ridge,
            "scores": {name: round(value, 4) for name, value in scores.items()},
            "bias": round(float(coefficients[-1]), DECIMALS),
            "weights": [round(float(value), DECIMALS) for value in coefficients[:-1]],
        }
        part = work / out.name
        part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(part, out)
    say(f"wrote {out}")


def collect(model: weights.Model, lines: list[texts.Text]) -> Samples:
    """Hidden states and targets of all texts behind both prompts.

    Positions of the prompt are left out, as the server leaves them out; `<s>` and `</s>` stay,
    with target zero.
    """
    tokenizer = ReferenceTokenizer(model)
    encoder = ReferenceEncoder(model, SparseHead([0.0] * model.config.hidden, 0.0, "none"))
    targets = token_targets(model.vocabulary)
    groups = sorted({group_key(line) for line in lines})
    judges = set(groups[::HELD_OUT_EVERY])
    hidden, target, held_out = [], [], []
    for prompt in DEFAULT_PACKAGE.prompts.values():
        prompt_length = len(tokenizer.encode(prompt)) - 2
        for line in lines:
            ids = tokenizer.encode(prompt + line.text)
            keep = [0, *range(1 + prompt_length, len(ids))]
            hidden.append(encoder.run(ids).hidden[keep])
            target.append(targets[np.asarray(ids)[keep]])
            held_out.append(np.full(len(keep), group_key(line) in judges))
    return Samples(np.concatenate(hidden), np.concatenate(target), np.concatenate(held_out))


def function_words() -> dict[str, list[str]]:
    """Language -> its most frequent words that carry no topic."""
    stored = json.loads(FUNCTION_WORDS.read_text(encoding="utf-8"))
    return {lang: words.split() for lang, words in stored.items()}


def group_key(line: texts.Text) -> str:
    """Translations share their group; every other text stands alone."""
    return line.group if line.group.startswith("t-") else line.text


def token_targets(vocabulary: weights.Vocabulary) -> np.ndarray:
    """f64 `[vocabulary]`: the wanted weight of each token id."""
    ids = {piece: token_id for token_id, piece in enumerate(vocabulary.pieces)}
    surprisal = -vocabulary.scores.astype(np.float64)
    share = (surprisal - SURPRISAL_ZERO) / (SURPRISAL_FULL - SURPRISAL_ZERO)
    target = WEIGHT_FULL * np.clip(share, 0.0, 1.0)
    for words in function_words().values():
        for word in words:
            for piece in (META + word, META + word.capitalize(), word):
                if piece in ids and (len(word) > 1 or piece != word or not word.isascii()):
                    target[ids[piece]] = 0.0
    wordless = [not has_word_character(piece) for piece in vocabulary.pieces]
    target[np.asarray(wordless)] = 0.0
    for token_id in (vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk):
        target[token_id] = 0.0
    return target


def has_word_character(piece: str) -> bool:
    """Letters, marks, digits and symbols such as emoji carry meaning; punctuation does not."""
    return any(
        unicodedata.category(c)[0] in "LMN" or unicodedata.category(c) == "So"
        for c in piece.replace(META, "")
    )


def choose_ridge(samples: Samples) -> tuple[float, dict[str, float]]:
    """The strength with the best held-out R², and the scores it reached."""
    train, judge = ~samples.held_out, samples.held_out
    best: tuple[float, dict[str, float]] | None = None
    for ridge in RIDGES:
        fitted = solve(samples.hidden[train], samples.target[train], ridge)
        judged = predict(samples.hidden[judge], fitted)
        wordless = samples.target[judge] == 0.0
        scores = {
            "r2_train": r_squared(predict(samples.hidden[train], fitted), samples.target[train]),
            "r2_held_out": r_squared(judged, samples.target[judge]),
            "held_out_mean_where_target_is_zero": float(judged[wordless].mean()),
            "held_out_mean_elsewhere": float(judged[~wordless].mean()),
        }
        if best is None or scores["r2_held_out"] > best[1]["r2_held_out"]:
            best = ridge, scores
    assert best is not None, "RIDGES is not empty"
    return best


def solve(hidden: np.ndarray, target: np.ndarray, ridge: float) -> np.ndarray:
    """Weights and, last, the bias; the bias is not penalized.

    Each round is a closed-form ridge regression. Where the target is zero, relu gives the right
    answer for every value below zero: such a position is asked for MARGIN below it, or for what
    the last round gave if that was lower still.
    """
    mean_hidden = hidden.mean(axis=0)
    centred = hidden - mean_hidden
    gram = centred.T @ centred + ridge * np.eye(hidden.shape[1])
    wanted = np.where(target > 0.0, target, -MARGIN)
    for _ in range(ROUNDS):
        mean_wanted = wanted.mean()
        found = np.linalg.solve(gram, centred.T @ (wanted - mean_wanted))
        predicted = centred @ found + mean_wanted
        wanted = np.where(target > 0.0, target, np.minimum(predicted, -MARGIN))
    return np.append(found, mean_wanted - mean_hidden @ found)


def predict(hidden: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """What the graph will give: `[positions]`."""
    return np.maximum(hidden @ coefficients[:-1] + coefficients[-1], 0.0)


def r_squared(predicted: np.ndarray, target: np.ndarray) -> float:
    """Share of the target's variance that is explained."""
    residual = ((target - predicted) ** 2).sum()
    return float(1.0 - residual / ((target - target.mean()) ** 2).sum())
