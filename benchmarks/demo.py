"""The demo's search, as `make demo` runs it, timed from outside.

python benchmarks/demo.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernelwright.platforms.detect import detect_device
from recording import write

ROOT = Path(__file__).parent.parent
ASKED = {"demo_seconds": "<=180"}


def main() -> int:
    device = detect_device()
    with tempfile.TemporaryDirectory(prefix="kernelwright-demo-") as folder:
        command = [
            str(Path(sys.executable).with_name("kernelwright")),
            "optimize",
            "examples/tanh_residual.py",
            "--run-dir",
            f"{folder}/demo",
            "--fresh",
            "--json",
        ]
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        seconds = time.perf_counter() - began
    answer = json.loads(done.stdout)
    kept = ("outcome", "speedup", "speedup_ci", "baseline", "roofline_fraction", "evaluations", "seconds")
    row = {key: answer.get(key) for key in kept} | {"exit_code": done.returncode, "wall_seconds": seconds}
    print(json.dumps(row, indent=1))
    figures = {"demo_seconds": seconds, "demo_speedup": answer.get("speedup")}
    print(write("demo", device, rows=[row], summary=figures, asked=ASKED))
    return 0 if answer.get("outcome") == "improved" else 1


if __name__ == "__main__":
    sys.exit(main())
