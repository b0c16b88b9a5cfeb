"""The synthetic landscape is a module of its own, since the kill tests run it in other processes too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
