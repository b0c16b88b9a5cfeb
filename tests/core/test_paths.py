"""Folders: made on first use, refused with a hint where they cannot be."""

from __future__ import annotations

import pytest

from kernelwright.core.errors import EnvironmentProblem, ExitCode
from kernelwright.core.paths import cache_dir, data_dir


def test_home_overrides_both_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / "cache"
    assert data_dir() == tmp_path / "home" / "data"
    assert cache_dir().is_dir()
    assert data_dir().stat().st_mode & 0o077 == 0


def test_unusable_home_names_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentProblem, match="KERNELWRIGHT_HOME") as caught:
        cache_dir()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
