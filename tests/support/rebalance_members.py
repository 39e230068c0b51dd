"""Members of consumer groups that say in which generation they read what: three clients behind one face, in this process or in one to kill.

A member lives while `poll` is called. `Properties` are Kafka's, with underscores for dots. `topics` that begin with ^ are a pattern.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
from aiokafka.errors import KafkaError as AiokafkaError

from tests.support.apache_kafka.guard import process_guard

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors

Properties = Mapping[str, str | int]
Partition = tuple[str, int]
Result = TypeVar("Result")
SECONDS = 90.0
COMMIT_SECONDS = 1.0
POLL_MS = 50
BASE: Properties = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "max_poll_interval_ms": 10_000}


class Seen(NamedTuple):
    """A record that a member was given, and the generation it was in."""

    generation: int
    topic: str
    partition: int
    offset: int
    value: int


class Member(Protocol):
    """See the module."""

    def poll(self) -> list[Seen]: ...
    def generation(self) -> int:
        """-1 outside the group."""

    def assignment(self) -> set[Partition]: ...
    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Whether the coordinator took it."""

    def close(self) -> None:
        """Leave the group. No-op when it has."""


class ConfluentMember:
    """librdkafka."""

    def __init__(self, bootstrap: str, group: str, topics: str, **properties: str | int) -> None:
        config: dict[str, Any] = {name.replace("_", "."): value for name, value in {**BASE, **properties}.items()}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 300,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **config,
            }
        )
        self._consumer.subscribe([topics])

    def poll(self) -> list[Seen]:
        messages = [message for message in self._consumer.consume(500, POLL_MS / 1000) if message.error() is None]
        generation = self.generation()
        return [Seen(generation, m.topic() or "", m.partition() or 0, m.offset() or 0, int(m.value() or b"")) for m in messages]

    def generation(self) -> int:
        # The only place where the library shows it: what it passes to producers, as bytes. CGMDv2:, int32, group ...
        return int.from_bytes(bytes(self._consumer.consumer_group_metadata())[7:11], sys.byteorder, signed=True)

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        offsets = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in positions.items()]
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return all(each.error is None for each in committed or ())

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python. It does not look for new partitions, see `rebalance_kinds.every_client`.

    As leader it joins again when partitions come to light after it assigned none. Does its `poll` end between the answers to JoinGroup and
    SyncGroup then, it drops the assignment and sends no heartbeats any more, until the session ends: of 300 with Apache Kafka, 4. So it
    learns of the topic before it joins.
    """

    def __init__(self, bootstrap: str, group: str, topics: str, **properties: str | int) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **{**BASE, **properties},
        )
        if topics.startswith("^"):
            self._consumer.subscribe(pattern=topics)
        else:
            self._consumer.subscribe([topics])
            self._consumer.topics()

    def poll(self) -> list[Seen]:
        polled = self._consumer.poll(POLL_MS)
        generation = self.generation()
        return [
            Seen(generation, record.topic, record.partition, record.offset, int(record.value))
            for records in polled.values()
            for record in records
        ]

    def generation(self) -> int:
        found = self._consumer._coordinator.generation_if_stable()
        return -1 if found is None else int(found.generation_id)

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        offsets = {
            kafka.TopicPartition(*partition): kafka.structs.OffsetAndMetadata(offset, "", -1) for partition, offset in positions.items()
        }
        try:
            self._consumer.commit(offsets)
        except (kafka.errors.KafkaError, AssertionError):
            return False
        return True

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    """aiokafka, on a loop in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topics: str, **properties: str | int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._run(self._start(bootstrap, group, topics, {**BASE, **properties}))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _start(self, bootstrap: str, group: str, topics: str, properties: Properties) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=300,
            **properties,
        )
        if topics.startswith("^"):
            self._consumer.subscribe(pattern=topics)
        else:
            self._consumer.subscribe([topics])
        # Not awaited: its first rebalance needs the other members to be polled.
        self._started = asyncio.ensure_future(self._consumer.start())

    def poll(self) -> list[Seen]:
        return self._run(self._poll())

    async def _poll(self) -> list[Seen]:
        if not self._started.done():
            await asyncio.wait([self._started], timeout=POLL_MS / 1000)
            return []
        self._started.result()
        polled = await self._consumer.getmany(timeout_ms=POLL_MS)
        generation = self.generation()
        return [Seen(generation, r.topic, r.partition, r.offset, int(r.value or b"")) for records in polled.values() for r in records]

    def generation(self) -> int:
        coordinator = self._consumer._coordinator
        return -1 if coordinator is None else int(coordinator.generation)  # there is none before it has connected

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        offsets = {aiokafka.TopicPartition(*partition): offset for partition, offset in positions.items()}
        try:
            self._run(asyncio.wait_for(self._consumer.commit(offsets), COMMIT_SECONDS))
        except (AiokafkaError, TimeoutError):
            return False  # it waits for the end of a rebalance, which needs other members to be polled
        return True

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


CLIENTS: dict[str, Callable[..., Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


class MemberProcess:
    """A member in a process of its own, which commits what it has read and says what that was. For tests that kill it."""

    def __init__(self, client: str, bootstrap: str, group: str, topics: str, **properties: str | int) -> None:
        asked = json.dumps([client, bootstrap, group, topics, properties])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.rebalance_members", asked],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        process_guard().watch(self._process.pid)
        self._lines: list[str] = []
        self._assignment: set[Partition] = set()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.commits: list[tuple[int, Partition, int]] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def poll(self) -> list[Seen]:
        found: list[Seen] = []
        while self._lines:
            line = self._lines.pop(0)
            if not line.endswith("\n"):
                continue  # it was killed while it said it
            told = json.loads(line)
            self._assignment = {(topic, partition) for topic, partition in told["assignment"]}
            found += [Seen(*each) for each in told["seen"]]
            self.commits += [(generation, (topic, partition), offset) for generation, topic, partition, offset in told["commits"]]
        return found

    def assignment(self) -> set[Partition]:
        """As it said last."""
        return self._assignment

    def kill(self) -> list[Seen]:
        """SIGKILL; what it said that was not polled yet."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
            process_guard().release(self._process.pid)
            self._reading.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
        return self.poll()

    def close(self) -> None:
        """End it."""
        self.kill()


def _live(client: str, bootstrap: str, group: str, topics: str, properties: Properties) -> None:
    """Until killed."""
    member = CLIENTS[client](bootstrap, group, topics, **properties)
    while True:
        seen = member.poll()
        positions = {(each.topic, each.partition): each.offset + 1 for each in seen}
        commits: list[tuple[int, str, int, int]] = []
        generation = member.generation()
        # Said before it is done: who is killed in between has read, and perhaps committed.
        print(json.dumps({"assignment": sorted(member.assignment()), "seen": seen, "commits": []}), flush=True)
        if positions and member.commit(positions):
            commits = [(generation, *partition, offset) for partition, offset in positions.items()]
            print(json.dumps({"assignment": sorted(member.assignment()), "seen": [], "commits": commits}), flush=True)


if __name__ == "__main__":
    _live(*json.loads(sys.argv[1]))
