"""Drives transactional producers and consumers of Apache's Java client in one JVM, which `TransactionalClient.java` describes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tests.support.apache_kafka.class_archives import TOOLS, using
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.java import start_tool
from tests.support.apache_kafka_4 import ensure_jars_4
from tests.support.transactional.face import TIMEOUT_MS, Fenced, Found, Member, Producer, Refused

_PROGRAM = Path(__file__).parents[1] / "java" / "TransactionalClient.java"


class _Jvm:
    """A JVM that executes commands, one a line, for all Java objects of a client."""

    def __init__(self, bootstrap: str, libs: Path | None) -> None:
        self._process = start_tool(_PROGRAM, bootstrap, options=using(TOOLS) if libs is None else (), libs=libs)
        self._numbers = itertools.count()

    def new_name(self) -> str:
        """A name for the next object."""
        return str(next(self._numbers))

    def call(self, *words: object) -> list[Found]:
        """Raises Refused, Fenced."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        kind, *told = self._process.stdout.readline().rstrip("\n").split("\t")
        if kind != "ok":
            raise (Fenced if told[0] in {"ProducerFencedException", "InvalidProducerEpochException"} else Refused)(f"{words}: {told}")
        return [Found(int(partition), int(offset), value) for partition, offset, value in (each.split(" ", 2) for each in told)]

    def end(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()
        process_guard().release(self._process.pid)


class JavaProducer:
    """Java's."""

    def __init__(self, jvm: _Jvm, transactional_id: str, timeout_ms: int) -> None:
        self._jvm = jvm
        self._name = jvm.new_name()
        jvm.call("producer", self._name, transactional_id, timeout_ms)

    def begin(self) -> None:
        self._jvm.call("begin", self._name)

    def send(self, topic: str, partition: int, *values: str) -> None:
        for value in values:
            self._jvm.call("send", self._name, topic, partition, value)

    def flush(self) -> None:
        self._jvm.call("flush", self._name)

    def send_offsets(self, member: Any, topic: str, partition: int, offset: int) -> None:
        self._jvm.call("offsets", self._name, member.name, topic, partition, offset)

    def commit(self) -> None:
        self._jvm.call("commit", self._name)

    def abort(self) -> None:
        self._jvm.call("abort", self._name)

    def close(self) -> None:
        self._jvm.call("close", self._name, 0)


class JavaMember:
    """Java's."""

    def __init__(self, jvm: _Jvm, topic: str, group: str) -> None:
        self._jvm = jvm
        self.name = jvm.new_name()
        jvm.call("member", self.name, topic, group)

    def poll(self) -> list[Found]:
        return self._jvm.call("poll", self.name)

    def close(self) -> None:
        self._jvm.call("leave", self.name)


class JavaClient:
    """Apache's own client."""

    name = "java"

    def __init__(self, bootstrap: str) -> None:
        self._jvm = _Jvm(bootstrap, self.jars())

    @staticmethod
    def jars() -> Path | None:
        """The folder of its jars; None for those of Apache Kafka 3.9. Raises ToolMissingError."""
        return None

    def producer(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        return JavaProducer(self._jvm, transactional_id, timeout_ms)

    def member(self, topic: str, group: str) -> Member:
        return JavaMember(self._jvm, topic, group)

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Found]:
        return self._jvm.call("read", "", topic, partitions, "read_committed" if committed else "read_uncommitted")

    def end(self) -> None:
        """Kill its JVM."""
        self._jvm.end()


class Java4Client(JavaClient):
    """The client of Kafka 4: its transactions have version 2 where the cluster has transaction.version 2."""

    name = "java-4"

    @staticmethod
    def jars() -> Path:
        """See JavaClient."""
        return ensure_jars_4()
