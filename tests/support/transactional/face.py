"""Describes what the transactional clients of all four libraries can do, and what they raise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from tests.support.broker_process import eventually

SECONDS = 90
TIMEOUT_MS = 60_000
LINGER_MS = 5


class Refused(Exception):
    """A client raised this; the message is its own."""


class Fenced(Refused):
    """The producer is not the owner of its transactional id any more."""


class Found(NamedTuple):
    """A record that a consumer was given."""

    partition: int
    offset: int
    value: str


class Producer(Protocol):
    """A transactional producer that has its producer id."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, *values: str) -> None:
        """Hand over records; `flush` and `commit` wait for their acknowledgement."""

    def flush(self) -> None:
        """Raises Refused when a record was."""

    def send_offsets(self, member: Any, topic: str, partition: int, offset: int) -> None:
        """Make the group's offset part of the transaction; `member` is one of the same client."""

    def commit(self) -> None:
        """Raises Refused, Fenced."""

    def abort(self) -> None:
        """Raises Refused, Fenced."""

    def close(self) -> None:
        """End without a word to the coordinator about an open transaction, as a process that dies."""


class Member(Protocol):
    """A member of a group that reads committed records of one topic."""

    def poll(self) -> list[Found]: ...
    def close(self) -> None: ...


class Client(Protocol):
    """One of the four."""

    name: str

    def producer(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """Aborts what an older producer of this id left open. Raises Refused."""

    def member(self, topic: str, group: str) -> Member: ...

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Found]:
        """Read all partitions up to the ends that this isolation level has now."""


def values_of(found: Iterable[Found]) -> dict[int, list[str]]:
    """By partition, in the order in which they came."""
    by_partition: dict[int, list[str]] = {}
    for each in found:
        by_partition.setdefault(each.partition, []).append(each.value)
    return by_partition


def reads(client: Client, topic: str, expected: dict[int, list[str]], partitions: int = 1) -> None:
    """Wait until a `read_committed` consumer reads these values: EndTxn is answered before its markers are written."""
    eventually(lambda: values_of(client.read(topic, partitions)) == expected, what=f"{expected} in {topic}")


def pythonic_consumer(bootstrap: str, group: str | None, *, committed: bool) -> dict[str, Any]:
    """The options of a consumer for kafka-python and aiokafka, which name them alike."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "isolation_level": "read_committed" if committed else "read_uncommitted",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
