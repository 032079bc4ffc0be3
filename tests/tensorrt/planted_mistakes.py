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
#: File and name of each, and its place: the lines behind `|`.
TABLE = """
layout.cc: tensors are not aligned
|{«PLANTED ? end : »aligned(end), bytes}
session.cc: only the ids are copied
|«PLANTED ? staged_->layout.tensors[kInputIds].bytes : »staged_->layout.inputs_bytes
session.cc: the lexical weights are not copied
|«PLANTED ? staged_->layout.tensors[kDense].bytes : »staged_->layout.outputs_bytes
session.cc: vectors of tokens are copied for nobody
|«PLANTED || »copied == Copied::kAll
|
session.cc: the rows are read before the device is done
|    «if (PLANTED) {
|    } else »if (sleeps) {
|
session.cc: a context keeps the shape of the batch before
|if («PLANTED ? profile.bound == nullptr : »profile.bound != staged_) {
session.cc: every shape runs with the first profile
|bucket.profile = «PLANTED ? 0 : »*profile;
session.cc: scratch memory is that of the first profile
|engine_.vendor().getDeviceMemorySizeForProfileV2(«PLANTED ? 0 : »index)
session.cc: contexts get no scratch memory
|        context->setDeviceMemoryV2(«PLANTED ? nullptr : »scratch_.get(),
session.cc: a context gets its scratch memory before its profile
|        context->setErrorRecorder(&recorder_);
|«        if (PLANTED) context->setDeviceMemoryV2(scratch_.get(), scratch_bytes_);
|»
session.cc: all inputs are read where the first one lies
|at(block, bucket.layout.tensors[«PLANTED && is_input ? 0 : »tensor])
session.cc: the address of outputs is not set
|        bool const is_input = tensor < kInputs;
|«        if (PLANTED && !is_input) break;
|»
layout.cc: there is room for one span of a row
|        for (Axis const axis : kTensorRules[tensor].axes) {
|«            if (PLANTED && axis == Axis::kSpans) continue;
|»
session.cc: a graph is captured without a plain run before
|«    if (!PLANTED) {
|»    copy_in();
|    enqueue(*captured.context);
|    synchronize();
|«    }
|»
session.cc: a capture that fails is not ended
|«    if (PLANTED && !enqueued) throw Error(ErrorKind::kTransient, "early");
|»    // Whatever happened, the capture must end
session.cc: every run captures anew
|    bucket.wants_graph = «PLANTED || »false;
|
session.cc: a captured context is touched again
|    if (staged_->captured) {
|«        if (PLANTED) bind(*staged_->captured->context, *staged_);
|»
session.h: a graph goes after the context that it uses
|        bool is_worth_keeping = true;
|«        Captured() = default;
|        Captured(Captured&&) = default;
|        ~Captured() {
|            if (PLANTED) context.reset();
|        }
|»
cuda.cc: the stream waits for the default stream
|«PLANTED ? cudaStreamDefault : »cudaStreamNonBlocking
session.cc: the thread's device is not that of the session
|    «if (!PLANTED) »cuda_.use(engine.device());
|
engine.cc: the runtime goes before its engine
|    // The last owner may be on a thread that has never used the device.
|«    if (PLANTED) runtime_.reset();
|»
session.cc: a context may be destroyed while the stream still works for it
|    if («!PLANTED && »session->cuda_.call().cudaStreamSynchronize(session->stream_)
session.cc: what is on a lost device is destroyed
|    if («PLANTED || »!session->engine_.is_lost()) {
session.cc: stages are measured between the wrong events
|«PLANTED ? nanoseconds(computed_, copied_out_) : »nanoseconds(copied_in_, computed_),
cuda.cc: a failed allocation is taken for a failed run
|            return «PLANTED ? ErrorKind::kTransient : »ErrorKind::kOutOfMemory;
engine.cc: the tensors' types are not those of the plan
|            return «PLANTED ? Element::kFloat32 : »Element::kFloat16;
session.cc: every run allocates on the host
|    record(started_);
|«    if (PLANTED) delete new int(staged_->shape.rows);
|»
session.cc: captures are not kept apart from other contexts
|«    std::recursive_mutex other;
|»    std::lock_guard const alone(«PLANTED ? other : »engine_.contexts());
|    bucket.wants_graph
session.cc: a refused graph is given up at once
|for (bool const is_last : {false, true}) {
|«        if (PLANTED && !is_last) continue;
|»
engine.cc: the plan's profiles are not compared
|        if («!PLANTED && »*found != wanted) {
"""
ENTRIES = (entry.splitlines() for entry in re.split(r"\n(?!\|)", TABLE.strip()))
MISTAKES = [
    Mistake(*reversed(head.split(": ", 1)), "\n".join(line[1:] for line in place))
    for head, *place in ENTRIES
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
