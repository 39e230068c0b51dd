"""Replicas that were moved away while their broker was dead: their directories are put aside, if nothing speaks against it."""

from typing import Any

from ottla.broker.cluster.stray_replicas import DELAY_MS, StrayReplicas
from ottla.controller.store.memory_store import MemoryStore
from ottla.controller.store.metadata_store import SetData
from ottla.controller.znodes.layout import ReplicaAssignment, TopicAssignment, encode_topic, topic_path
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.storage.log.partition_log import PartitionLog
from tests.support.controlled_cluster import new_ensemble
from tests.support.handler_bench import on_a_loop
from tests.support.logs import append
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, metadata, state

T0 = TopicPartition(TOPIC, 0)
ELSEWHERE = ReplicaAssignment((1, 2))


class Turns:
    """No time passes in any of them."""

    async def spread(self, steps: Any) -> Any:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    async def pause(self) -> None:
        pass


class Stage:
    """Broker 0 has come back with a log of `orders`."""

    def __init__(self, *, frees_names: bool = False) -> None:
        self.replicas = Replicas()
        self.replicas.manager.frees_names = frees_names
        self.log = self.replicas.logs.get_or_create(T0, TOPIC_ID, is_new=True)
        append(self.log)
        self.store = MemoryStore(new_ensemble())
        self.strays = StrayReplicas(self.store, self.replicas.manager, self.replicas.disks.background)

    async def begin(self, assignment: ReplicaAssignment | None = ELSEWHERE, topic_id: bytes = TOPIC_ID) -> None:
        """The store has this, and the controller says that broker 1 leads it and is its only replica."""
        await self.store.open_session()
        if assignment is not None:
            await self.put(assignment, topic_id)
        self.update(topic_id)
        self.strays.on_other_controller()

    async def put(self, assignment: ReplicaAssignment, topic_id: bytes = TOPIC_ID) -> None:
        await self.store.ensure_path(topic_path(TOPIC))
        await self.store.pipeline([SetData(topic_path(TOPIC), encode_topic(TopicAssignment(topic_id, {0: assignment})))])

    def update(self, topic_id: bytes = TOPIC_ID) -> None:
        request = UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0, 1, 2), topic_states=[metadata(TOPIC, topic_id, p0=1)])
        at_once(self.replicas.manager.on_update_metadata(request))

    async def look(self) -> list[str]:
        """Half a minute passes; what stands in the log directory then."""
        self.replicas.disks.background.advance(DELAY_MS)
        if self.strays._looking is not None:
            await self.strays._looking
        self.replicas.disks.settle()
        names = self.replicas.disks.filesystem.list_directory("/data")
        return [name for name in names if name.startswith(TOPIC)]

    @property
    def hosted(self) -> PartitionLog | None:
        return self.replicas.logs.get(T0)


@on_a_loop
async def test_a_replica_that_was_moved_away_is_put_aside_and_kept() -> None:
    stage = Stage()
    await stage.begin()
    (name,) = await stage.look()
    assert name.endswith("-stray")
    assert stage.replicas.disks.filesystem.read_file(f"/data/{name}/00000000000000000000.log")
    assert stage.hosted is None
    stage.replicas.disks.background.advance(10 * DELAY_MS)
    assert await stage.look() == [name]


@on_a_loop
async def test_nothing_is_put_aside_that_the_store_may_still_want_here() -> None:
    for assignment, topic_id in (
        (ReplicaAssignment((1, 0)), TOPIC_ID),
        (ReplicaAssignment((1, 2, 0), removing_replicas=(0,)), TOPIC_ID),
        (ReplicaAssignment((1, 2), adding_replicas=(0,)), TOPIC_ID),
        (ReplicaAssignment(()), TOPIC_ID),
        (ELSEWHERE, b"id of another..."),
        (None, TOPIC_ID),
    ):
        stage = Stage()
        await stage.begin(assignment, topic_id)
        assert await stage.look() == ["orders-0"], assignment
        assert stage.hosted is stage.log


@on_a_loop
async def test_without_zookeeper_a_replica_of_a_deleted_topic_is_put_aside() -> None:
    for created_again in (False, True):
        stage = Stage(frees_names=True)
        await stage.begin(ELSEWHERE if created_again else None, b"id of another...")
        if not created_again:
            stage.replicas.cluster.topics.clear()
        (name,) = await stage.look()
        assert name.endswith("-stray")


@on_a_loop
async def test_without_zookeeper_nothing_is_put_aside_that_the_store_may_still_want_here() -> None:
    async def is_kept(stage: Stage) -> bool:
        return await stage.look() == ["orders-0"] and stage.hosted is stage.log

    here = Stage(frees_names=True)
    await here.begin(ReplicaAssignment((1, 0)))
    here.replicas.cluster.topics.clear()  # the controller has not reported it yet
    assert await is_kept(here)
    malformed = Stage(frees_names=True)
    await malformed.begin()
    malformed.replicas.cluster.topics.clear()
    await malformed.store.pipeline([SetData(topic_path(TOPIC), b"{")])
    assert await is_kept(malformed)
    without_id = Stage(frees_names=True)
    without_id.log.topic_id = ZERO_UUID
    await without_id.begin(None)
    without_id.replicas.cluster.topics.clear()
    assert await is_kept(without_id)


@on_a_loop
async def test_nothing_is_put_aside_that_the_controller_did_not_say_is_elsewhere() -> None:
    stage = Stage()
    await stage.begin()
    stage.replicas.cluster.topics.clear()
    assert await stage.look() == ["orders-0"]


@on_a_loop
async def test_nothing_is_put_aside_that_is_hosted_here() -> None:
    stage = Stage()
    await stage.begin()
    stage.replicas.say(state(1, 4, is_new=False))
    assert await stage.look() == ["orders-0"]


@on_a_loop
async def test_what_the_controller_says_while_the_store_is_asked_counts() -> None:
    stage = Stage()
    await stage.begin()
    pipeline = stage.store.pipeline

    async def slow(requests: Any) -> Any:
        found = await pipeline(requests)
        stage.replicas.say(state(1, 4, is_new=False))
        return found

    stage.store.pipeline = slow  # type: ignore[method-assign]  # between the question and its answer
    assert await stage.look() == ["orders-0"]


@on_a_loop
async def test_a_store_that_is_away_is_asked_again() -> None:
    stage = Stage()
    await stage.begin()
    await stage.store.close()
    assert await stage.look() == ["orders-0"]
    await stage.store.open_session()
    (name,) = await stage.look()
    assert name.endswith("-stray")


@on_a_loop
async def test_nobody_looks_any_more_when_it_is_closed() -> None:
    stage = Stage()
    await stage.begin()
    stage.replicas.disks.background.timers.clear()
    await stage.strays.close()
    stage.strays.on_other_controller()
    assert await stage.look() == ["orders-0"]
