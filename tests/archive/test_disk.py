"""Full disks, read-only folders, damaged artifacts: a clear error, and nothing corrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from ledger_records import attempt, candidate, header, passed

from kernelwright.archive.artifacts import ArtifactStore
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import EnvironmentProblem, ResumeError, UsageError

RUN = "20260101-000000-aaaa"
FILL = """
import resource, signal, sys
from pathlib import Path
from ledger_records import attempt, candidate, header, passed
from kernelwright.archive.ledger import Archive
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.errors import EnvironmentProblem
home = Path(sys.argv[1])
archive = Archive.open(home / "archive.sqlite")
folder = RunFolder(home / "run")
folder.path.mkdir()
folder.start(header())
archive.record_run(header(), folder.path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
for index in range(1, 100_000):
    made = candidate(f"{index}" * 3000)
    record = attempt(index, made, passed(made))
    try:
        (folder.append("attempts.jsonl", record) if sys.argv[2] == "folder" else archive.record_attempt(record))
    except EnvironmentProblem as problem:
        print(index - 1, problem.hint)
        break
"""


@pytest.mark.parametrize("which", ["folder", "ledger"])
def test_no_room_for_a_record_is_an_environment_problem_and_the_rest_stays(tmp_path, which):
    """A file that may not grow any further stands for a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path), which],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept, hint = done.stdout.split(maxsplit=1)
    assert hint.strip()
    assert int(kept) > 3
    if which == "folder":
        assert [a.index for a in RunFolder(tmp_path / "run").attempts()] == list(range(1, int(kept) + 1))
        content = (tmp_path / "run" / "attempts.jsonl").read_bytes()
        assert content.endswith(b"\n"), "no half of a line stays"
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        expected = int(kept) if which == "ledger" else 0
        assert [a.index for a in archive.attempts(RUN)] == list(range(1, expected + 1))


def mounted_tmpfs(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("cannot mount a small file system here")
    return folder


def test_a_really_full_file_system(tmp_path):
    folder = mounted_tmpfs(tmp_path)
    archive = Archive.open(folder / "archive.sqlite", artifacts=tmp_path / "artifacts")
    try:
        archive.record_run(header(), folder)
        run = RunFolder(folder)
        with pytest.raises(EnvironmentProblem) as full:
            for index in range(1, 10_000):
                made = candidate(f"{index}" * 2000)
                run.append("attempts.jsonl", attempt(index, made, passed(made)))
        assert "space" in full.value.hint
        kept = run.attempts()
        assert kept
        with pytest.raises(EnvironmentProblem):
            for each in kept:
                archive.record_attempt(each)
        (folder / "attempts.jsonl").unlink()
        archive.record_attempts(kept[:3])
        assert archive.attempts(RUN)[:3] == kept[:3], "with room again the same archive goes on"
    finally:
        archive.close()
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def not_root():
    """Root may write everywhere, so a test of permissions steps down where it is run as root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_home_is_an_environment_problem():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o555)
        with not_root(), pytest.raises(EnvironmentProblem) as caught:
            Archive.open(home / "inner" / "archive.sqlite")
        assert "KERNELWRIGHT_HOME" in caught.value.hint
        assert list(home.iterdir()) == []
        home.chmod(0o755)


def test_a_ledger_that_became_read_only_is_an_environment_problem():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        home = Path(name)
        Archive.open(home / "archive.sqlite").close()
        for path in (*home.iterdir(), home):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with not_root(), pytest.raises(EnvironmentProblem) as caught:
            Archive.open(home / "archive.sqlite").record_run(header(), home)
        assert "KERNELWRIGHT_HOME" in caught.value.hint
        home.chmod(0o755)


def test_a_run_folder_that_cannot_be_written_is_an_environment_problem():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o555)
        with not_root(), pytest.raises(EnvironmentProblem), RunFolder(home / "run").locked():
            pass
        home.chmod(0o755)


def test_artifacts_are_written_once_and_verified(tmp_path):
    store = ArtifactStore(tmp_path / "artifacts")
    key = store.put(b"kernel")
    assert store.put(b"kernel") == key
    assert store.get(key) == b"kernel"
    (path,) = (tmp_path / "artifacts").glob("*/*")
    assert (path.parent.name + path.name) == key
    path.write_bytes(b"kerneL")
    with pytest.raises(EnvironmentProblem, match="damaged"):
        store.get(key)
    path.unlink()
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        store.get(key)


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_an_artifact_key_is_a_hash_and_nothing_else(tmp_path, key):
    with pytest.raises(ValueError, match="SHA-256"):
        ArtifactStore(tmp_path).get(key)


def test_the_run_folder_refuses_what_it_cannot_continue(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(ResumeError, match="no run"):
        folder.header()
    folder.start(header())
    assert folder.header() == header()
    with pytest.raises(UsageError, match="already"):
        folder.start(header())
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ResumeError, match="cannot be read"):
        folder.header()


def test_the_lock_is_held_once(tmp_path):
    first, second = RunFolder(tmp_path / "run").locked(), RunFolder(tmp_path / "run").locked()
    with first, pytest.raises(ResumeError, match="another process"), second:
        pass
    with RunFolder(tmp_path / "run").locked():
        pass
