"""Files and folders as candidates."""

from __future__ import annotations

import pytest

from kernelwright.core.errors import CandidateError
from kernelwright.judge.candidate_files import RECORD, read_candidate
from kernelwright.platforms.candidates import Candidate


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("k.cpp", '#include "kernelwright.h"', "cpp"),
        ("k.cc", '#include "kernelwright.h"', "cpp"),
        ("k.py", "import torch\ndef forward(x): return x", "python"),
        ("k.py", "import torch, triton.language as tl\ndef forward(x): return x", "triton"),
        ("k.py", "# import triton\ndef forward(x): return x", "python"),
        ("k.py", "this does not parse", "python"),
    ],
)
def test_the_language_follows_from_ending_and_content(tmp_path, name, text, language):
    path = tmp_path / name
    path.write_text(text)
    candidate = read_candidate(path)
    assert candidate.language == language
    assert text in candidate.sources.values()
    if language == "cpp":
        assert all(source.endswith(".cpp") for source in candidate.sources)
    else:
        assert candidate.entry in candidate.sources


def test_a_folder_gives_back_the_candidate_that_was_written(tmp_path):
    candidate = Candidate(language="cpp", sources={"a.cpp": "int x;"}, parameters={"tile": 8}, threads=2)
    (tmp_path / RECORD).write_text(candidate.to_json())
    assert read_candidate(tmp_path) == candidate
    assert read_candidate(tmp_path / RECORD).id == candidate.id


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.cpp", None, "no such file"),
        ("k.txt", b"hello", "ends in .txt"),
        ("k.py", b"\xff\xfe", "not UTF-8"),
        (RECORD, b'{"language": "fortran"}', "language"),
    ],
)
def test_what_is_no_candidate_is_said_with_the_path(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CandidateError, match=words) as error:
        read_candidate(path)
    assert name in str(error.value)
    with pytest.raises(CandidateError):
        read_candidate(tmp_path / "folder_without_record")
