"""What nvidia-smi knows: the GPUs, and their clocks and power while something runs."""

import shutil
import statistics
import subprocess
from contextlib import suppress
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


def describe(report: Report) -> None:
    """Adds the machine's GPUs and topology."""
    for words in ([f"--query-gpu={GPU_FIELDS}", "--format=csv"], ["topo", "-m"]):
        done = query(*words)
        report.code(done.stdout + done.stderr)


class Samples:
    """Reads the first GPU's state within a `with`; nothing without nvidia-smi."""

    def __enter__(self) -> "Samples":
        """Begins to read."""
        self._file = TemporaryFile(mode="w+")  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None
        with suppress(SkipSection):
            fields = f"--query-gpu={','.join(SAMPLE_FIELDS)}"
            form = ["--format=csv,noheader,nounits", f"-lms={SAMPLE_MS}", "-i=0"]
            command = [_nvidia_smi(), fields, *form]
            self._process = subprocess.Popen(command, stdout=self._file, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the reading, whatever happened meanwhile."""
        self._end()
        self._file.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def tell(self, report: Report) -> None:
        """Ends the reading and adds least, median and most of each number."""
        self._end()
        self._file.seek(0)
        lines = [line.split(",") for line in self._file]
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
