"""From text to a candidate or a typed reason; nothing is repaired, nothing raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.model.parsing import IllFormed, parse_answer
from kernelwright.platforms.candidates import Candidate

CODE = 'extern "C" int32_t kernelwright_run(const kw_tensor* i, int32_t n) { return 0; }'


def block(code: str = CODE, tag: str = "cpp", fence: str = "```") -> str:
    return f"{fence}{tag}\n{code}\n{fence}\n"


def fault(text: str, *, finish="stop", language="cpp") -> str:
    result = parse_answer(text, finish=finish, language=language)
    assert isinstance(result, IllFormed), result
    assert result.reason
    return result.fault


def accepted(text: str, language="cpp") -> Candidate:
    result = parse_answer(text, finish="stop", language=language)
    assert isinstance(result, Candidate), result
    return result


def test_a_plain_answer():
    candidate = accepted(f"PLAN: one pass, rows in cache.\n\n{block()}\nThat is all.")
    assert candidate.sources == {"kernel.cpp": CODE + "\n"}
    assert candidate.origin.plan == "one pass, rows in cache."
    assert candidate.origin.proposer == "model"


@pytest.mark.parametrize("line", ["**PLAN:** fuse it", "Plan: fuse it", "- plan: fuse it", "**Plan**: fuse it"])
def test_the_plan_is_found_in_its_usual_dress(line):
    assert accepted(f"{line}\n{block()}").origin.plan == "fuse it"


def test_terminal_escapes_leave_the_plan():
    assert accepted(f"PLAN: \x1b[31mred\x1b[0m\n{block()}").origin.plan == "red"


@pytest.mark.parametrize("opening", ["cpp", "c++", "CPP", "cxx"])
@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
def test_tags_and_fences(opening, fence):
    assert accepted(block(tag=opening, fence=fence)).sources == {"kernel.cpp": CODE + "\n"}


def test_a_longer_fence_may_hold_a_shorter_one():
    code = CODE + "\n// ```\n"
    assert accepted(block(code, fence="````")).sources["kernel.cpp"] == code + "\n"


@pytest.mark.parametrize("tag", ["cpp one.cpp", "cpp:one.cpp", "cpp file=one.cpp", 'cpp "one.cpp"'])
def test_files_have_names(tag):
    second = block("// file: two.h\nint two();")
    assert set(accepted(block(tag=tag) + second).sources) == {"one.cpp", "two.h"}


def test_other_languages_are_illustration():
    assert list(accepted(f"```bash\ng++ kernel.cpp\n```\n{block()}").sources) == ["kernel.cpp"]


def test_each_fault_has_its_name():
    assert fault(" \n") == "empty"
    assert fault("I would use SIMD.") == "no_code"
    assert fault(f"```\n{CODE}\n```") == "no_language"
    assert fault(block(tag="rust")) == "wrong_language"
    assert fault(block() + block()) == "several_blocks"
    assert fault(block(tag="cpp a.cpp") + block(tag="cpp a.cpp")) == "several_blocks"
    assert fault(f"```cpp\n{CODE}\n") == "truncated"
    assert fault(block(), finish="length") == "truncated"
    assert fault(block("int main() { return 0; }")) == "missing_entry"
    assert fault(block(CODE + "\0")) == "not_text"
    assert fault(block(CODE + "\ud800")) == "not_text"
    assert fault(block(CODE + "// " + "x" * (256 << 10))) == "too_large"


@pytest.mark.parametrize(
    "name", ["../a.cpp", "/etc/a.cpp", "a/b.cpp", ".a.cpp", "a.py", "kernelwright.h", "kw_vector.h", "a"]
)
def test_names_stay_in_the_folder_and_off_our_headers(name):
    assert fault(block(tag=f"cpp {name}")) == "file_name"


def test_a_header_alone_has_no_entry():
    assert fault(block(tag="cpp kernel.h")) == "missing_entry"


def test_python_needs_one_model():
    model = "import torch\nclass ModelNew(torch.nn.Module):\n    pass"
    candidate = accepted(block(model, tag="python"), language="triton")
    assert (candidate.entry, candidate.language) == ("kernel.py", "triton")
    assert fault(block("x = 1", tag="python"), language="python") == "missing_entry"
    assert fault(block("class ModelNew(:", tag="python"), language="python") == "does_not_parse"
    assert fault(block("(" * 5000, tag="python"), language="python") == "does_not_parse"


anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=300)
pieces = st.lists(
    st.one_of(
        anything,
        st.sampled_from(
            ["```", "```cpp", "~~~", "```cpp a.cpp", "````python", CODE, "PLAN: x", "\r", "class ModelNew: pass"]
        ),
    ),
    max_size=12,
)


@given(pieces, st.sampled_from(["stop", "length", "other"]), st.sampled_from(["cpp", "python", "triton"]))
def test_any_text_gives_a_candidate_or_a_reason(parts, finish, language):
    text = "\n".join(parts)
    result = parse_answer(text, finish=finish, language=language)
    result.to_json()
    if isinstance(result, Candidate):
        assert finish != "length"
        assert result.id
        for source in result.sources.values():
            assert source.removesuffix("\n") in text


@given(st.text(st.characters(codec="utf-8", exclude_characters="`~\r\0"), max_size=200))
def test_code_arrives_as_it_was_written(extra):
    code = f"{CODE}\n{extra}"
    assert accepted(block(code)).sources["kernel.cpp"] == code + "\n"
