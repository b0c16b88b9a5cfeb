"""A candidate out of a file or folder, as the command line names it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from kernelwright.core.errors import CandidateError
from kernelwright.platforms.candidates import Candidate, Origin
from kernelwright.platforms.languages.python.screening import uses_triton
from kernelwright.tasks.model import Task

RECORD = "candidate.json"
_CPP = (".cpp", ".cc", ".cxx")
_MAX_BYTES = 4 << 20


def read_candidate(path: Path, task: Task | None = None) -> Candidate:
    """`.cpp`/`.cc`: one C++ source with the entry `kernelwright_run`; `.py`: Python, or Triton where it imports triton;
    a folder: its `candidate.json`.

    Args:
        task: What it claims to do; only named in messages.

    Raises:
        CandidateError: missing, unreadable, or of none of these kinds.
    """
    claim = f" for the task {task.name}" if task else ""
    if path.is_dir():
        return _from_record(path / RECORD)
    if not path.exists():
        raise CandidateError(
            f"{path}: no such file or folder", hint=f"give a .cpp or .py file, or a folder with {RECORD}"
        )
    text = _text(path)
    origin = Origin(proposer="file", operator="read", plan=f"read from {path.name}{claim}")
    if path.suffix in _CPP:
        name = path.name if path.suffix == ".cpp" else f"{path.stem}.cpp"
        return Candidate(language="cpp", sources={name: text}, origin=origin)
    if path.suffix == ".py":
        language = "triton" if uses_triton(text) else "python"
        return Candidate(language=language, sources={path.name: text}, entry=path.name, origin=origin)
    if path.name == RECORD:
        return _from_record(path)
    raise CandidateError(
        f"{path}: a candidate ends in .cpp, .cc or .py, or is a folder with {RECORD}; this ends in {path.suffix or 'nothing'}"
    )


def _from_record(path: Path) -> Candidate:
    if not path.is_file():
        raise CandidateError(f"{path.parent}: a candidate's folder holds {RECORD}, this one does not")
    try:
        return Candidate.from_json(_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CandidateError(f"{path}: not a candidate's record: {place}: {first['msg']}") from error


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CandidateError(f"{path}: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES:
        raise CandidateError(f"{path}: {len(data)} bytes, more than {_MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CandidateError(f"{path}: not UTF-8 text (byte {error.start})") from error
