"""config.json of a published model: the family, the sizes, and what its description demands."""

from pathlib import Path
from typing import Any

from default_package.errors import PackageError
from default_package.families import FAMILIES, Family
from default_package.weights import Config


def family_of(path: Path, stored: dict[str, Any]) -> Family:
    """That of the content `stored` of config.json at `path`, which keeps to its description."""
    families = {kind: family for family in FAMILIES for kind in family.model_types}
    kind = stored.get("model_type")
    if kind not in families:
        raise PackageError(
            f"{path} has model_type {kind!r}: only {', '.join(families)} can be exported"
        )
    family = families[kind]
    for key, allowed in family.required.items():
        if stored.get(key) not in allowed:
            known = " or ".join(repr(value) for value in allowed if value is not None)
            raise PackageError(
                f"{path} has {key} {stored.get(key)!r}: only {known or 'no value'} can be "
                f"exported of {family.name} models"
            )
    return family


def whole(stored: dict[str, Any], key: str, least: int) -> int:
    """The number of a key, at least `least`."""
    value = stored.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PackageError(f"config.json has {key} {value!r}: a number from {least} is needed")
    return value


def sizes(stored: dict[str, Any], family: Family) -> Config:
    """Those of the network."""
    keys = dict(family.sizes)
    epsilon = keys.pop("layer_norm_epsilon")
    found = {
        name: whole(stored, key, 1) if isinstance(key, str) else key for name, key in keys.items()
    }
    if found["hidden"] % found["heads"]:
        raise PackageError(
            f"config.json has {keys['hidden']} {found['hidden']}, "
            f"which {found['heads']} heads cannot share"
        )
    number = stored.get(epsilon) if isinstance(epsilon, str) else epsilon
    if not isinstance(number, float) or not 0.0 < number < 0.1:
        raise PackageError(f"config.json has {epsilon} {number!r}, not a small number")
    return Config(**found, layer_norm_epsilon=number)
