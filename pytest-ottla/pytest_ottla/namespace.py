"""Declares `Kafka`, the part of a broker that belongs to one test: names with a prefix of its own, removed at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_ottla.helpers import Helpers, Record


class Kafka:
    """Topics and groups of one test. Names get the prefix; `topic` and `group` return the whole ones, for clients."""

    def __init__(self, broker: Helpers, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for clients."""
        return self.broker.bootstrap_servers

    def topic(self, name: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, and return its name."""
        whole = f"{self.prefix}{name}"
        self.broker.create_topic(whole, partitions, config=config)
        return whole

    def group(self, name: str = "group") -> str:
        """The name of a group that no other test has."""
        return f"{self.prefix}{name}"

    def produce(self, topic: str, values: Iterable[bytes | tuple[bytes | None, bytes | None]], partition: int | None = None) -> list[int]:
        """See Helpers. `topic` is a whole name."""
        return self.broker.produce(topic, values, partition)

    def consume(self, topic: str, count: int, timeout: float = 10.0) -> list[Record]:
        """See Helpers. `topic` is a whole name."""
        return self.broker.consume(topic, count, timeout)

    def wait_for_lag_zero(self, group: str, topic: str, timeout: float = 30.0) -> None:
        """See Helpers. Both are whole names."""
        self.broker.wait_for_lag_zero(group, topic, timeout)

    def remove(self) -> None:
        """End all faults of the broker, and delete the topics and groups."""
        self.broker.heal()
        self.broker.delete(self.prefix)
