"""Records for the ledger's tests, and a PostgreSQL server of their own where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """Address of an empty server, by its socket; PostgreSQL refuses to run as root, so another user runs it there."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'kernelwright[postgres]'")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL server programs under /usr/lib/postgresql: apt-get install postgresql")
    home = Path(f"/tmp/kw-postgres-{os.getpid()}")
    home.mkdir(mode=0o700)
    user = {}
    if os.getuid() == 0:
        name = next((u for u in ("postgres", "nobody") if _exists(u)), None)
        if name is None:
            pytest.skip("running as root, and there is no other user to run PostgreSQL as")
        entry = pwd.getpwnam(name)
        os.chown(home, entry.pw_uid, entry.pw_gid)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    programs = found[-1].parent

    def call(*words):
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=120, check=False, **user)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            pytest.skip(f"PostgreSQL does not start here: {done.stderr.strip()[-300:]}")

    data, log = str(home / "data"), str(home / "log")
    call(str(programs / "initdb"), "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-k {home} -c listen_addresses='' -c fsync=off"
    call(str(programs / "pg_ctl"), "-D", data, "-l", log, "-o", options, "-w", "start")
    try:
        yield home
    finally:
        call(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(home, ignore_errors=True)


def _exists(name):
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture
def postgres_url(postgres_server, request):
    """A database of this test alone."""
    import psycopg

    name = f"ledger_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(f"host={postgres_server} user=tester dbname=postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"postgresql://tester@/{name}?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request, tmp_path):
    """Every ledger test runs on both."""
    if request.param == "sqlite":
        return str(tmp_path / "archive.sqlite")
    return request.getfixturevalue("postgres_url")
