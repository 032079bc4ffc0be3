"""Compares the tables of virtual functions of two releases of TensorRT's headers.

Code that is compiled with one release's headers may call another release's library only where the
tables of the classes it uses begin alike. Exits with 1 when the older release's table of a class
is not the beginning of the newer one's and cpp/ calls a function from there on, or overrides it.
"""

import argparse
import re
import sys
from pathlib import Path

#: Headers that define classes with tables.
FILES = ("NvInferImpl.h", "NvInferRuntimeBase.h", "NvInferRuntime.h", "NvInfer.h", "NvOnnxParser.h")
SOURCES = Path(__file__).resolve().parents[2] / "cpp"
#: Classes whose functions the library calls: cpp/ overrides them.
OVERRIDDEN = ("ILogger", "IErrorRecorder", "IProgressMonitor", "IProfiler")
#: Those, and classes whose functions cpp/ calls.
CLASSES = (
    *("VBuilder", "VBuilderConfig", "VCudaEngine", "VExecutionContext", "VHostMemory", "VLayer"),
    *("VMatrixMultiplyLayer", "VNetworkDefinition", "VOptimizationProfile", "VRuntime", "VTensor"),
    *("VTimingCache", "VEngineInspector", "IParser", "IParserError"),
    *OVERRIDDEN,
)
ATTRIBUTES = re.compile(r"\b(TRT_NODISCARD|TRT_DEPRECATED|virtual|TRTNOEXCEPT)\b|\[\[\w+\]\]")


def without_comments(text: str) -> str:
    """The source without comments and without what is for macros that nobody defines."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"^#if ENABLE_FEATURE.*?^#endif[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)


def body_of(text: str, name: str) -> str | None:
    """What stands between the braces of the class, or None when it is not defined."""
    found = re.search(rf"\bclass\s+{name}\b[^;{{]*\{{(.*?)\n\}};?", text, re.DOTALL)
    return found.group(1) if found else None


def table_of(body: str) -> list[str]:
    """`name/number of arguments` of each virtual function, in their order."""
    table = []
    for found in re.finditer(r"\bvirtual\b[^;{]*", body):
        declaration = " ".join(ATTRIBUTES.sub(" ", found.group(0)).split())
        function = re.search(r"(~?\w+) ?\((.*)\)", declaration)
        if function is None:
            sys.exit(f"class_tables: a declaration of unknown form: {declaration}")
        arguments = function.group(2).strip()
        table.append(f"{function.group(1)}/{arguments.count(',') + 1 if arguments else 0}")
    return table


def tables_of(folder: Path) -> dict[str, list[str]]:
    """The table of each class that the folder's headers define."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    text = without_comments("\n".join(file.read_text(encoding="utf-8") for file in files))
    bodies = {name: body_of(text, name) for name in CLASSES}
    return {name: table_of(body) for name, body in bodies.items() if body is not None}


def called() -> set[str]:
    """Names of functions that cpp/ calls of any object; more than those of one class."""
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCES.glob("*.cc"))
    return set(re.findall(r"(?:->|\.)(\w+)\(", text))


def main() -> None:
    """Says what differs, a line for each class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("older", type=Path, help="folder of the older release's headers")
    parser.add_argument("newer", type=Path, help="folder of the newer release's headers")
    arguments = parser.parse_args()
    older, newer = tables_of(arguments.older), tables_of(arguments.newer)
    grown = unfit = 0
    for name in CLASSES:
        if name not in older or name not in newer:
            sys.exit(f"class_tables: {name} is not defined in both folders")
        old, new = older[name], newer[name]
        if new[: len(old)] == old:
            grown += 1
            continue
        at = next(i for i in range(len(old)) if new[i : i + 1] != old[i : i + 1])
        used = called() & {entry.split("/")[0] for entry in old[at:] + new[at:]}
        print(f"{name}: entry {at} was {old[at]}, it is {new[at : at + 1]} now;", end=" ")
        if used or name in OVERRIDDEN:
            print(f"of what follows cpp/ uses {sorted(used) or 'all'}")
            unfit += 1
        else:
            print("nothing that follows is called")
    print(f"{grown} of {len(CLASSES)} tables only grew, {unfit} do not fit")
    sys.exit(1 if unfit else 0)


if __name__ == "__main__":
    main()
