"""Plants mistakes in a copy of cpp/, one at a time: the session's tests must catch each of them.

What it proves is the rig, not the code: a test that no mistake can fail would show here.
"""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["builder", "cuda", "diagnostics", "engine", "layout", "library", "network", "session"]
#: What catches a mistake, and what it is linked with besides.
TEST = "session_test"
WRAPPED = ["-Wl,--wrap=_Znwm", f"-Wl,--version-script={ROOT / 'cpp/testing/own_symbols.map'}"]
COMPILE = [
    *("c++", "-std=c++20", "-O0", "-w", "-fvisibility=hidden", "-pthread"),
    *("-isystem", str(ROOT / "third_party/cuda/include")),
    *("-isystem", str(ROOT / "third_party/headers/tensorrt")),
    "-DDUOVEC_FLAVOUR=tensorrt",
]
#: What takes most of a compiler's time; it is read once for all sources with a mistake.
HEADERS = '#include <functional>\n#include <map>\n#include <thread>\n#include "session.h"\n'
#: A test program that waits for ever has caught its mistake too.
SECONDS_MAX = 60


@dataclass(frozen=True)
class Mistake:
    """`old` stands once in `file`; with `new` in its place the tests must fail."""

    name: str
    file: str
    old: str
    new: str


MISTAKES = [
    Mistake(
        "tensors are not aligned",
        "layout.cc",
        "layout.tensors[tensor] = {aligned(end), is_there ? bytes : 0};",
        "layout.tensors[tensor] = {end, is_there ? bytes : 0};",
    ),
    Mistake(
        "only the ids are copied",
        "session.cc",
        "staged_->layout.inputs_bytes, cudaMemcpyHostToDevice",
        "staged_->layout.tensors[kInputIds].bytes, cudaMemcpyHostToDevice",
    ),
    Mistake(
        "the lexical weights are not copied",
        "session.cc",
        "staged_->layout.outputs_bytes, cudaMemcpyDeviceToHost,",
        "staged_->layout.tensors[kDense].bytes, cudaMemcpyDeviceToHost,",
    ),
    Mistake(
        "the rows are read before the device is done",
        "session.cc",
        "        cuda_.check(call.cudaEventSynchronize(copied_out_.get()), "
        '"wait for the device");\n'
        "    } else {\n        synchronize();\n    }\n",
        "    }\n",
    ),
    Mistake(
        "a context keeps the shape of the batch before",
        "session.cc",
        "if (profile.bound != staged_) {",
        "if (profile.bound == nullptr) {",
    ),
    Mistake(
        "every shape runs with the first profile",
        "session.cc",
        "bucket.profile = *profile;",
        "bucket.profile = 0;",
    ),
    Mistake(
        "scratch memory is that of the first profile",
        "session.cc",
        "scratch_bytes_ = std::max(scratch_bytes_, needed);",
        "scratch_bytes_ = engine_.vendor().getDeviceMemorySizeForProfileV2(0 * index);",
    ),
    Mistake(
        "a context gets no more scratch memory than its profile needs",
        "session.cc",
        "context->setDeviceMemoryV2(scratch_.get(), scratch_bytes_);",
        "context->setDeviceMemoryV2(scratch_.get(), "
        "engine.getDeviceMemorySizeForProfileV2(index));",
    ),
    Mistake(
        "contexts get no scratch memory",
        "session.cc",
        "context->setDeviceMemoryV2(scratch_.get(),",
        "context->setDeviceMemoryV2(nullptr,",
    ),
    Mistake(
        "all inputs are read where the first one lies",
        "session.cc",
        "at(block, bucket.layout.tensors[tensor])",
        "at(block, bucket.layout.tensors[is_input ? 0 : tensor])",
    ),
    Mistake(
        "the address of outputs is not set",
        "session.cc",
        "for (TensorRule const& rule : tensor_rules(engine_.elements().has_token_weights)) {",
        "for (TensorRule const& rule : kInputRules) {",
    ),
    Mistake(
        "there is room for one span of a row",
        "layout.cc",
        "        for (Axis const axis : kTensorRules[tensor].axes) {\n",
        "        for (Axis const axis : kTensorRules[tensor].axes) {\n"
        "            if (axis == Axis::kSpans) continue;\n",
    ),
    Mistake(
        "a graph is captured without a plain run before",
        "session.cc",
        "    copy_in();\n    enqueue(*captured.context);\n    synchronize();\n",
        "",
    ),
    Mistake(
        "a capture that fails is not ended",
        "session.cc",
        "    // Whatever happened, the capture must end",
        '    if (!enqueued) throw Error(ErrorKind::kTransient, "early");\n    //',
    ),
    Mistake(
        "every run captures anew",
        "session.cc",
        "    bucket.wants_graph = false;\n",
        "",
    ),
    Mistake(
        "a captured context is touched again",
        "session.cc",
        "    if (staged_->captured) {\n",
        "    if (staged_->captured) {\n        bind(*staged_->captured->context, *staged_);\n",
    ),
    Mistake(
        "a graph goes after the context that it uses",
        "session.h",
        "        Context context;\n        CudaGraphExec graph;\n",
        "        CudaGraphExec graph;\n        Context context;\n",
    ),
    Mistake(
        "the stream waits for the default stream",
        "cuda.cc",
        "&stream, cudaStreamNonBlocking, chosen)",
        "&stream, cudaStreamDefault, chosen)",
    ),
    Mistake(
        "the thread's device is not that of the session",
        "session.cc",
        "    cuda_.use(engine.device());\n",
        "",
    ),
    Mistake(
        "the runtime goes before its engine",
        "engine.h",
        "    std::unique_ptr<nvinfer1::IRuntime> runtime_;\n"
        "    std::unique_ptr<nvinfer1::ICudaEngine> engine_;\n",
        "    std::unique_ptr<nvinfer1::ICudaEngine> engine_;\n"
        "    std::unique_ptr<nvinfer1::IRuntime> runtime_;\n",
    ),
    Mistake(
        "a context may be destroyed while the stream still works for it",
        "session.cc",
        "    if (session->cuda_.call().cudaStreamSynchronize(session->stream_) != cudaSuccess) {",
        "    if (false) {",
    ),
    Mistake(
        "what is on a lost device is destroyed",
        "session.cc",
        "    if (!session->engine_.is_lost()) {\n        delete context;",
        "    {\n        delete context;",
    ),
    Mistake(
        "stages are measured between the wrong events",
        "session.cc",
        "nanoseconds(copied_in_, computed_),",
        "nanoseconds(computed_, copied_out_),",
    ),
    Mistake(
        "a failed allocation is taken for a failed run",
        "cuda.cc",
        "            return ErrorKind::kOutOfMemory;",
        "            return ErrorKind::kTransient;",
    ),
    Mistake(
        "the tensors' types are not those of the plan",
        "engine.cc",
        "        case DataType::kHALF:\n            return Element::kFloat16;",
        "        case DataType::kHALF:\n            return Element::kFloat32;",
    ),
    Mistake(
        "every run allocates on the host",
        "session.cc",
        "    record(started_);\n",
        "    record(started_);\n    delete new int(staged_->shape.rows);\n",
    ),
    Mistake(
        "captures are not kept apart from other contexts",
        "session.cc",
        "    std::lock_guard const alone(engine_.contexts());\n    bucket.wants_graph",
        "    bucket.wants_graph",
    ),
    Mistake(
        "a refused graph is given up at once",
        "session.cc",
        "for (bool const is_last : {false, true})",
        "for (bool const is_last : {true})",
    ),
    Mistake(
        "the plan's profiles are not compared",
        "engine.cc",
        "        if (*found != wanted) {",
        "        if (false) {",
    ),
]


def compile_all(source: Path, folder: Path, names: list[str], *options: str) -> None:
    """Compiles `names` from `source` into `folder`."""
    for name in names:
        command = [*COMPILE, *options, "-I", str(source), "-I", str(ROOT / "cpp")]
        command += ["-c", str(source / f"{name}.cc"), "-o", str(folder / f"{name}.o")]
        subprocess.run(command, check=True)


def passes(program: Path, parts: list[Path]) -> bool:
    """Links the parts, which the test is one of, and runs it."""
    link = ["c++", "-pthread", *WRAPPED, *map(str, parts), "-o", str(program), "-ldl"]
    subprocess.run(link, check=True)
    try:
        done = subprocess.run([str(program)], capture_output=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def caught(mistake: Mistake, work: Path, good: Path) -> bool:
    """Whether the tests fail with the mistake; what uses the changed file is compiled anew."""
    folder = work / mistake.name.replace(" ", "-").replace("'", "")
    text = (ROOT / "cpp" / mistake.file).read_text()
    if text.count(mistake.old) != 1:
        sys.exit(f"{mistake.name}: its place is not found once in cpp/{mistake.file}")
    text = text.replace(mistake.old, mistake.new)
    if mistake.file.endswith(".h"):
        changed = ["engine", "session", TEST]
        shutil.copytree(ROOT / "cpp", folder)
        (folder / mistake.file).write_text(text)
        compile_all(folder, folder, changed)
    else:
        changed = [mistake.file.removesuffix(".cc")]
        folder.mkdir()
        (folder / mistake.file).write_text(text)
        compile_all(folder, folder, changed, "-include", str(good / "headers.h"))
    names = [*SOURCES, TEST]
    parts = [(folder if name in changed else good) / f"{name}.o" for name in names]
    found = not passes(folder / "test", parts)
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Exits with 1 when a mistake passes, or when the tests fail without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("standins", type=Path, help="folder of the stand-in libraries")
    parser.add_argument("work", type=Path, help="folder to work in")
    arguments = parser.parse_args()
    os.environ["DUOVEC_TEST_STANDIN_DIR"] = str(arguments.standins)
    good = arguments.work / "good"
    good.mkdir(parents=True)
    headers = good / "headers.h"
    headers.write_text(HEADERS)
    read = ["-I", str(ROOT / "cpp"), "-x", "c++-header", str(headers), "-o", f"{headers}.gch"]
    subprocess.run([*COMPILE, *read], check=True)
    compile_all(ROOT / "cpp", good, [*SOURCES, TEST], "-include", str(headers))
    if not passes(good / "test", [good / f"{name}.o" for name in [*SOURCES, TEST]]):
        sys.exit(f"{TEST} fails without any mistake")
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = pool.map(lambda one: caught(one, arguments.work, good), MISTAKES)
        results = list(zip(MISTAKES, found, strict=True))
    for mistake, is_caught in results:
        print(f"{'caught' if is_caught else 'MISSED'}  {mistake.name}")
    missed = sum(not is_caught for _, is_caught in results)
    print(f"{len(results) - missed} of {len(results)} planted mistakes were caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
