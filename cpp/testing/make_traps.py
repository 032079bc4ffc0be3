"""Writes C++ headers with a class of traps for each interface that has a stand-in.

A trap overrides every pure function of its interface; a call to it names the function and aborts.
So a stand-in defines the few functions that are used, and still has the vendor's whole class table.
"""

import re
import sys
from pathlib import Path

#: Each header that is written: the vendor's one it is made from, what that one lacks, the
#: namespace of its types, the prefix of its interfaces, and these.
HEADERS = {
    "standin_traps.h": (
        *("NvInferImpl.h", "NvInferImpl.h", "nvinfer1", "apiv::V"),
        ("Runtime", "CudaEngine", "ExecutionContext", "RuntimeConfig", "RuntimeCache", "Builder")
        + ("BuilderConfig", "NetworkDefinition", "OptimizationProfile", "TimingCache")
        + ("HostMemory", "Tensor", "Layer", "EngineInspector"),
    ),
    "standin_parser_traps.h": (
        *("NvOnnxParser.h", "NvInfer.h>\n#include <NvOnnxParser.h", "nvonnxparser", "I"),
        ("Parser", "ParserError"),
    ),
}

HEAD = """// Written by make_traps.py.

#pragma once

#include <INCLUDED>

#include <cstdio>
#include <cstdlib>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace duovec::standin {

using namespace NAMESPACE;

[[noreturn]] inline void trap(char const* function) {
    std::fprintf(stderr, "duovec stand-in: %s is not provided\\n", function);
    std::abort();
}
"""

TAIL = """
}  // namespace duovec::standin

#pragma GCC diagnostic pop"""


def without_comments(text: str) -> str:
    """The source without comments and without what is for macros that nobody defines."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"^#if ENABLE_FEATURE.*?^#endif[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


def class_body(text: str, name: str) -> str | None:
    """What stands between the braces of the class, or None when it is not defined."""
    found = re.search(rf"\bclass\s+{name}\b[^;{{]*\{{(.*?)\n\}};", text, re.DOTALL)
    return found.group(1) if found else None


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
    """Writes the headers made of the folder given."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: make_traps.py HEADERS_FOLDER OUT_FOLDER")
    source, out = map(Path, sys.argv[1:])
    for name, (header, included, namespace, prefix, wanted) in HEADERS.items():
        text = without_comments((source / header).read_text(encoding="utf-8"))
        parts = [HEAD.replace("INCLUDED", included).replace("NAMESPACE", namespace)]
        for interface in wanted:
            vendor = prefix + interface
            body = class_body(text, vendor.removeprefix("apiv::"))
            if body is None:
                continue
            parts.append(f"class Trap{interface} : public {vendor} {{\n public:")
            parts += traps(f"I{interface}", body)
            parts.append("};\n")
        (out / name).write_text("\n".join([*parts, TAIL, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
