"""The second, independent opinion: the same network in plain numpy, straight from its tensors.

The layers are those of the default package's reference, in f64; what goes in and comes out is told
here: positions by family, pooling, and a head that may be absent.
"""

from __future__ import annotations

import numpy as np

from default_package.reference import ReferenceEncoder, Vectors
from default_package.sparse_head import SparseHead

from .choices import Family, Pooling
from .encoder import Encoder


class ExportReference(ReferenceEncoder):
    """The forward pass, one sequence at a time; holds all layers in f64."""

    def __init__(self, encoder: Encoder) -> None:
        no_head = SparseHead([0.0] * encoder.config.hidden, 0.0, "")
        super().__init__(encoder, encoder.head or no_head)
        self._encoder = encoder

    def run(self, token_ids: list[int]) -> Vectors:
        """Dense vector, token weights (zeros without a head) and hidden states."""
        architecture, tensors = self._encoder.architecture, self._tensors
        words = self._encoder.word_rows(np.asarray(token_ids)).astype(np.float64)
        rows = np.arange(len(token_ids))
        if architecture.family is Family.XLM_ROBERTA:
            rows = rows + architecture.pad_token_id + 1
        hidden = self._norm(words + tensors["emb.pos"][rows] + tensors["emb.type"][0], "emb.ln")
        for layer in range(self._encoder.config.layers):
            hidden = self._layer(hidden, f"l{layer}")
        pooled = hidden[0] if architecture.pooling is Pooling.CLS else hidden.mean(axis=0)
        dense = pooled / np.sqrt((pooled * pooled).sum())
        weights = self._weights(hidden, token_ids)
        return Vectors(dense.astype(np.float32), weights.astype(np.float32), hidden)
