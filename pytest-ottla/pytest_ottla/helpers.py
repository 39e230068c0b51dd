"""Prepares tests and reads their outcome as a client does, by commands of `ottla serve --ephemeral`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_ottla.process import OttlaError

_POLL_SECONDS = 0.02
__tracebackhide__ = True  # a failure shows the line of the test


class Record(NamedTuple):
    """A record as it is in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Helpers(ABC):
    """The helpers of a broker, whichever process has started it."""

    bootstrap_servers: str
    """host:port, for clients."""

    @abstractmethod
    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        """Send a command of `ottla serve --ephemeral`, and return its result. `seconds` is what it may take by itself.

        Raises OttlaError.
        """

    @abstractmethod
    def heal(self) -> None:
        """End all faults that tests can order."""

    def known_brokers(self) -> list[int]:
        """The ids of the brokers that this one knows to be alive."""
        found: list[int] = self.ask("brokers")
        return found

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = -1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; it is known to the brokers on return."""
        self.ask("create_topic", topic=name, partitions=partitions, replication_factor=replication_factor, config=dict(config or {}))

    def delete(self, prefix: str) -> None:
        """Delete the topics and groups whose names begin so."""
        self.ask("delete", prefix=prefix)

    def produce(self, topic: str, values: Iterable[bytes | tuple[bytes | None, bytes | None]], partition: int | None = None) -> list[int]:
        """Write values, or pairs of key and value, with acks=all. Returns the offsets."""
        pairs = [each if isinstance(each, tuple) else (None, each) for each in values]
        found: list[int] = self.ask("produce", topic=topic, records=[[_text(key), _text(value), partition] for key, value in pairs])
        return found

    def consume(self, topic: str, count: int, timeout: float = 10.0) -> list[Record]:
        """The first `count` records of a topic, from the start of each partition. Raises OttlaError if there are fewer in time."""
        found = self.ask("consume", timeout, topic=topic, count=count, timeout=timeout)
        return [Record(partition, offset, _bytes(key), _bytes(value)) for partition, offset, key, value in found]

    def lag(self, group: str, topic: str) -> int:
        """Records of the topic that the group has not committed yet."""
        found: int = self.ask("lag", group=group, topic=topic)
        return found

    def wait_for_lag_zero(self, group: str, topic: str, timeout: float = 30.0) -> None:
        """Wait until the group has committed all records. Raises OttlaError with the lag that is left."""
        deadline = time.monotonic() + timeout
        while (left := self.lag(group, topic)) > 0:
            if time.monotonic() > deadline:
                raise OttlaError(f"group {group} is {left} records behind in {topic} after {timeout:g} s")
            time.sleep(_POLL_SECONDS)


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
