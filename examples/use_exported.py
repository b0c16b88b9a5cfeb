"""Use a winner: the exported folder is all that is needed, kernelwright is not imported.

kernelwright optimize examples/tanh_residual.py --run-dir kernelwright-runs/demo
python examples/use_exported.py kernelwright-runs/demo/best
"""

import sys
from pathlib import Path

import torch


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(folder.parent))
    optimized = __import__(folder.name).optimized

    x, y, gain = torch.randn(512, 4096), torch.randn(512, 4096), torch.randn(4096)
    result = optimized(x, y, gain)
    expected = x.double() + torch.tanh(y.double() * gain.double())
    print(f"largest error against float64: {(result - expected).abs().max().item():.2e}")
    print(f"kernelwright loaded: {'kernelwright' in sys.modules}")


if __name__ == "__main__":
    main()
