#!/usr/bin/env python3
"""Makes tests/fixtures/tiny/: a complete package of a few kilobytes for tests that need no model.

    python scripts/make_tiny_package.py

The graph, tokenizer and manifest come from the same code as the default package's, at width 8 with
seeded weights, so its vectors mean nothing but react to every token, to order and to the mask.
Every ASCII text tokenizes without `<unk>`. The same bytes come out of every run.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from default_package import command, graph, manifest, tokenizer
from default_package.command import say
from default_package.manifest import Description
from default_package.runtime import Runtime
from default_package.sparse_head import SparseHead
from default_package.verify import check_canary_files
from default_package.weights import Config, Model, Vocabulary

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tiny"
SEED = 20
DISK_BYTES_MIN = 1_000_000
CONFIG = Config(
    hidden=8,
    layers=1,
    heads=2,
    ffn=16,
    vocab_rows=0,
    positions=64,
    type_rows=1,
    layer_norm_epsilon=1e-12,
)
ABOUT = Description(
    model_id="tiny-test",
    aliases=["tiny"],
    revision="1",
    license="Apache-2.0",
    matryoshka_dimensions=[4],
    prompts={},
    default_prompt=None,
    canary_text="the quick test 42 der schnelle Test быстрый тест 快速测试",
)
WORDS = """
the a of and to in is for with on query passage text word test quick slow server health model batch
token vector dense sparse search engine queue worker item train bread water house cat dog tree river
der die das und ist nicht mit schnell schnelle Test Haus Katze Hund Wasser Brot Zug Straße Tür
le la les et est pas avec pour maison chat chien eau pain café école été
el los las y es no con para casa gato perro agua pan niño mañana
il gli che non casa gatto cane acqua pane città perché
o os não com para casa cão água pão coração
и в не на что это быстрый тест дом кошка собака вода хлеб поезд сервер
في من على هل بيت ماء خبز قطار خادم سريع اختبار
और है में से पानी घर रोटी तेज़ परीक्षा
"""
SPACELESS = """
快速 测试 今天 天气 房子 水 面包 火车 服务器 向量 你好 的 是 在 一 二 三
検索 速い です ます テスト 水 家 パン 列車 こんにちは は が を に の
빠른 시험 집 물 빵 기차 서버 안녕 은 는 이 가 을
เร็ว ทดสอบ บ้าน น้ำ ขนมปัง รถไฟ ครับ ค่ะ
"""
ENDINGS = ["ing", "ed", "er", "est", "ly", "es", "en"]
EMOJI = "😀 🎉 🚀 ❤"
WORD_SCORE, CHARACTER_SCORE, META_SCORE = -6.0, -11.0, -4.0
"""Natural logs: one word beats its characters, a character beats `<unk>` (ten below the worst)."""


@dataclass(frozen=True)
class TinyModel(Model):
    """Seeded weights; its word table is f32 where the wheel's is Q4_0."""

    words: np.ndarray

    def word_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.words[rows]


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of the package")
    options = parser.parse_args()
    return command.guarded(lambda: make(options.out.resolve()))


def make(out: Path) -> None:
    """Builds, checks against the numpy reference and puts in place."""
    command.check_place(out, DISK_BYTES_MIN)
    model, head = tiny_model(), tiny_head()
    with command.working_folder(out) as work:
        package = work / "package"
        package.mkdir()
        serialized = graph.build(model, head).SerializeToString(deterministic=True)
        (package / "model.onnx").write_bytes(serialized)
        content = tokenizer.assemble(model.vocabulary, normalizer(), special_ids(model))
        text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
        (package / "tokenizer.json").write_text(text, encoding="utf-8")
        manifest.write(manifest.build(ABOUT, model, head, package), package / "manifest.json")
        check_canary_files(package, Runtime(package / "model.onnx", "f32"))
        command.put_in_place(package, out, work)
    say(f"wrote {out}: {len(model.vocabulary.pieces)} pieces")


def normalizer() -> dict[str, Any]:
    """A map of some hundred entries, instead of the default package's 320 KB.

    Control characters are spaces, full-width and accented letters as NFKC has them.
    """
    spaces = [*map(chr, range(1, 0x20)), "\x7f", "\u00a0", "\u3000", tokenizer.META]
    full_width = map(chr, range(0xFF01, 0xFF5F))
    accented = [unicodedata.normalize("NFD", chr(code)) for code in range(0xC0, 0x180)]
    decomposed = [text for text in accented if len(text) > 1]
    entries = [(text, " ") for text in spaces]
    entries += [(text, unicodedata.normalize("NFKC", text)) for text in [*full_width, *decomposed]]
    compiled = tokenizer.compiled(sentencepiece.SentencePieceNormalizer(norm_map=entries))
    charsmap = base64.b64encode(compiled).decode("ascii")
    return {
        "type": "Sequence",
        "normalizers": [
            # No map can have it.
            {"type": "Replace", "pattern": {"String": "\0"}, "content": " "},
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
        ],
    }


def special_ids(model: Model) -> list[int]:
    """`<s> <pad> </s> <unk>` and `<mask>`, as in the default package."""
    return [0, 1, 2, 3, len(model.vocabulary.pieces) - 1]


def tiny_vocabulary() -> Vocabulary:
    """Special pieces first and last, then words, then single characters."""
    meta = tokenizer.META
    scored = {"<s>": 0.0, "<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, meta: META_SCORE}
    spaceless = SPACELESS.split()
    for word in [*(meta + word for word in WORDS.split()), *spaceless, *ENDINGS]:
        scored.setdefault(word, WORD_SCORE)
    ascii_characters = [chr(code) for code in range(0x21, 0x7F)]
    others = sorted({c for word in [*WORDS.split(), *spaceless] for c in word if not c.isascii()})
    for character in [*ascii_characters, *others, *EMOJI.split()]:
        scored.setdefault(character, CHARACTER_SCORE)
    scored["<mask>"] = 0.0
    pieces = list(scored)
    scores = np.asarray(list(scored.values()), np.float32)
    return Vocabulary(pieces, scores, bos=0, eos=2, pad=1, unk=3, normalization={})


def tiny_model() -> TinyModel:
    """RandomState's streams are frozen by numpy, so the weights never change."""
    random = np.random.RandomState(SEED)

    def normal(*shape: int, deviation: float = 0.4) -> np.ndarray:
        return (random.standard_normal(shape) * deviation).astype(np.float32)

    hidden, ffn = CONFIG.hidden, CONFIG.ffn
    vocabulary = tiny_vocabulary()
    tensors = {
        "emb.pos": normal(CONFIG.positions, hidden, deviation=0.2),
        "emb.type": normal(1, hidden, deviation=0.1),
    }
    shapes = {"q": (hidden, hidden), "k": (hidden, hidden), "v": (hidden, hidden)}
    shapes |= {"ao": (hidden, hidden), "fi": (ffn, hidden), "fo": (hidden, ffn)}
    for name, shape in shapes.items():
        tensors[f"l0.{name}.w"] = normal(*shape)
        tensors[f"l0.{name}.b"] = normal(shape[0], deviation=0.1)
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        tensors[f"{name}.w"] = 1.0 + normal(hidden, deviation=0.1)
        tensors[f"{name}.b"] = normal(hidden, deviation=0.1)
    # The graph stores the table as f16: rounded here, the reference sees the same numbers.
    words = normal(len(vocabulary.pieces), hidden, deviation=1.0).astype(np.float16)
    no_blocks = np.zeros((0, 0, 18), np.uint8)
    return TinyModel(CONFIG, vocabulary, tensors, no_blocks, words.astype(np.float32))


def tiny_head() -> SparseHead:
    """About two thirds of all positions get a weight above zero."""
    weights = [0.11, -0.07, 0.09, 0.05, -0.12, 0.08, -0.04, 0.1]
    return SparseHead(weights, 0.1, "fixed numbers, for tests")


if __name__ == "__main__":
    sys.exit(main())
