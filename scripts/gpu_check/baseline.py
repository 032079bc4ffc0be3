"""An encoder of the same size in PyTorch: a program of its own, since PyTorch may not be there.

It has the model's shape and random weights: the time of a run does not depend on their values. Its
answer is JSON on standard output, or one line with the reason why there is none.
"""

import argparse
import importlib
import json
import sys
import time
from typing import Any

#: Runs before those that count.
WARM_UP_RUNS = 5
RUNS_MIN = 10
SPAN_S = 0.5
#: Layers and heads by the width of an encoder of the families that are served.
KNOWN = {384: (12, 12), 768: (12, 12), 1024: (24, 16)}


def encoder(torch: Any, hidden: int, device: str) -> Any:
    """Layers of that width, in half precision on a GPU."""
    layers, heads = KNOWN.get(hidden, (12, max(1, hidden // 64)))
    layer = torch.nn.TransformerEncoderLayer(
        hidden, heads, 4 * hidden, activation="gelu", batch_first=True
    )
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    return model.to(device, torch.float16 if device == "cuda" else torch.float32)


def measure(torch: Any, model: Any, device: str, rows: int, length: int, hidden: int) -> float:
    """Median milliseconds of one run."""
    inputs = torch.zeros(rows, length, hidden, device=device, dtype=next(model.parameters()).dtype)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(WARM_UP_RUNS):
        model(inputs)
    wait()
    times: list[float] = []
    end = time.perf_counter() + SPAN_S
    while len(times) < RUNS_MIN or time.perf_counter() < end:
        start = time.perf_counter()
        model(inputs)
        wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def main() -> int:
    """Measures the shapes that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--shapes", required=True, help="ROWSxLENGTH, with commas between them")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    typed = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        print("PyTorch is not here")
        return 1
    if typed.device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return 1
    shapes = [tuple(map(int, shape.split("x"))) for shape in typed.shapes.split(",")]
    with torch.inference_mode():
        model = encoder(torch, typed.hidden, typed.device)
        times = [
            [rows, length, measure(torch, model, typed.device, rows, length, typed.hidden)]
            for rows, length in shapes
        ]
    print(json.dumps({"version": torch.__version__, "median_ms": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
