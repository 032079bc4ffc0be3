"""config.json of families: other ways to write the same network, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from default_package.errors import PackageError
from fixtures import FAMILIES
from model_export import snapshot

NOMIC = {
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "attn_pdrop": 0.0,
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": 32,
    "n_head": 4,
    "n_inner": 40,
    "n_layer": 2,
    "n_positions": 160,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 96,
}
"""As its authors wrote it."""


def write(folder: Path, family: str, change: dict[str, Any], *, whole: bool = False) -> Path:
    """A copy of the family's model whose config.json has the keys of `change`, or only those."""
    copy = folder / family
    shutil.copytree(FAMILIES / family, copy)
    path = copy / "config.json"
    stored = {} if whole else json.loads(path.read_text())
    path.write_text(json.dumps(stored | change))
    return copy


@pytest.mark.parametrize(("family", "config"), [("nomic-bert", NOMIC)])
def test_a_configuration_as_its_authors_write_it_is_the_same_network(
    tmp_path: Path, family: str, config: dict[str, Any]
) -> None:
    expected = snapshot.open_encoder(FAMILIES / family, None).architecture
    found = snapshot.open_encoder(write(tmp_path, family, config, whole=True), None).architecture
    assert found == expected


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("distilbert", "activation", "relu"),
        ("mpnet", "relative_attention_num_buckets", 64),
        ("nomic-bert", "activation_function", "geglu"),
        ("nomic-bert", "num_experts", 8),
        ("nomic-bert", "rotary_scaling_factor", 2),
        ("nomic-bert", "rope_parameters", {"rope_theta": 1e4, "rope_type": "yarn"}),
        ("nomic-bert", "rope_parameters", {"rope_theta": "fast"}),
        ("nomic-bert", "rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("nomic-bert", "intermediate_size", None),
    ],
)
def test_what_a_description_cannot_say_is_refused_by_key_and_value(
    tmp_path: Path, family: str, key: str, value: object
) -> None:
    folder = write(tmp_path, family, {key: value})
    with pytest.raises(PackageError) as refused:
        snapshot.open_encoder(folder, None)
    named = list(value.items())[-1] if isinstance(value, dict) else (key, value)
    assert f"{named[0]} {named[1]!r}" in str(refused.value)
