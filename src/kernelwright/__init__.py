"""kernelwright turns an operation written in PyTorch into a verified, faster kernel.

Importing this package loads neither torch nor any model client; heavy imports live in the functions that need them.
"""

__version__ = "0.1.0"
