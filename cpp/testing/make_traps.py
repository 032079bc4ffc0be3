"""Prints a C++ header with a class of traps for each interface that has a stand-in.

A trap overrides every pure function of its interface; a call to it names the function and aborts.
So a stand-in defines the few functions that are used, and still has the vendor's whole class table.
"""

import re
import sys
from pathlib import Path

WANTED = ("Runtime", "CudaEngine", "ExecutionContext", "RuntimeConfig", "RuntimeCache")

HEAD = """// Written by make_traps.py.

#pragma once

#include <NvInferImpl.h>

#include <cstdio>
#include <cstdlib>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace duovec::standin {

using namespace nvinfer1;

[[noreturn]] inline void trap(char const* function) {
    std::fprintf(stderr, "duovec stand-in: %s is not provided\\n", function);
    std::abort();
}
"""

TAIL = """
}  // namespace duovec::standin

#pragma GCC diagnostic pop"""


def without_comments(text: str) -> str:
    """The source with its comments left out."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def class_body(text: str, name: str) -> str | None:
    """What stands between the braces of the class, or None when it is not defined."""
    found = re.search(rf"\bclass\s+{name}\s*:\s*public\s+VRoot\s*\{{(.*?)\n\}};", text, re.DOTALL)
    return found.group(1) if found else None


def traps(name: str, body: str) -> list[str]:
    """One function for each pure one in the body."""
    lines = []
    for statement in body.split(";"):
        flat = " ".join(statement.split())
        found = re.fullmatch(r"(?:public: )?(TRT_NODISCARD )?virtual (.*?) ?= ?0", flat)
        if not found:
            if "virtual" in flat:
                raise SystemExit(f"make_traps: {name} has a function of unknown form: {flat}")
            continue
        attribute, declaration = found.group(1) or "", found.group(2)
        function = re.match(r".*?(\w+)\(", declaration).group(1)
        lines.append(
            f'    {attribute}{declaration} override {{ trap("I{name[1:]}::{function}"); }}'
        )
    return lines


def main() -> None:
    """Prints the header made of the folder given."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: make_traps.py HEADERS_FOLDER")
    text = without_comments((Path(sys.argv[1]) / "NvInferImpl.h").read_text(encoding="utf-8"))
    print(HEAD)
    for wanted in WANTED:
        body = class_body(text, f"V{wanted}")
        if body is None:
            continue
        print(f"class Trap{wanted} : public apiv::V{wanted} {{\n public:")
        print("\n".join(traps(f"V{wanted}", body)))
        print("};\n")
    print(TAIL)


if __name__ == "__main__":
    main()
