"""Topics whose end nobody could tell a broker: found when another controller speaks to it, or to another life of it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster import missed_deletions
from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.cluster.missed_deletions import MissedDeletions
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.errors import StoreUnavailable
from ottla.controller.store.memory_store import MemoryStore
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.topic_partition import TopicPartition
from tests.support.controlled_cluster import new_ensemble
from tests.support.handler_bench import on_a_loop
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, into, metadata, state

DELETED_ID = b"id of a deleted."


class Stage:
    """A broker that knows `orders`, which it hosts, `kept`, which is in the store, and `deleted`, which is not. Neither is `orders`."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.store = MemoryStore(new_ensemble())
        self.deleted: list[TopicPartition] = []
        self.replicas.manager.deletion_listeners.append(into(self.deleted))
        self.waits = MetadataWaits()
        first_metadata = cast("Any", SimpleNamespace(is_there=True))
        self.missed = MissedDeletions(self.store, self.waits, first_metadata, self.replicas.manager)
        self.others: list[Callable[[], None]] = []
        self.control = ControlRequests(self.replicas.manager, cast("Any", None), self.waits, on_other_controller=self.others)

    async def begin(self) -> None:
        await self.store.open_session()
        await self.store.ensure_path("/brokers/topics/kept")
        self.replicas.say(state())
        self.update(1, 7, (TOPIC, TOPIC_ID), ("kept", b"id of what stays"), ("deleted", DELETED_ID))
        self.others.append(self.missed.on_other_controller)

    def update(self, controller_epoch: int, broker_epoch: int, *topics: tuple[str, bytes]) -> None:
        at_once(
            self.control.on_update_metadata(
                UpdateMetadataRequest(
                    controller_epoch=controller_epoch,
                    broker_epoch=broker_epoch,
                    live_brokers=brokers(0, 1, 2),
                    topic_states=[metadata(topic, topic_id, p0=0 if topic == TOPIC else 1) for topic, topic_id in topics],
                )
            )
        )

    @property
    def known(self) -> set[str]:
        return set(self.replicas.cluster.topics)


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@on_a_loop
async def test_what_is_gone_is_forgotten_when_the_broker_has_a_new_registration_or_another_controller() -> None:
    for speaker in ((1, 8), (2, 7)):
        stage = Stage()
        await stage.begin()
        stage.update(*speaker)
        await rest()
        assert stage.known == {TOPIC, "kept"}
        assert stage.deleted == [TopicPartition("deleted", 0)]
        assert DELETED_ID not in stage.replicas.cluster.names_by_id
        await stage.missed.close()


@on_a_loop
async def test_without_zookeeper_a_deleted_topic_is_no_longer_served_here() -> None:
    stage = Stage()
    stage.replicas.manager.frees_names = True
    await stage.begin()
    log = stage.replicas.partition.log
    stage.update(1, 8)
    await rest()
    assert stage.known == {"kept"}
    assert stage.replicas.manager.partitions == {}
    assert stage.replicas.logs.get(TopicPartition(TOPIC, 0)) is log
    await stage.missed.close()


@on_a_loop
async def test_nobody_is_asked_while_the_same_controller_speaks() -> None:
    stage = Stage()
    await stage.begin()
    stage.update(1, 7)
    await rest()
    assert "deleted" in stage.known


@on_a_loop
async def test_a_topic_of_which_something_is_heard_meanwhile_is_left_alone() -> None:
    stage = Stage()
    await stage.begin()
    children = stage.store.children

    async def children_later(*asked: Any) -> list[str]:
        found = await children(*asked)
        stage.update(2, 7, ("deleted", b"another, the new"))
        return found

    cast("Any", stage.store).children = children_later
    stage.update(2, 7)
    await rest()
    assert "deleted" in stage.known
    await stage.missed.close()


@on_a_loop
async def test_a_store_that_cannot_be_asked_is_asked_again() -> None:
    stage = Stage()
    await stage.begin()
    children, failures = stage.store.children, 2

    async def failing(*asked: Any) -> list[str]:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("zk:2181", "no answer")
        return await children(*asked)

    cast("Any", stage.store).children = failing
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(missed_deletions, "RETRY_SECONDS", 0.0)
        stage.update(2, 7)
        await rest()
    assert (failures, stage.known) == (0, {TOPIC, "kept"})
    await stage.missed.close()


@on_a_loop
async def test_a_store_that_is_away_makes_nobody_forget_anything() -> None:
    stage = Stage()
    await stage.begin()
    await stage.store.close()
    stage.update(2, 7)
    await rest()
    assert "deleted" in stage.known
    await stage.missed.close()
