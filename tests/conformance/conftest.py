"""What the conformance tests share: the package, the reference tokenizer, the server's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.reference_tokenizer import SentencepieceTokenizer
from own_code import Ask, asking
from server import default_package


@pytest.fixture(scope="session")
def package() -> Path:
    """The directory of the default package."""
    return Path(default_package())


@pytest.fixture(scope="session")
def manifest(package: Path) -> dict[str, Any]:
    """The package's manifest."""
    return json.loads((package / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def vocabulary(package: Path) -> list[tuple[str, float]]:
    """Pieces with their scores, by token id."""
    content = json.loads((package / "tokenizer.json").read_text(encoding="utf-8"))
    return [(piece, score) for piece, score in content["model"]["vocab"]]


@pytest.fixture(scope="session")
def reference(vocabulary: list[tuple[str, float]]) -> SentencepieceTokenizer:
    """sentencepiece's own library around the package's pieces."""
    pieces, scores = zip(*vocabulary, strict=True)
    return SentencepieceTokenizer(pieces, scores)


@pytest.fixture(scope="session")
def ask(package: Path) -> Ask:
    """The server's own code."""
    return asking(package)
