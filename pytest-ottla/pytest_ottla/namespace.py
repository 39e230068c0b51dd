"""Declares `Kafka`, the part of a broker that belongs to one test: names with a prefix of its own, removed at the end."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_ottla.broker import Broker
from pytest_ottla.orders import Orders

__tracebackhide__ = True  # a failure shows the line of the test


class Kafka(Orders):
    """Topics and groups of one test, and the broker's orders, whose faults end with the test.

    `topic` and `group` return whole names, with the prefix, for clients. The other methods take whole names.
    """

    def __init__(self, broker: Orders, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.bootstrap_servers = broker.bootstrap_servers

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Names the fixture that has the method."""
            if hasattr(Broker, name):
                raise AttributeError(f"the fixture kafka has no {name}: use the fixture ottla, which is the broker: ottla.{name}")
            meant = get_close_matches(name, [each for each in dir(self) if not each.startswith("_")], n=1)
            raise AttributeError(f"the fixture kafka has no {name}" + "".join(f"; did you mean {each}?" for each in meant))

    def topic(self, name: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic, and return its name."""
        whole = f"{self.prefix}{name}"
        self.create_topic(whole, partitions, config=config)
        return whole

    def group(self, name: str = "group") -> str:
        """The name of a group that no other test has."""
        return f"{self.prefix}{name}"

    def ask(self, do: str, seconds: float = 0.0, **arguments: Any) -> Any:
        """See Helpers."""
        return self.broker.ask(do, seconds, **arguments)

    def heal(self) -> None:
        """See Helpers."""
        self.broker.heal()

    def remove(self) -> None:
        """End all faults of the broker, and delete the topics and groups."""
        self.heal()
        self.delete(self.prefix)
