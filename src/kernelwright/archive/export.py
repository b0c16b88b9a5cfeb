"""A verified candidate as a folder that is a Python package of its own: usable with torch alone, without kernelwright."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright import __version__
from kernelwright.archive.export_readme import readme
from kernelwright.archive.run_folder import now_utc
from kernelwright.core.errors import EnvironmentProblem, UsageError
from kernelwright.core.records import SCHEMA_VERSION
from kernelwright.judge.evaluation import Evaluation, Passed
from kernelwright.platforms.candidates import Candidate
from kernelwright.platforms.device import Compiler, Device
from kernelwright.platforms.languages.cpp import build
from kernelwright.platforms.languages.cpp.options import compile_flags
from kernelwright.tasks.model import Task, TensorSpec

VERIFICATION = "verification.json"
RUNTIME = Path(__file__).parent / "export_runtime"
HOST = build.INCLUDE.parent / "host.py"
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([\w./]+)"', re.MULTILINE)


def export_candidate(
    task: Task,
    candidate: Candidate,
    evaluation: Evaluation,
    device: Device,
    destination: Path,
    *,
    baseline_note: str = "",
    versions: Mapping[str, str] | None = None,
) -> Path:
    """Write the folder; an earlier export in its place is replaced in one step.

    Args:
        task: What the candidate does.
        candidate: Must have passed.
        evaluation: The verdict that the verification record keeps.
        device: Where it was judged.
        destination: The folder; its name is the package's name.
        baseline_note: One sentence on what it was compared with, for the README.
        versions: Of the libraries that were used.

    Returns:
        The absolute path of the folder.

    Raises:
        UsageError: the candidate did not pass, or something else lies at the destination.
        EnvironmentProblem: the folder cannot be written.
    """
    if not isinstance(evaluation, Passed):
        raise UsageError(
            f"only a verified kernel can be exported; this one is {evaluation.outcome}", hint="see the run's report"
        )
    target = destination.absolute()
    _refuse_other_contents(target)
    record = operation_record(task, candidate, evaluation, device)
    verification = _verification(task, candidate, evaluation, device, versions or {})
    files = {
        **_runtime(candidate),
        **_sources(candidate),
        "reference.py": task.source.text,
        "operation.json": json.dumps(record, indent=1),
        "README.md": readme(task, candidate, evaluation, device, record=record, name=target.name, note=baseline_note),
    }
    verification["files"] = {name: hashlib.sha256(_bytes(text)).hexdigest() for name, text in sorted(files.items())}
    files[VERIFICATION] = json.dumps(verification, indent=1)
    try:
        _write(files, target)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the exported folder {target}: {error.strerror or error}", hint="choose another with --out"
        ) from error
    return target


def operation_record(task: Task, candidate: Candidate, evaluation: Passed, device: Device) -> dict[str, Any]:
    """What the exported package must know to call the kernel and to choose between it and the reference."""
    bindings = [dict(c.axes) for c in evaluation.checks if c.passed and not c.hidden]
    verified = [b for i, b in enumerate(bindings) if b not in bindings[:i]] or [w.axes for w in task.timed_workloads]
    hidden = {c.workload for c in evaluation.checks if c.hidden}
    return {
        "schema_version": SCHEMA_VERSION,
        "name": re.sub(r"[^\w.-]", "_", task.name),
        "language": candidate.language,
        "sources": sorted(candidate.sources),
        "entry": candidate.entry,
        "plan": candidate.plan.model_dump(mode="json"),
        "build_options": list(candidate.build_options),
        "flags": {
            family: list(compile_flags(Compiler(path="", name=family, version=""), device.architecture))
            for family in ("gcc", "clang")
        },
        "threads": candidate.threads,
        "arguments": [_argument(a) for a in task.arguments],
        "state": [s.model_dump(mode="json") for s in task.state],
        "outputs": [o.model_dump(mode="json") for o in task.outputs],
        "returns_tuple": task.returns_tuple,
        "axes": [a.model_dump(mode="json") for a in task.axes],
        "verified": verified,
        "other_sizes": bool(task.axes) and not evaluation.specialised and len(verified) + len(hidden) >= 2,
        "strict_shapes": False,
        "reference": {
            "attribute": task.source.attribute,
            "is_module": bool(task.state) or _is_class(task),
            "module": _importable(Path(task.source.path)),
        },
    }


def _argument(argument: Any) -> dict[str, Any]:
    kind = "tensor" if isinstance(argument, TensorSpec) else "scalar"
    return {"kind": kind, **argument.model_dump(mode="json")}


def _is_class(task: Task) -> bool:
    """Whether the reference is a module: a class of the file, or an instance of one, rather than a function."""
    last = re.escape(task.source.attribute.rpartition(".")[2])
    return not re.search(rf"^[ \t]*(async[ \t]+)?def[ \t]+{last}\b", task.source.text, re.MULTILINE) and bool(
        re.search(rf"^[ \t]*(class[ \t]+{last}\b|{last}[ \t]*(:[^=\n]+)?=[^=])", task.source.text, re.MULTILINE)
    )


def _importable(path: Path) -> str:
    """Dotted name of a file that lies in a package, such as `torch.nn.functional`; empty for a file of its own."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(parts)) if len(parts) > 1 else ""


def _runtime(candidate: Candidate) -> dict[str, str]:
    own = ["operation", "original", "building" if candidate.language == "cpp" else "python_kernel"]
    files = {f"{name}.py": (RUNTIME / f"{name}.py").read_text("utf-8") for name in own}
    return files | {"__init__.py": (RUNTIME / "package.py").read_text("utf-8"), "host.py": HOST.read_text("utf-8")}


def _sources(candidate: Candidate) -> dict[str, str]:
    files = {f"sources/{name}": text for name, text in candidate.sources.items()}
    if candidate.language == "cpp":
        files |= {f"sources/include/{name}": text for name, text in _headers(candidate).items()}
    return files


def _headers(candidate: Candidate) -> dict[str, str]:
    """The headers of ours that the sources include, directly or through each other."""
    have = build.header_texts()
    wanted: dict[str, str] = {}
    unread = list(candidate.sources.values())
    while unread:
        for name in _INCLUDED.findall(unread.pop()):
            if name in have and name not in wanted:
                wanted[name] = have[name]
                unread.append(have[name])
    return wanted


def _verification(
    task: Task, candidate: Candidate, evaluation: Passed, device: Device, versions: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "made_at": now_utc(),
        "made_by": f"kernelwright {__version__}",
        "task": {"name": task.name, "id": task.id, "tolerance": task.tolerance.model_dump(mode="json")},
        "candidate": {"id": candidate.id, "parameters": candidate.parameters, "origin": candidate.origin.model_dump()},
        "device": device.model_dump(mode="json"),
        "versions": dict(versions),
        "evaluation": evaluation.model_dump(mode="json"),
    }


def _refuse_other_contents(target: Path) -> None:
    if target.exists() and not (target / VERIFICATION).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is no exported folder", hint="choose another with --out, or remove it")


def _write(files: Mapping[str, str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        scratch.chmod(0o755)
        for name, text in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_bytes(text))
        if target.exists():
            retired = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.rename(retired / "old")
            scratch.rename(target)
            shutil.rmtree(retired, ignore_errors=True)
        else:
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
