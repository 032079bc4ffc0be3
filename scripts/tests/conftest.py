"""What holds for all tests of the scripts."""

import os
from collections.abc import Iterator

import pytest

# Products of small matrices take a moment on one thread. Several threads wait for each other, ten
# times as long beside other work. It must be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from default_package import checks  # noqa: E402


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
