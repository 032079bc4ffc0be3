"""Writes a C++ header with a class of traps for each interface that has a stand-in.

A trap overrides every pure function of its interface; a call to it names the function and aborts.
So a stand-in defines the few functions that are used, and still has the vendor's whole class table.
"""

import re
import sys
from pathlib import Path

from class_tables import body_of, without_comments

#: Where interfaces are defined, their namespace, how their names begin, and those that have a
#: stand-in.
INTERFACES = {
    ("NvInferImpl.h", "nvinfer1", "apiv::V"): (
        *("Runtime", "CudaEngine", "ExecutionContext", "RuntimeConfig", "RuntimeCache", "Builder"),
        *("BuilderConfig", "NetworkDefinition", "OptimizationProfile", "TimingCache"),
        *("HostMemory", "Tensor", "Layer", "EngineInspector"),
    ),
    ("NvOnnxParser.h", "nvonnxparser", "I"): ("Parser", "ParserError"),
}

HEAD = """// Written by make_traps.py.

#pragma once

#include <NvInferImpl.h>
#include <NvOnnxParser.h>

#include <cstdio>
#include <cstdlib>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace duovec::standin {

[[noreturn]] inline void trap(char const* function) {
    std::fprintf(stderr, "duovec stand-in: %s is not provided\\n", function);
    std::abort();
}

}  // namespace duovec::standin
"""

TAIL = "#pragma GCC diagnostic pop\n"


def traps(name: str, body: str) -> list[str]:
    """One function for each pure one in the body."""
    lines = []
    for statement in body.split(";"):
        flat = " ".join(statement.split())
        prefix = r"(?:public: |TRT_DEPRECATED )*"
        found = re.fullmatch(prefix + r"(TRT_NODISCARD )?virtual (.*?) ?= ?0", flat)
        if not found:
            if "virtual" in flat and "~" not in flat:
                raise SystemExit(f"make_traps: {name} has a function of unknown form: {flat}")
            continue
        attribute, declaration = found.group(1) or "", found.group(2)
        function = re.match(r".*?(\w+)\(", declaration).group(1)
        lines.append(f'    {attribute}{declaration} override {{ trap("{name}::{function}"); }}')
    return lines


def main() -> None:
    """Writes the header for the folder given."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: make_traps.py HEADERS_FOLDER OUT_FILE")
    parts = [HEAD]
    for (header, namespace, prefix), names in INTERFACES.items():
        text = without_comments((Path(sys.argv[1]) / header).read_text(encoding="utf-8"))
        # Both vendors' namespaces have an ErrorCode.
        parts += [f"namespace duovec::standin::{namespace}_traps {{\nusing namespace {namespace};"]
        for name in names:
            body = body_of(text, prefix.removeprefix("apiv::") + name)
            if body is not None:
                parts.append(f"class Trap{name} : public {prefix}{name} {{\n public:")
                parts += traps(f"I{name}", body)
                parts.append("};\n")
        parts.append("}")
    Path(sys.argv[2]).write_text("\n".join([*parts, TAIL]), encoding="utf-8")


if __name__ == "__main__":
    main()
