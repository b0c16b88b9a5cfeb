"""Compiler flags: the fixed ones of every build, and the few that a candidate may add."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.platforms.device import Compiler

# Never -ffast-math: NaN, infinities and signed zeros must behave as in the reference. The three flags about floating
# point below change no result except by contracting a multiply and an add into one rounding.
_COMMON = (
    "-O3",
    "-std=c++17",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-pipe",
    "-w",
    "-Wno-psabi",  # -w does not silence notes, and wide vectors as arguments get one in every function
)
_SHARED_OBJECT = ("-shared", "-fPIC", "-fno-semantic-interposition", "-fvisibility-inlines-hidden")
_DIAGNOSTICS = {
    "gcc": ("-fdiagnostics-color=never", "-fmax-errors=5"),
    "clang": ("-fno-color-diagnostics", "-ferror-limit=5"),
}
_ALLOWED = re.compile(
    r"-O[23]"
    r"|-f(no-)?unroll-loops|-f(no-)?unroll-all-loops|-f(no-)?tree-vectorize|-f(no-)?tree-slp-vectorize"
    r"|-f(no-)?prefetch-loop-arrays|-f(no-)?strict-aliasing"
    r"|-ffp-contract=(fast|off|on)"
    r"|-mprefer-vector-width=(128|256|512|none)"
    r"|-falign-(loops|functions)=(16|32|64)"
    r"|-finline-limit=\d{1,5}"
    r"|-std=(c|gnu)\+\+(17|20)"
    r"|-D[A-Za-z_]\w{0,63}(=[\w.+-]{0,64})?"
)
ALLOWED_IN_WORDS = (
    "-O2, -O3, unrolling and vectorizing flags, -ffp-contract, -mprefer-vector-width, "
    "-falign-loops, -std=c++17|20, -DNAME=VALUE"
)


def compile_flags(compiler: Compiler, architecture: str) -> tuple[str, ...]:
    """The flags of every build: optimised for this very CPU, IEEE special values intact, one shared object."""
    return (*program_flags(compiler, architecture), *_SHARED_OBJECT)


def program_flags(compiler: Compiler, architecture: str) -> tuple[str, ...]:
    """The same for a program: what a kernel and the program that measures the ceilings have in common."""
    # GCC on Arm documents -mcpu for "this machine"; -march=native is its x86 spelling.
    native = "-mcpu=native" if architecture in ("aarch64", "arm64") else "-march=native"
    return (native, *_COMMON, *_DIAGNOSTICS[compiler.name])


def refused_options(options: Sequence[str]) -> str:
    """Why a candidate's extra options are not accepted, or an empty string."""
    refused = [option for option in options if not _ALLOWED.fullmatch(option)]
    if not refused:
        return ""
    return f"compiler option {refused[0]!r} is not allowed (allowed: {ALLOWED_IN_WORDS})"
