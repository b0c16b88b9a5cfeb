"""The real command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

START = [sys.executable, "-c", "from kernelwright.interfaces.cli import main; main()"]
QUIET_FUNCTION = """
import torch
from kernelwright.tasks import operation

@operation(x="float32[N, 64]", workloads=[{"N": 256}])
def doubled(x):
    print("chatter from the task's file")
    return torch.relu(x) * 2 + 1
"""
RIGHT = """
#include "kernelwright.h"
#include <stdio.h>
extern "C" int32_t kernelwright_run(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void*, int32_t) {
    printf("chatter from the kernel\\n");
    const float* x = (const float*)in[0].data;
    float* y = (float*)out[0].data;
    for (int64_t i = 0; i < in[0].shape[0] * in[0].shape[1]; ++i) y[i] = (x[i] > 0 ? x[i] : x[i] != x[i] ? x[i] : 0) * 2 + 1;
    return KW_OK;
}
"""
WRONG = RIGHT.replace("* 2 + 1;", "* 2;")


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Variables of a user whose archive and caches lie in `home`."""
    return {**os.environ, "KERNELWRIGHT_HOME": str(home), "NO_COLOR": "", "COLUMNS": "80", **changes}


def command(*words: str | Path, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `kernelwright WORDS` in `folder`."""
    home = changes.pop("home", os.environ["KERNELWRIGHT_HOME"])
    return subprocess.run(
        [*START, *map(str, words)],
        cwd=folder,
        env=environment(Path(home), **changes),
        capture_output=True,
        text=True,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one object on standard output; anything beside it fails."""
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    assert found["schema_version"] == 1
    return found
