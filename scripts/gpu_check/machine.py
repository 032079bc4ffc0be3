"""What nvidia-smi knows: the GPUs, and their clocks and power while something runs."""

import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile

from gpu_check.report import Report, SkipSection

GPU_FIELDS = "index,name,compute_cap,driver_version,memory.total,clocks.max.sm,power.limit"
#: Read again and again while something runs; each is a number.
SAMPLE_FIELDS = {
    "clocks.sm": "SM clock MHz",
    "power.draw": "power W",
    "temperature.gpu": "temperature C",
    "utilization.gpu": "busy %",
    "memory.used": "memory MiB",
}
SAMPLE_MS = 200
QUERY_SECONDS_MAX = 60


def _nvidia_smi() -> str:
    found = shutil.which("nvidia-smi")
    if found is None:
        raise SkipSection("nvidia-smi is not here")
    return found


def query(*words: str) -> subprocess.CompletedProcess[str]:
    """What nvidia-smi says."""
    command = [_nvidia_smi(), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=QUERY_SECONDS_MAX, check=False
    )


@contextmanager
def samples(report: Report) -> Iterator[None]:
    """Reads the first GPU's state in the block, and adds least, median and most of each number when
    that ended well. Nothing without nvidia-smi."""
    with TemporaryFile(mode="w+") as file:
        process: subprocess.Popen[str] | None = None
        with suppress(SkipSection):
            fields = f"--query-gpu={','.join(SAMPLE_FIELDS)}"
            form = ["--format=csv,noheader,nounits", f"-lms={SAMPLE_MS}", "-i=0"]
            process = subprocess.Popen([_nvidia_smi(), fields, *form], stdout=file, text=True)
        try:
            yield
        finally:
            if process is not None:
                process.terminate()
                process.wait()
        file.seek(0)
        lines = [line.split(",") for line in file]
    columns = []
    for place, name in enumerate(SAMPLE_FIELDS.values()):
        numbers = []
        for line in lines:
            with suppress(ValueError, IndexError):
                numbers.append(float(line[place]))
        if numbers:
            row = [min(numbers), statistics.median(numbers), max(numbers)]
            columns.append([name, *(f"{number:.0f}" for number in row)])
    if columns:
        report.table(["GPU 0", "least", "median", "most"], columns)
