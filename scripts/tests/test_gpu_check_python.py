"""scripts/gpu_check.sh runs with the Python of machines with GPUs, which is often 3.10."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_files import program

SCRIPTS = Path(__file__).resolve().parents[1]
OLDEST = (3, 10)
#: What the standard library has only since a later version.
LATER = {
    "asyncio": {"Runner", "TaskGroup", "timeout"},
    "builtins": {"BaseExceptionGroup", "ExceptionGroup"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"EnumCheck", "ReprEnum", "StrEnum", "member", "nonmember", "verify"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "math": {"cbrt", "exp2", "sumprod"},
    "operator": {"call"},
    "typing": {"LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple"}
    | {"Unpack", "assert_never", "assert_type", "dataclass_transform", "override"},
}
MODULES = {"tomllib", "wsgiref.types"}
#: Methods that accept less before.
METHODS = {"add_note", "fromisoformat", "walk", "with_segments"}


def sources() -> list[Path]:
    """Every file of ours that the check loads or starts."""
    code = "import sys, gpu_check.__main__; print(*(getattr(one, '__file__', '') for one in "
    code += "list(sys.modules.values())), sep='\\n')"
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded = {Path(line) for line in done.stdout.splitlines() if line.startswith(f"{SCRIPTS}/")}
    return sorted(loaded | set((SCRIPTS / "gpu_check").glob("*.py")))


def when_run(node: ast.AST) -> Iterator[ast.AST]:
    """All of it but what only a checker of types reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        test = child.test if isinstance(child, ast.If) else None
        if not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
            yield from when_run(child)


def later(text: str) -> list[str]:
    """Names in the source that the oldest Python lacks."""
    found = []
    for node in when_run(ast.parse(text, feature_version=OLDEST)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found += [one.name for one in node.names if one.name in LATER.get(module, ())]
            found += [module] * (module in MODULES)
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name in MODULES]
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            known = LATER.get(owner, set()) | METHODS
            found += [node.attr] * (node.attr in known and (owner, node.attr) != ("os", "walk"))
        elif isinstance(node, ast.Name):
            found += [node.id] * (node.id in LATER["builtins"])
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_the_check_uses_nothing_that_python_3_10_lacks(path: Path) -> None:
    assert later(path.read_text()) == []


def test_what_a_later_python_has_is_seen() -> None:
    text = "import tomllib, math\nfrom typing import Self\nmath.cbrt(8)\nraise ExceptionGroup\n"
    assert later(text) == ["tomllib", "Self", "cbrt", "ExceptionGroup"]
    with pytest.raises(SyntaxError):
        later("try:\n    pass\nexcept* OSError:\n    pass\n")


def test_an_older_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = 'if [ "$1" = --version ]; then echo Python 3.9.2; exit; fi; [ "$1" != -c ]'
    python = program(tmp_path / "python3", old)
    done = subprocess.run(
        ["bash", SCRIPTS / "gpu_check.sh"],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    refusal = f"duovec: {python} is Python 3.9.2: name Python 3.10 or later with PYTHON=FILE\n"
    assert done.stderr == refusal
