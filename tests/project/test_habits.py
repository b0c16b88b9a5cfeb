"""The habits of the repository, checked on what is tracked."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelwright

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
MODULES = sorted((ROOT / "src" / "kernelwright").rglob("*.py"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# Absolute paths of the machine that somebody worked on; the words are split so that this file passes its own test.
_MACHINE = re.compile("|".join(("/ro" + "ot/", "/wo" + "rk/", r"/ho" + r"me/[a-z]\w*/", "/Us" + "ers/")))


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def _in_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["kernelwright", "kernelwright.tasks", "kernelwright.interfaces.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*[m for m in ('torch', 'openai', 'fastapi', 'mcp', 'triton') if m in sys.modules])"
    assert _in_fresh_interpreter(code) == ""


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_are_of_readable_size_and_say_what_they_hold(module: Path) -> None:
    text = module.read_text()
    assert len(text.splitlines()) < 600
    assert text.lstrip().startswith('"""') or not text.strip()


def test_no_wing_is_crossed() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    if not command.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_in_documents_exist(document: Path) -> None:
    named = set(re.findall(r"`make ([a-z-]+)", document.read_text())) | set(
        re.findall(r"^\s*make ([a-z-]+)", document.read_text(), re.MULTILINE)
    )
    assert named <= TARGETS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (document.parent / target).exists(), target


def test_commands_in_documents_exist() -> None:
    known = _in_fresh_interpreter(
        "import sys; sys.argv = ['kernelwright', '--help']\n"
        "from kernelwright.interfaces.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
    )
    for document in DOCUMENTS:
        for command in re.findall(r"^\s*(?:\.venv/bin/)?kernelwright ([a-z]+)", _code(document.read_text()), re.M):
            assert re.search(rf"^  {command} ", known, re.MULTILINE), f"{document.name}: kernelwright {command}"


def _code(markdown: str) -> str:
    """Fenced blocks and inline code."""
    fenced = re.findall(r"^```.*?^```", markdown, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", markdown)])


def test_the_changelog_has_this_version() -> None:
    assert f"## [{kernelwright.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_apache_2() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:400]


def test_every_dependency_is_bounded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    unbounded = [name for name in (*project["dependencies"], *extras) if "<" not in name]
    assert unbounded == []


def test_no_path_of_a_build_machine_is_tracked() -> None:
    found = []
    for path in _tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match}" for match in _MACHINE.findall(text)]
    assert found == []


def test_ci_runs_the_readme_s_own_commands() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert " test" in ci and "make" in ci and "lint" in ci
    assert "make test" in (ROOT / "README.md").read_text()
