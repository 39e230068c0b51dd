"""Stories of clusters with tiered storage, and brokers that die at each request to the store and at each record of the metadata."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from inspect import isfunction
from typing import Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.remote import copies, expiry
from ottla.replication.remote.removals import Removals
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote import choice
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from ottla.storage.remote.ports import MetadataNotReady
from ottla.storage.remote.tier import Tier
from tests.simulation.cluster import SESSION_TIMEOUT_S
from tests.simulation.loop import Life
from tests.simulation.network import Exchange
from tests.simulation.scene import is_api
from tests.simulation.test_stories import tell
from tests.simulation.tiered import TieredStage
from tests.simulation.tiered_story import TieredStory

TOPIC = "records"
DATA = TopicPartition(TOPIC, 0)
RESTART_S = 1.0
BATCHES = 35
"""Three closed segments, and some more."""
LEAST_STEPS = 30
"""Steps of a run that copies three segments and removes a copy: three objects and two records for each, before and after."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_whatever_happens_to_brokers_and_store_no_record_from_the_log_start_on_is_lost() -> None:
    told = tell("--tiered", "--seed", "2", "--stories", "2", "--seconds", "15")
    assert told.endswith("all is well\n")
    assert " 0 segments copied" not in told


class Scene(TieredStage):
    """One tiered partition, whose leader copies its segments, and removes the copies of deleted records.

    `on_step` is told of each request that reaches the store, and each that had its effect there. It is also told of each record that
    reaches the leader of the metadata, and each that is committed.
    """

    def __init__(self, seed: int, brokers: int = 3, **config: str) -> None:
        super().__init__(seed, brokers, {TOPIC: {"retention.bytes": "-1"}}, 1, **config)
        self.on_step: Callable[[str], bool] = lambda step: True
        self.cluster.objects.may_arrive = lambda life, request: self.on_step(request)
        self.cluster.objects.on_done = self._on_done
        self.cluster.network.may_arrive = self._may_arrive
        self._ends: dict[TopicPartition, int] = {}

    def play(self, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(scenario(self))
        finally:
            self.cluster.close()

    async def write(self, batches: int) -> None:
        """Writes some batches, whoever leads."""
        (producer,) = self.producers()
        producer.name = f"{producer.name}-{self.random.getrandbits(32)}"
        producer_id = await producer._producer_id()
        for sequence in range(batches):
            await producer._send([b"%s-%d" % (producer.name.encode(), sequence)], producer_id, 0, sequence)

    async def delete_records(self, offset: int) -> None:
        """Deletes the records before an offset."""
        deleter = self.deleter(TOPIC)
        self.starts.asked[DATA] = max(self.starts.asked[DATA], offset)
        for _ in range(100):
            if await deleter.delete(DATA):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("no leader deletes records")

    def leader(self) -> int:
        """The broker that leads the partition now, as the metadata store has it."""
        return self.elections.states[DATA].leader

    def is_copied(self) -> bool:
        """Tells if a leader has copied all closed segments."""
        log = self.cluster.objects.log_of(self.leader(), DATA)
        return log is not None and log.tier is not None and log.tier.copied.offset + 1 >= log.segments.active.base_offset

    def is_removed(self) -> bool:
        """Tells if a leader has removed the copies before the log start offset. Unfinished ones of a former leader stay an hour."""
        log, metadata = self.cluster.objects.log_of(self.leader(), DATA), self.cluster.objects.metadata_of(self.leader())
        if log is None or metadata is None or not self.is_copied():
            return False
        try:
            entries = metadata.all_entries(TopicIdPartition(log.topic_id, *DATA))
        except MetadataNotReady:
            return False
        return all(each.end_offset >= log.log_start_offset for each in entries)

    async def restart(self) -> None:
        """Starts the brokers that are down."""
        down = [broker_id for broker_id, node in self.cluster.nodes.items() if not node.is_up]
        if down:
            await asyncio.sleep(SESSION_TIMEOUT_S + RESTART_S)
            await asyncio.gather(*(self.cluster.start(broker_id) for broker_id in down))

    def _on_done(self, life: Life, request: str) -> None:
        self.on_step(f"{request} is done")

    def _may_arrive(self, exchange: Exchange) -> bool:
        return not is_api(exchange, ApiKey.PRODUCE) or METADATA_TOPIC.encode() not in exchange.frame or self.on_step("record")

    def _after_step(self, life: Life) -> None:
        super()._after_step(life)
        for partition, committed in self.invariants.committed.items():
            if partition.topic == METADATA_TOPIC and committed.end_offset > self._ends.get(partition, 0):
                self._ends[partition] = committed.end_offset
                self.on_step("record is committed")


async def copy_and_remove(scene: Scene) -> None:
    """Has three segments copied, and the first copy removed again."""
    await scene.write(BATCHES)
    await scene.until(scene.is_copied, "the copies")
    await scene.delete_records(2 * BATCHES // 3)
    await scene.until(lambda: scene.is_removed() and scene.is_whole(), "the removal", why=scene.unsettled)


def killed_at(step: int, seed: int, *, reaches_store: bool) -> bool:
    """Kills the leader of the partition at a step. Returns whether there were as many."""
    steps = 0
    dead: list[int] = []

    async def scenario(scene: Scene) -> None:
        def count(name: str) -> bool:
            nonlocal steps
            steps += 1
            if steps != step or dead:
                return True
            dead.append(scene.leader())
            scene.cluster.kill(dead[0], scene.random)
            return reaches_store

        await scene.begin()
        scene.on_step = count
        acting = asyncio.create_task(copy_and_remove(scene))
        scene.tasks = [acting]
        await scene.until(lambda: bool(dead) or acting.done(), "the kill")
        await scene.restart()
        await scene.until(acting.done, "the end of the work")
        scene.on_step = lambda name: True
        await scene.settle()
        await scene.read_all()

    Scene(seed).play(scenario)
    return bool(dead)


@pytest.mark.parametrize("step", [1, 3, 4, 7, 12, 16, 24, 27, 30])
def test_a_leader_that_dies_at_a_request_to_the_store_or_a_record_of_it_loses_nothing(step: int) -> None:
    assert killed_at(step, 7, reaches_store=step % 2 == 0)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("reaches_store", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_leader_may_die_at_each_request_to_the_store_and_each_record_of_it(seed: int, reaches_store: bool) -> None:
    step = 1
    while killed_at(step, seed, reaches_store=reaches_store):
        step += 1
    assert step > LEAST_STEPS


def local_records_go_before_they_are_copied(patch: pytest.MonkeyPatch) -> None:
    """Local retention believes that all of a closed segment is in the store."""
    patch.setattr(Tier, "has_all", lambda *_: True)


def objects_go_before_the_metadata_say_so(patch: pytest.MonkeyPatch) -> None:
    """A removal begins with the objects."""
    remove = Removals.remove

    async def at_once(self: Removals, entry: SegmentEntry, check: Callable[[], object]) -> None:
        await self._store.delete(entry)
        await remove(self, entry, check)

    patch.setattr(Removals, "remove", at_once)


def copies_have_one_uuid(patch: pytest.MonkeyPatch) -> None:
    """All copies of a broker have the same uuid."""
    patch.setattr(copies.CopyServices, "random_bytes", property(lambda self: bytes, lambda self, value: None), raising=False)


def retention_removes_too_much(patch: pytest.MonkeyPatch) -> None:
    """A quarter of the bytes is kept."""
    patch.setattr(expiry, "Retention", lambda ms, size, now: choice.Retention(ms, size // 4 if size > 0 else size, now))


@pytest.mark.skipif(
    not isfunction(PartitionLog.append), reason="faults are planted in classes that no compiler has closed: see `make test`"
)
@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (local_records_go_before_they_are_copied, "is neither here nor in the store|before the metadata are read"),
        (objects_go_before_the_metadata_say_so, "is removed in the state"),
        (copies_have_one_uuid, "overwritten with another content|other records are copied"),
        (retention_removes_too_much, "retention keeps"),
    ],
)
def test_a_story_tells_of_a_planted_fault(plant: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    otherwise = []
    for seed in range(1, 8):
        try:
            TieredStory(seed, 15.0).tell()
        except AssertionError as error:
            if re.search(told, str(error)):
                return
            otherwise.append(f"{seed}: {error}")
    raise AssertionError(f"no story tells of it, but {otherwise}")
