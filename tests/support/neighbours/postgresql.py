"""Runs a PostgreSQL of Debian for a test: a database of its own, on a free port of 127.0.0.1, that decodes its log for others.

PostgreSQL refuses to run as root. So root runs it as the user `postgres`, in a folder that this user may read.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import eventually

_USER = "postgres"
_SECONDS = 60.0
_STOP_SECONDS = 30


def _programs() -> Path | None:
    """The folder with the programs of the newest release."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


needs_postgresql = pytest.mark.skipif(_programs() is None, reason="no PostgreSQL: install the package postgresql")


class PostgreSQL:
    """A running server. Its only user `postgres` needs no password."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, statement: str) -> str:
        """Run SQL; the answer has a line for each row, with cells between `|`. Raises subprocess.CalledProcessError."""
        programs = _programs()
        assert programs is not None
        command = [str(programs / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-X", "-q", "-A", "-t"]
        done = subprocess.run([*command, "-v", "ON_ERROR_STOP=1"], input=statement, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def answers(self) -> bool:
        """Whether it serves."""
        try:
            return self.ask("SELECT 1;").strip() == "1"
        except subprocess.CalledProcessError:
            return False


@contextmanager
def a_postgresql() -> Iterator[PostgreSQL]:
    """A server with an empty database, which is gone afterwards."""
    programs = _programs()
    assert programs is not None
    user = _USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    process_guard().remove_tree(folder)
    if user is not None:
        shutil.chown(folder, user, user)
    data = folder / "data"
    options = ("-A", "trust", "-U", _USER, "--no-sync", "--no-locale", "-E", "UTF8")
    made = subprocess.run(
        [programs / "initdb", "-D", data, *options], capture_output=True, text=True, user=user, cwd=folder, timeout=_SECONDS, check=False
    )
    assert made.returncode == 0, made.stderr
    (port,) = free_ports(1)
    settings = {"wal_level": "logical", "fsync": "off", "listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder)}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "postgresql.log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(port), *words], stdout=log, stderr=log, user=user, cwd=folder
        )
    process_guard().watch(server.pid)
    database = PostgreSQL(port)
    try:
        eventually(database.answers, _SECONDS, "PostgreSQL answers")
        yield database
    except BaseException:
        print(f"--- PostgreSQL\n{(folder / 'postgresql.log').read_text(errors='replace')[-4_000:]}")
        raise
    finally:
        process_guard().end(server, signal.SIGINT, _STOP_SECONDS)  # without waiting for its clients
        shutil.rmtree(folder)
