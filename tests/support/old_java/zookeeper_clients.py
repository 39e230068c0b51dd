"""Runs ZooKeeperClients.java: the high-level consumers and the Scala producer of an old release, all in one JVM.

with ZooKeeperClients("0.8.2", zookeeper_connect, broker.bootstrap, tmp_path) as clients:
    clients.open("a", "group", "topic")
    clients.send("topic", acks="0", codec="gzip", count=10)
    eventually(lambda: len(clients.received("a")) == 10)
    clients.close("a")
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.apache_kafka.guard import process_guard
from tests.support.broker_process import eventually
from tests.support.old_java import java_of

_PROGRAM = Path(__file__).parents[1] / "java" / "ZooKeeperClients.java"
_SECONDS = 90.0


class Received(NamedTuple):
    """A record as a consumer printed it."""

    topic: str
    partition: int
    offset: int
    key: str
    value: str


class ZooKeeperClients:
    """The clients of one release. `zookeeper` may end with a path."""

    def __init__(self, release: str, zookeeper: str, bootstrap: str, directory: Path) -> None:
        """`directory` gets the two output files. Raises ToolMissingError."""
        self.release = release
        self._output = directory / f"clients-{release}.out"
        self._errors = directory / f"clients-{release}.err"
        self._calls = 0
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*java_of(release, _PROGRAM), zookeeper, bootstrap], stdin=subprocess.PIPE, stdout=output, stderr=errors
            )
        process_guard().watch(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        process_guard().end(self._process, signal.SIGTERM, 10)

    def open(self, name: str, group: str, topic: str, *, is_pattern: bool = False, storage: str = "zookeeper") -> None:
        """Have a consumer join a group. It owns its part of the partitions when this returns."""
        self._call("open", name, group, "pattern" if is_pattern else "topic", topic, storage)

    def close(self, name: str) -> None:
        """Have a consumer commit what it received, and leave."""
        self._call("close", name)

    def send(self, topic: str, *, acks: str, codec: str, count: int) -> list[str]:
        """Write `count` records; their values."""
        self._call("send", topic, acks, codec, str(count))
        return [f"{acks} {codec} {number}" for number in range(count)]

    def received(self, name: str) -> list[Received]:
        """The records that a consumer received so far, also one of the same name before it."""
        found = []
        for line in self._lines():
            word, *rest = line.split("\t")
            if word == "record" and rest[0] == name:
                _, topic, partition, offset, key, value = rest
                found.append(Received(topic, int(partition), int(offset), key, value))
        return found

    def _call(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._calls += 1
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        eventually(self._has_answered, _SECONDS, f"an answer to {words}")

    def _has_answered(self) -> bool:
        assert self._process.poll() is None, f"the clients of {self.release} ended:\n{self._errors.read_text()[-4000:]}"
        return self._lines().count("done") == self._calls

    def _lines(self) -> list[str]:
        """Complete lines of the output."""
        return self._output.read_text().split("\n")[:-1]
