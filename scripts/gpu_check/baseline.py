"""An encoder of the same size in PyTorch: a program of its own, since PyTorch may not be there.

It has the model's shape and random weights: the time of a run does not depend on their values. Each
shape runs twice: as PyTorch launches it, and in a CUDA graph, which has no launches to wait for.
Its answer is JSON on standard output, or one line with the reason why there is none.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

#: Runs before those that count.
WARM_UP_RUNS = 5
RUNS_MIN = 10
SPAN_S = 0.5
#: Layers and heads by the width of an encoder of the families that are served.
KNOWN = {384: (12, 12), 768: (12, 12), 1024: (24, 16)}
#: Rows and columns of the product whose rate stands for what the GPU can do.
PRODUCT = 8192


def layers_and_heads(hidden: int) -> tuple[int, int]:
    """Of an encoder of that width."""
    return KNOWN.get(hidden, (12, max(1, hidden // 64)))


def encoder(torch: Any, hidden: int, device: str) -> Any:
    """Layers of that width, in half precision on a GPU."""
    layers, heads = layers_and_heads(hidden)
    layer = torch.nn.TransformerEncoderLayer(
        hidden, heads, 4 * hidden, activation="gelu", batch_first=True
    )
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    return model.to(device, torch.float16 if device == "cuda" else torch.float32)


def operations(hidden: int, rows: int, length: int) -> float:
    """Multiplications and additions of one run: the matrices of each layer, and its attention."""
    layers, _ = layers_and_heads(hidden)
    return rows * length * layers * (24 * hidden * hidden + 4 * length * hidden)


def median_ms(run: Callable[[], object], wait: Callable[[], None]) -> float:
    """Median milliseconds of one run, until its results are there."""
    for _ in range(WARM_UP_RUNS):
        run()
    wait()
    times: list[float] = []
    end = time.perf_counter() + SPAN_S
    while len(times) < RUNS_MIN or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def captured(torch: Any, run: Callable[[], object]) -> Callable[[], object]:
    """The same run as a CUDA graph."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda: graph.replay()


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
    gpu = typed.device == "cuda"
    if gpu and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return 1
    wait = torch.cuda.synchronize if gpu else lambda: None
    shapes = [tuple(map(int, shape.split("x"))) for shape in typed.shapes.split(",")]
    found: dict[str, Any] = {"version": torch.__version__, "shapes": []}
    with torch.inference_mode():
        model = encoder(torch, typed.hidden, typed.device)
        kind = {"device": typed.device, "dtype": next(model.parameters()).dtype}
        for rows, length in shapes:
            inputs = torch.randn(rows, length, typed.hidden, **kind)

            def run(inputs: Any = inputs) -> object:
                return model(inputs)

            one = {"rows": rows, "length": length, "median_ms": median_ms(run, wait)}
            one["operations"] = operations(typed.hidden, rows, length)
            if gpu:
                one["graph_ms"] = median_ms(captured(torch, run), wait)
            found["shapes"].append(one)
        if gpu:
            square = torch.randn(PRODUCT, PRODUCT, **kind)
            took = median_ms(lambda: square @ square, wait)
            found["product_tflops"] = 2 * PRODUCT**3 / took / 1e9
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
