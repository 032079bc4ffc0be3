"""What pyproject.toml cannot say: the program, its platform, and what the scripts need."""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REQUIREMENTS = Path(__file__).resolve().parents[2] / "scripts/requirements.txt"


class Metadata(MetadataHookInterface):
    """The versions that the scripts are tested with; they refuse others."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the dependencies."""
        lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
        pinned = [line.partition("#")[0].strip() for line in lines]
        # pip fetches the default model, and goes on from where a connection broke from 25.2 on.
        metadata["dependencies"] = [*filter(None, pinned), "pip>=25.2"]


class Program(BuildHookInterface):
    """DUOVEC_RELEASE is the folder with the program and the licences of its parts."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Adds both. auditwheel finds the tag of the oldest glibc that the program runs with."""
        release = Path(os.environ["DUOVEC_RELEASE"])
        build_data["force_include"] |= {
            str(release / "lib/duovec/duovec"): "duovec_server/duovec",
            str(release / "share/doc/duovec/licences"): "duovec_server/licences",
        }
        build_data["sbom_files"].append(str(release / "share/doc/duovec/sbom.cdx.json"))
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"
        build_data["pure_python"] = False
