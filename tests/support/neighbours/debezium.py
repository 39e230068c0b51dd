"""Runs Debezium's embedded engine as `DebeziumRelay.java` describes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer
from tests.support.neighbours.artifacts import DEBEZIUM
from tests.support.neighbours.postgresql import PostgreSQL

_PROGRAM = Path(__file__).parents[1] / "java" / "DebeziumRelay.java"


class Relay:
    """The engine, in a process of its own."""

    def __init__(self, bootstrap: str, database: PostgreSQL, directory: Path) -> None:
        options = ["-Xmx384m", *QUICK_OPTIONS, f"-Djava.io.tmpdir={directory}", "-cp", f"{DEBEZIUM.jars()}/*"]
        self._command = ["java", *options, str(_PROGRAM), bootstrap, str(database.port)]
        self._process = JavaServer("Debezium", directory / "debezium.log")

    def start(self) -> None:
        """Returns at once."""
        self._process.launch(self._command)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.end(signal.SIGKILL)

    def said(self) -> str:
        """The log of its last run."""
        return self._process.said()


@contextmanager
def a_relay(bootstrap: str, database: PostgreSQL, directory: Path) -> Iterator[Relay]:
    """The engine runs when the block begins."""
    directory.mkdir()
    relay = Relay(bootstrap, database, directory)
    relay.start()
    try:
        yield relay
    except BaseException:
        print(f"--- Debezium\n{relay.said()[-6_000:]}")
        raise
    finally:
        relay.kill()
