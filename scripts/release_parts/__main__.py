"""Lists the parts of a release: every crate, OpenVINO, the model.

    python -m release_parts --out FOLDER --openvino FOLDER_OF_LIBRARIES

FOLDER gets sbom.cdx.json (CycloneDX 1.6) and licences/, with the licence texts of the parts.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from default_package.choices import DEFAULT_PACKAGE

ROOT = Path(__file__).resolve().parents[2]
LICENCE_FILES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "UNLICENSE*")


def crates() -> list[dict[str, Any]]:
    """What `cargo metadata` says of the program, then of each crate of others in the binary."""
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    [platform] = [line.split()[1] for line in host.splitlines() if line.startswith("host:")]
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", platform]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    metadata = json.loads(said)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    start = metadata["resolve"]["root"]
    order = list(reached(nodes, start))
    packages = {package["id"]: package for package in metadata["packages"]}
    # Crates of this repository are parts of the program; they come from no registry.
    return [packages[one] for one in order if one == start or packages[one]["source"]]


def reached(nodes: dict[str, Any], start: str) -> Iterator[str]:
    """The crates that are linked or compiled for the program; not those of its tests."""
    seen, waiting = {start}, [start]
    while waiting:
        one = waiting.pop()
        yield one
        for dependency in nodes[one]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            if kinds != {"dev"} and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])


def component(name: str, version: str, licence: str, purl: PackageURL) -> Component:
    """One part. Old crates write `/` where SPDX has `OR`."""
    licences = LicenseFactory()
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        licenses=[licences.make_from_string(licence.replace("/", " OR "))],
    )


def copy_licences(source: Path, to: Path) -> None:
    """The licence texts that lie at the top of a folder."""
    for pattern in LICENCE_FILES:
        for file in source.glob(pattern):
            if file.is_file():
                to.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to / file.name)


def openvino(libraries: Path) -> tuple[str, list[Path]]:
    """Version and licence texts of the wheel that the libraries come from."""
    [info] = libraries.parent.parent.glob("openvino-[0-9]*.dist-info")
    texts = [file for file in info.rglob("*") if "licen" in str(file).lower() and file.is_file()]
    return info.name.removeprefix("openvino-").removesuffix(".dist-info"), texts


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--openvino", type=Path, required=True, help="folder of its libraries")
    arguments = parser.parse_args()
    licences = arguments.out / "licences"
    licences.mkdir(parents=True)

    own, *others = crates()
    bom = Bom()
    purl = PackageURL("cargo", name=own["name"], version=own["version"])
    bom.metadata.component = component(own["name"], own["version"], own["license"], purl)
    for crate in others:
        purl = PackageURL("cargo", name=crate["name"], version=crate["version"])
        licence = crate["license"] or "see its licence file"
        bom.components.add(component(crate["name"], crate["version"], licence, purl))
        folder = Path(crate["manifest_path"]).parent
        copy_licences(folder, licences / f"{crate['name']}-{crate['version']}")
    version, texts = openvino(arguments.openvino)
    purl = PackageURL("pypi", name="openvino", version=version)
    bom.components.add(component("openvino", version, "Apache-2.0", purl))
    (licences / f"openvino-{version}").mkdir()
    for text in texts:
        shutil.copyfile(text, licences / f"openvino-{version}" / text.name)
    name, revision, licence = (DEFAULT_PACKAGE[n] for n in ("model_id", "revision", "license"))
    purl = PackageURL("generic", name=name, version=revision)
    bom.components.add(component(name, revision, licence, purl))

    bom.register_dependency(bom.metadata.component, bom.components)
    written = JsonV1Dot6(bom).output_as_string(indent=1)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(written):
        sys.exit(f"the list of parts is not valid CycloneDX: {problem}")
    (arguments.out / "sbom.cdx.json").write_text(written + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
