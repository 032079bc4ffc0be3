"""What quantize_package.py measures with."""

from __future__ import annotations

from pathlib import Path

import pytest

from debian_texts import packages
from quantization import add
from sparse_training import guide_collection, manual_collection
from sparse_training.collection import Collection, Passage


def test_graphs_are_measured_with_texts_that_nothing_was_chosen_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_each_split(*_: object) -> Collection:
        return Collection([Passage(s, "en", "page", s) for s in ("train", "validation", "test")])

    monkeypatch.setattr(packages, "fetch_all", lambda names, cache: [])
    monkeypatch.setattr(guide_collection, "make", lambda domain, found: domain)
    monkeypatch.setattr(manual_collection, "make", one_of_each_split)
    found = add.collections(tmp_path)
    assert found.keys() == {"installation guide", "held-out manual pages"}
    assert found["installation guide"] == guide_collection.TESTS["installation"]
    assert [one.split for one in found["held-out manual pages"].passages] == ["test"]
