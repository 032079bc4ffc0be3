"""The graph in 8 bits: NNCF's post-training quantization for OpenVINO."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import nncf
import openvino

from default_package import rows

FIELD = "quantized"
"""Of the manifest."""
GRAPH = "model.int8.xml"
PREFIX = "model.int8."
"""Of its files."""
TOLERANCES = {"dense_cosine_min": 0.995, "sparse_max_abs": 0.1}
"""Of the canary. On 1,284 texts the cosine to f32 was at least 0.997, and 99 of 100 weights were
within 0.03."""
METHOD = f"8 bits by NNCF {nncf.__version__}: weights and inputs of the dense layers, SmoothQuant"
EXACT = re.compile(r"layer\d+\.(scores|mixed)|(sparse|dense)\..*|word|position")
"""Nodes that stay in f32. Attention takes little time; head, pooling and tables next to none."""


def write(source: Path, target: Path, sequences: list[list[int]]) -> None:
    """`source`, an f32 graph of these scripts, as `target` (.xml) with its numbers beside it.

    The token ids of `sequences` find the ranges of the inputs. Takes minutes.
    """
    nncf.set_log_level(logging.ERROR)
    model = openvino.Core().read_model(source)
    names = [node.get_friendly_name() for node in model.get_ops()]
    quantized = nncf.quantize(
        model,
        nncf.Dataset(sequences, lambda sequence: rows.alone(sequence).inputs),
        subset_size=len(sequences),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        ignored_scope=nncf.IgnoredScope(
            names=[name for name in names if EXACT.fullmatch(name)], validate=False
        ),
        # It keeps weights within 7 bits, for processors without instructions for 8.
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.DISABLE
        ),
    )
    openvino.save_model(quantized, target, compress_to_fp16=False)
