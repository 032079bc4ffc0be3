"""Plants mistakes in a copy of cpp/: the session's tests must catch each of them.

What it proves is the rig, not the code: a test that no mistake can fail would show here.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The program is one translation unit, since NVIDIA's headers take most of a compiler's time. It
#: has all mistakes, and each run makes one.
SOURCES = ["cuda.cc", "layout.cc", "flavour.cc", "session_test.cc"]
COMPILE = [
    *("c++", "-std=c++20", "-O0", "-w", "-fvisibility=hidden", "-pthread"),
    *("-isystem", str(ROOT / "third_party/cuda/include")),
    *("-isystem", str(ROOT / "third_party/headers/tensorrt")),
    *("-DDUOVEC_FLAVOUR=tensorrt", "-Wl,--wrap=_Znwm", "-ldl"),
    f"-Wl,--version-script={ROOT / 'cpp/testing/own_symbols.map'}",
]
#: Whether this run makes the mistake of that number.
PLANTED_H = """#include <cstdlib>
inline bool planted(int number) {
    static int const made = std::atoi(std::getenv("DUOVEC_TEST_PLANTED"));
    return made == number;
}
"""
#: A test program that waits for ever has caught its mistake too.
SECONDS_MAX = 60


@dataclass(frozen=True)
class Mistake:
    """A place that stands once in `file`, and in «» what is written into it.

    `PLANTED` is true in the run that makes this mistake, and then the tests must fail.
    """

    name: str
    file: str
    place: str


MARKED = re.compile("«(.*?)»", re.DOTALL)
MISTAKES = [
    Mistake("tensors are not aligned", "layout.cc", "{«PLANTED ? end : »aligned(end), bytes}"),
    Mistake(
        "only the ids are copied",
        "session.cc",
        "«PLANTED ? staged_->layout.tensors[kInputIds].bytes : »staged_->layout.inputs_bytes",
    ),
    Mistake(
        "the lexical weights are not copied",
        "session.cc",
        "«PLANTED ? staged_->layout.tensors[kDense].bytes : »staged_->layout.outputs_bytes",
    ),
    Mistake(
        "vectors of tokens are copied for nobody",
        "session.cc",
        "«PLANTED || »copied == Copied::kAll\n",
    ),
    Mistake(
        "the rows are read before the device is done",
        "session.cc",
        "    «if (PLANTED) {\n    } else »if (sleeps) {\n",
    ),
    Mistake(
        "a context keeps the shape of the batch before",
        "session.cc",
        "if («PLANTED ? profile.bound == nullptr : »profile.bound != staged_) {",
    ),
    Mistake(
        "every shape runs with the first profile",
        "session.cc",
        "bucket.profile = «PLANTED ? 0 : »*profile;",
    ),
    Mistake(
        "scratch memory is that of the first profile",
        "session.cc",
        "engine_.vendor().getDeviceMemorySizeForProfileV2(«PLANTED ? 0 : »index)",
    ),
    Mistake(
        "contexts get no scratch memory",
        "session.cc",
        "        context->setDeviceMemoryV2(«PLANTED ? nullptr : »scratch_.get(),",
    ),
    Mistake(
        "a context gets its scratch memory before its profile",
        "session.cc",
        "        context->setErrorRecorder(&recorder_);\n"
        "«        if (PLANTED) context->setDeviceMemoryV2(scratch_.get(), scratch_bytes_);\n»",
    ),
    Mistake(
        "all inputs are read where the first one lies",
        "session.cc",
        "at(block, bucket.layout.tensors[«PLANTED && is_input ? 0 : »tensor])",
    ),
    Mistake(
        "the address of outputs is not set",
        "session.cc",
        "        bool const is_input = tensor < kInputs;\n"
        "«        if (PLANTED && !is_input) break;\n»",
    ),
    Mistake(
        "there is room for one span of a row",
        "layout.cc",
        "        for (Axis const axis : kTensorRules[tensor].axes) {\n"
        "«            if (PLANTED && axis == Axis::kSpans) continue;\n»",
    ),
    Mistake(
        "a graph is captured without a plain run before",
        "session.cc",
        "«    if (!PLANTED) {\n»"
        "    copy_in();\n    enqueue(*captured.context);\n    synchronize();\n"
        "«    }\n»",
    ),
    Mistake(
        "a capture that fails is not ended",
        "session.cc",
        '«    if (PLANTED && !enqueued) throw Error(ErrorKind::kTransient, "early");\n»'
        "    // Whatever happened, the capture must end",
    ),
    Mistake(
        "every run captures anew", "session.cc", "    bucket.wants_graph = «PLANTED || »false;\n"
    ),
    Mistake(
        "a captured context is touched again",
        "session.cc",
        "    if (staged_->captured) {\n"
        "«        if (PLANTED) bind(*staged_->captured->context, *staged_);\n»",
    ),
    Mistake(
        "a graph goes after the context that it uses",
        "session.h",
        "        bool is_worth_keeping = true;\n"
        "«        Captured() = default;\n        Captured(Captured&&) = default;\n"
        "        ~Captured() {\n            if (PLANTED) context.reset();\n        }\n»",
    ),
    Mistake(
        "the stream waits for the default stream",
        "cuda.cc",
        "«PLANTED ? cudaStreamDefault : »cudaStreamNonBlocking",
    ),
    Mistake(
        "the thread's device is not that of the session",
        "session.cc",
        "    «if (!PLANTED) »cuda_.use(engine.device());\n",
    ),
    Mistake(
        "the runtime goes before its engine",
        "engine.cc",
        "    // The last owner may be on a thread that has never used the device.\n"
        "«    if (PLANTED) runtime_.reset();\n»",
    ),
    Mistake(
        "a context may be destroyed while the stream still works for it",
        "session.cc",
        "    if («!PLANTED && »"
        "session->cuda_.call().cudaStreamSynchronize(session->stream_) != cudaSuccess) {",
    ),
    Mistake(
        "what is on a lost device is destroyed",
        "session.cc",
        "    if («PLANTED || »!session->engine_.is_lost()) {",
    ),
    Mistake(
        "stages are measured between the wrong events",
        "session.cc",
        "«PLANTED ? nanoseconds(computed_, copied_out_) : »nanoseconds(copied_in_, computed_),",
    ),
    Mistake(
        "a failed allocation is taken for a failed run",
        "cuda.cc",
        "            return «PLANTED ? ErrorKind::kTransient : »ErrorKind::kOutOfMemory;",
    ),
    Mistake(
        "the tensors' types are not those of the plan",
        "engine.cc",
        "            return «PLANTED ? Element::kFloat32 : »Element::kFloat16;",
    ),
    Mistake(
        "every run allocates on the host",
        "session.cc",
        "    record(started_);\n«    if (PLANTED) delete new int(staged_->shape.rows);\n»",
    ),
    Mistake(
        "captures are not kept apart from other contexts",
        "session.cc",
        "«    std::recursive_mutex other;\n»"
        "    std::lock_guard const alone(«PLANTED ? other : »engine_.contexts());\n"
        "    bucket.wants_graph",
    ),
    Mistake(
        "a refused graph is given up at once",
        "session.cc",
        "for (bool const is_last : {false, true}) {\n"
        "«        if (PLANTED && !is_last) continue;\n»",
    ),
    Mistake(
        "the plan's profiles are not compared",
        "engine.cc",
        "        if («!PLANTED && »*found != wanted) {",
    ),
]


def plant(folder: Path) -> None:
    """Writes a copy of cpp/ with all mistakes into `folder`."""
    shutil.copytree(ROOT / "cpp", folder)
    (folder / "planted.h").write_text(PLANTED_H)
    for number, mistake in enumerate(MISTAKES, start=1):
        file = folder / mistake.file
        text = file.read_text()
        old, new = MARKED.sub("", mistake.place), MARKED.sub(r"\1", mistake.place)
        if text.count(old) != 1:
            sys.exit(f"{mistake.name}: its place is not found once in cpp/{mistake.file}")
        file.write_text(text.replace(old, new.replace("PLANTED", f"planted({number})")))


def passes(program: Path, planted: int) -> bool:
    """Whether all tests pass with that mistake, of which 0 is none."""
    variables = {**os.environ, "DUOVEC_TEST_PLANTED": str(planted)}
    command = [program, "until-one-fails"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=SECONDS_MAX, check=False, env=variables
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> None:
    """Exits with 1 when a mistake passes, or when the tests fail without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("standins", type=Path, help="folder of the stand-in libraries")
    parser.add_argument("work", type=Path, help="folder to work in")
    arguments = parser.parse_args()
    os.environ["DUOVEC_TEST_STANDIN_DIR"] = str(arguments.standins)
    plant(arguments.work)
    source, program = arguments.work / "all.cc", arguments.work / "all"
    source.write_text("".join(f'#include "{name}"\n' for name in ["planted.h", *SOURCES]))
    subprocess.run([*COMPILE, "-I", arguments.work, source, "-o", program], check=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        passed = list(pool.map(lambda one: passes(program, one), range(len(MISTAKES) + 1)))
    if not passed[0]:
        sys.exit("the tests fail without any mistake")
    for mistake, is_missed in zip(MISTAKES, passed[1:], strict=True):
        print(f"{'MISSED' if is_missed else 'caught'}  {mistake.name}")
    missed = sum(passed[1:])
    print(f"{len(MISTAKES) - missed} of {len(MISTAKES)} planted mistakes were caught")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
