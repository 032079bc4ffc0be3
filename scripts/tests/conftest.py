"""What holds for all tests of the scripts."""

from collections.abc import Iterator

import pytest

from default_package import checks


@pytest.fixture(autouse=True, scope="session")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Numbers of graphs are measured with the first texts of texts.jsonl: all of them take longer
    than everything else that is done to a small model."""
    lines = checks.TEXTS.read_text(encoding="utf-8").splitlines(keepends=True)
    few = tmp_path_factory.mktemp("few") / "texts.jsonl"
    few.write_text("".join(lines[:16]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "TEXTS", few)
        yield
