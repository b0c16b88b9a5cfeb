"""How long `kernelwright --help` takes, and that importing the package loads nothing heavy.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from kernelwright.platforms.detect import detect_device
from recording import write

HEAVY = ("torch", "openai", "fastapi", "mcp", "triton", "sqlalchemy")
ASKED = {"help_median_seconds": "<=0.4", "torch_loaded_by_import": "<=0"}
REPEATS = 11


def main() -> int:
    device = detect_device()
    command = Path(sys.executable).with_name("kernelwright")
    subprocess.run([command, "--help"], capture_output=True, check=True)
    samples = [_seconds([str(command), "--help"]) for _ in range(REPEATS)]
    script = f"import sys, kernelwright; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    imports = [_seconds([sys.executable, "-c", "import kernelwright"]) for _ in range(REPEATS)]
    bare = [_seconds([sys.executable, "-c", "pass"]) for _ in range(REPEATS)]
    rows = [
        {"figure": "kernelwright --help", "seconds": samples},
        {"figure": "import kernelwright", "seconds": imports, "heavy_modules": loaded},
        {"figure": "bare interpreter", "seconds": bare},
    ]
    figures = {
        "help_median_seconds": statistics.median(samples),
        "import_median_seconds": statistics.median(imports),
        "interpreter_median_seconds": statistics.median(bare),
        "torch_loaded_by_import": float("torch" in loaded),
    }
    for figure, value in figures.items():
        print(f"{figure:<36} {value:.3f}")
    print(write("startup", device, rows=rows, summary=figures, asked=ASKED))
    return 0


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
