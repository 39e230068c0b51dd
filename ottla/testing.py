"""Runs a broker in the process of an asyncio test, on the event loop of the test.

    async with ottla.testing.Broker(num_partitions=3) as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)

`pytest_ottla` has brokers that are processes of their own. It is the choice for tests that kill a broker, pause it, or use clients that
block the event loop.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.ephemeral.in_process import InProcessBroker, Refused

_POLL_SECONDS = 0.02


class BrokerError(Exception):
    """One line: the failure of a broker, and the remedy."""


class Record(NamedTuple):
    """A record as it is in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Broker:
    """One broker, which runs inside `async with`. It keeps its port and its data over `restart`."""

    def __init__(self, directory: Path | None = None, **config: object) -> None:
        """Without a directory the data is in one that the end removes. Keys have underscores for dots: `num_partitions=3`."""
        self._settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        if directory is not None:
            self._settings["log.dirs"] = str(directory / "data")
        self._inner: InProcessBroker | None = None
        self.bootstrap_servers = ""
        """host:port, for clients; known once the broker has started."""

    async def __aenter__(self) -> Broker:
        """Starts the broker. Raises BrokerError."""
        try:
            self._inner = InProcessBroker(self._settings)
            self.bootstrap_servers = await self._inner.start()
        except Refused as error:
            raise BrokerError(f"the broker did not start: {error}") from None
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops the broker."""
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.close()

    async def restart(self) -> None:
        """Stop the broker, also one that has ended by itself, and start it again at the same address with the same data."""
        if self._inner is None:
            raise BrokerError("the broker runs only inside `async with`")
        try:
            await self._inner.restart()
        except Refused as error:
            raise BrokerError(f"the broker did not start: {error}") from None

    # ---- what a client does

    async def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; it is known on return."""
        await self._ask("create_topic", topic=name, partitions=partitions, replication_factor=replication_factor, config=dict(config or {}))

    async def delete(self, prefix: str) -> None:
        """Delete the topics and groups whose names begin so."""
        await self._ask("delete", prefix=prefix)

    async def produce(
        self, topic: str, values: Iterable[bytes | tuple[bytes | None, bytes | None]], partition: int | None = None
    ) -> list[int]:
        """Write values, or pairs of key and value, with acks=all. Returns the offsets."""
        pairs = [each if isinstance(each, tuple) else (None, each) for each in values]
        records = [[_text(key), _text(value), partition] for key, value in pairs]
        found: list[int] = await self._ask("produce", topic=topic, records=records)
        return found

    async def consume(self, topic: str, count: int, timeout: float = 10.0) -> list[Record]:
        """The first `count` records of a topic, from the start of each partition. Raises BrokerError if there are fewer in time."""
        found = await self._ask("consume", topic=topic, count=count, timeout=timeout)
        return [Record(partition, offset, _bytes(key), _bytes(value)) for partition, offset, key, value in found]

    async def lag(self, group: str, topic: str) -> int:
        """Records of the topic that the group has not committed yet."""
        found: int = await self._ask("lag", group=group, topic=topic)
        return found

    async def wait_for_lag_zero(self, group: str, topic: str, timeout: float = 30.0) -> None:
        """Wait until the group has committed all records. Raises BrokerError with the lag that is left."""
        deadline = time.monotonic() + timeout
        while (left := await self.lag(group, topic)) > 0:
            if time.monotonic() > deadline:
                raise BrokerError(f"group {group} is {left} records behind in {topic} after {timeout:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    # ---- time at will

    async def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let this time pass at once: sessions, transactions, retention, quotas and tokens end as if it had passed."""
        await self._ask("advance", ms=(seconds + minutes * 60 + hours * 3600 + days * 86_400) * 1000)

    async def roll(self, topic: str) -> None:
        """Begin a new segment in each partition of a topic."""
        await self._ask("roll", topic=topic)

    async def compact(self, topic: str) -> None:
        """Roll and compact the logs of a topic; they are clean on return."""
        await self._ask("compact", topic=topic)

    async def expire(self, group: str, member: str) -> None:
        """End the session of a member of a group now; `member` is its id."""
        await self._ask("expire", group=group, member=member)

    async def end_locks(self, group: str) -> None:
        """End the locks of a share group now: the records that its members have acquired are delivered again."""
        await self._ask("end_locks", group=group)

    # ---- faults

    async def fail_next(self, api: str, error: str | None, times: int = 1) -> None:
        """Answer the next requests of an API with an error: `fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER")`.

        The names are Kafka's. With None the connection is closed instead.
        """
        await self._ask("fail", api=api, error=error, times=times)

    async def delay(self, ms: float) -> None:
        """Let every request wait before it is handled; 0 ends that."""
        await self._ask("delay", ms=ms)

    async def full_disk(self) -> None:
        """Let every write fail as on a full disk. The broker ends once it has no usable log directory, as Kafka does: `restart` it."""
        await self._ask("disk", full=True)

    async def shift_clock(self, seconds: float) -> None:
        """Let the time of day be ahead for the broker, or behind if negative; 0 ends that. Timeouts run as before."""
        await self._ask("clock", shift_ms=round(seconds * 1000))

    async def heal(self) -> None:
        """End all faults."""
        await self._ask("heal")

    async def _ask(self, do: str, **arguments: Any) -> Any:
        if self._inner is None:
            raise BrokerError("the broker runs only inside `async with`")
        try:
            return await self._inner.ask(do, **arguments)
        except Refused as error:
            raise BrokerError(str(error)) from None


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
