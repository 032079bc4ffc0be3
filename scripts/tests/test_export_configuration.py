"""config.json of families: other ways to write the same network, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import export_snapshots as snapshots
import numpy as np
import pytest

import families
from default_package.errors import PackageError
from fixtures import FAMILIES

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published_configurations.json").read_text()
)
"""As their authors write them, which is not always as transformers does."""


def write(folder: Path, family: str, change: dict[str, Any], *, whole: bool = False) -> Path:
    """A copy of the family's model whose config.json has the keys of `change`, or only those."""
    copy = shutil.copytree(FAMILIES / family, folder / family)
    path = copy / "config.json"
    if whole:
        path.unlink()
    snapshots.change(path, **change)
    return copy


@pytest.mark.parametrize("family", [family.name for family in families.FAMILIES])
def test_a_key_that_nobody_understands_is_refused_unless_it_says_nothing(
    tmp_path: Path, family: str
) -> None:
    for nothing in (None, False, [], {}):
        folder = write(tmp_path / repr(nothing), family, {"residual_scale": nothing})
        snapshots.open_encoder(folder)
    folder = write(tmp_path, family, {"residual_scale": 2.0})
    with pytest.raises(PackageError, match=r"config.json has residual_scale 2.0: nobody here"):
        snapshots.open_encoder(folder)


@pytest.mark.parametrize(("family", "config"), PUBLISHED.items())
def test_a_configuration_as_its_authors_write_it_is_the_same_network(
    tmp_path: Path, family: str, config: dict[str, Any]
) -> None:
    expected = snapshots.open_encoder(FAMILIES / family).architecture
    found = snapshots.open_encoder(write(tmp_path, family, config, whole=True)).architecture
    assert found == expected


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "auto_map", {"AutoModel": "modeling.Own"}),
        ("bert", "quantization_config", {"bits": 4}),
        ("bert", "layer_types", ["full_attention", "full_attention"]),
        ("gte", "sliding_window", 128),
        ("distilbert", "activation", "relu"),
        ("mpnet", "relative_attention_num_buckets", 64),
        ("gemma3", "use_bidirectional_attention", False),
        ("gemma3", "query_pre_attn_scalar", 8),
        ("gemma3", "layer_types", None),
        ("gemma3", "attn_logit_softcapping", 50.0),
        ("gte", "pack_qkv", False),
        ("gte", "logn_attention_scale", True),
        ("gte", "rope_scaling", {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}),
        ("modernbert", "norm_bias", True),
        ("modernbert", "layer_types", ["full_attention", "chunked_attention"]),
        ("nomic-bert", "activation_function", "geglu"),
        ("qwen3", "use_sliding_window", True),
        ("qwen3", "is_causal", False),
        ("qwen3", "num_key_value_heads", 3),
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
        snapshots.open_encoder(folder)
    named = list(value.items())[-1] if key.startswith("rope") else (key, value)
    assert f"config.json has {named[0]} {named[1]!r}: " in str(refused.value)


@pytest.mark.parametrize(
    ("family", "key", "general"),
    [
        ("gemma3", "rope_local_base_freq", {"rope_theta": 1e6}),
        ("modernbert", "local_rope_theta", {"rope_theta": 160000.0}),
    ],
)
def test_local_layers_do_not_turn_as_full_ones(
    tmp_path: Path, family: str, key: str, general: dict[str, Any]
) -> None:
    """transformers has another number for them where nothing is said of them."""
    config = PUBLISHED[family] | general
    del config[key]
    folder = write(tmp_path, family, config, whole=True)
    with pytest.raises(PackageError, match=f"config.json has {key} None: a number from 1"):
        snapshots.open_encoder(folder)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("gemma3", {"rope_theta": 1e6}),
        ("modernbert", {"rope_type": "yarn", "factor": 4.0}),
        ("modernbert", {"full_attention": {"rope_theta": 1e5}, "factor": 4.0}),
    ],
)
def test_angles_that_are_said_of_no_kind_of_layer_are_refused(
    tmp_path: Path, family: str, said: dict[str, Any]
) -> None:
    folder = write(tmp_path, family, PUBLISHED[family] | {"rope_parameters": said}, whole=True)
    with pytest.raises(PackageError, match="config.json has rope_parameters .*: what it says must"):
        snapshots.open_encoder(folder)


def test_a_key_that_transformers_does_not_read_changes_no_angles(tmp_path: Path) -> None:
    """Its ModernBERT has two keys, one for each kind of layer, and no third for both."""
    config = PUBLISHED["modernbert"]
    assert {"global_rope_theta", "local_rope_theta"} <= config.keys()
    expected = snapshots.open_encoder(write(tmp_path / "two", "modernbert", config, whole=True))
    config = config | {"rope_theta": 12345.0}
    found = snapshots.open_encoder(write(tmp_path / "three", "modernbert", config, whole=True))
    assert found.architecture == expected.architecture


def test_angles_of_gte_are_those_of_its_own_code(tmp_path: Path) -> None:
    """NTKScalingRotaryEmbedding of the model's code, which transformers does not have."""
    scaling = {"rope_scaling": {"type": "ntk", "factor": 8.0}, "rope_theta": 20000}
    folder = write(tmp_path, "gte", PUBLISHED["gte"] | scaling, whole=True)
    [rotary] = {one.rotary for one in snapshots.open_encoder(folder).architecture.attentions}
    assert rotary is not None
    width = 8
    speeds = 1.0 / (20000 * 8.0) ** (np.arange(0, width, 2) / width) / 8.0 ** (2 / width)
    expected = np.arange(160)[:, None] * speeds
    np.testing.assert_allclose(rotary.angles(160, width), expected, rtol=1e-12)
