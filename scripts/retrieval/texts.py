"""The three collections with vectors of the server's own command, and texts of other pages."""

import argparse
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass

import numpy as np
import openvino

from debian_texts import passages
from default_package.errors import PackageError
from quantization import guide, manuals
from quantization.score import Embedded, Package, parts_of

OTHER_TEXTS = 3000  # of manual pages that are not held out: no question is about them


@dataclass(frozen=True)
class Text(Embedded):
    """With its token ids, but for the prompt and those that never have a weight."""

    tokens: list[int]


class Texts:
    """All that is measured with; `duovec embed` leaves files that are complete as they are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self.package = options, Package.load(options.package)
        pages = manuals.read(options.cache)
        collections = {
            "held-out pages": manuals.assemble(pages),
            "handbook": guide.make(guide.HANDBOOK, options.cache),
            "installation guide": guide.make(guide.INSTALLATION, options.cache),
        }
        self.parts = {name: parts_of(one, self.embed) for name, one in collections.items()}
        others = manuals.assemble(pages, held_out=False).passages
        texts = [one.text for one in passages.spread(others, OTHER_TEXTS)]
        self.others = self.embed(texts, "passage")

    def embed(self, texts: list[str], kind: str) -> list[Text]:
        """As `score.Embed` says."""
        distinct = list(dict.fromkeys(texts))
        lines = "".join(json.dumps({"text": text}) + "\n" for text in distinct)
        name = f"vectors/{kind}-{hashlib.sha256(lines.encode()).hexdigest()[:16]}.jsonl"
        source = self._options.cache / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(lines, encoding="utf-8")
        out = source.with_suffix(".made.jsonl")
        command = [self._options.duovec, "embed", source, "--input-type", kind, "--out", out]
        command += ["--package", self._options.package, "--threads-per-worker", "1"]
        environment = {"DUOVEC_OPENVINO_LIBRARY_DIR": f"{openvino.__path__[0]}/libs"} | os.environ
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise PackageError(f"no vectors of {source}: the lines above say why")
        rows, first = self.package.encode(distinct, kind)
        found = {}
        with out.open(encoding="utf-8") as made:
            for text, row, line in zip(distinct, rows, map(json.loads, made), strict=True):
                weights = dict(zip(line["sparse_indices"], line["sparse_values"], strict=True))
                tokens = [token for token in row[first:-1] if token not in self.package.dropped]
                found[text] = Text(np.asarray(line["dense"], np.float32), weights, tokens)
        return [found[text] for text in texts]
