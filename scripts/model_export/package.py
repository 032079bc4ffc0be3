"""All files of a package in one folder, manifest.json last, as it vouches for the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from default_package import manifest
from default_package.description import Description

from . import graph, vocabulary
from .choices import Precision
from .encoder import Encoder
from .reference import ExportReference
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Plan:
    """What is to be written."""

    encoder: Encoder
    vocabulary: Vocabulary
    tokenizer: Path
    about: Description
    precision: Precision
    normalization: str
    """Whose way of reading unusual characters a tokenizer of XLM-R's kind follows."""

    @property
    def network(self) -> manifest.Network:
        """What the manifest says of it."""
        architecture, words = self.encoder.architecture, self.vocabulary
        return manifest.Network(
            hidden_size=self.encoder.config.hidden,
            max_input_tokens=architecture.max_input_tokens,
            pooling=architecture.pooling.value,
            vocab_size=words.size,
            pad=words.pad,
            bos=words.bos,
            eos=words.eos,
            unk=words.unk,
            head=self.encoder.head,
            normalization=self.normalization if words.has_charsmap else None,
        )


def write(plan: Plan, folder: Path) -> ExportReference:
    """The graph with what lies beside it, tokenizer.json and manifest.json.

    Returns the reference that the golden numbers come from, for further questions.
    """
    graph.write(plan.encoder, plan.precision, folder / "model.onnx")
    vocabulary.write(plan.tokenizer, folder / "tokenizer.json")
    reference = ExportReference(plan.encoder)
    network = plan.network
    text, ids = plan.vocabulary.encode_within(plan.about.canary_text, network.max_input_tokens)
    canary = manifest.Canary(text, ids, reference.run(ids))
    manifest.write(plan.about, network, canary, folder)
    return reference
