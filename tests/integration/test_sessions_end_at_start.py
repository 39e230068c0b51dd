"""The session of a broker that starts ends at every request of the start: it goes on in a new one, as Apache Kafka's does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.environment import Environment
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.config_admin import ConfigOp, OpType
from ottla.controller.errors import SessionExpired, StoreError
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.metadata_store import Exists, MetadataStore, Request, Result
from ottla.controller.store.sqlite_tree import SqliteTree
from ottla.controller.store.tree import Attempt, delete_ephemerals
from ottla.controller.znodes.layout import CONTROLLER, broker_id_path
from tests.support.cluster_stores import each_store, zookeeper_of

Carry = Callable[[Sequence[Request]], Awaitable[list[Result | StoreError]]]
SECONDS = 60


async def end_session(store: MetadataStore) -> None:
    """As if its process had stood still: another one ends it, and its owner learns of it with its next request."""
    if isinstance(store, EmbeddedStore):
        tree = SqliteTree(store.path)
        with tree.transaction():
            attempt = Attempt(store.session_id, tree.next_number("zxid"), 0, [])
            delete_ephemerals(tree.remove_session(store.session_id), tree, attempt)
        tree.close()
    else:
        from tests.support.zookeeper import shared_zookeeper

        await asyncio.to_thread(shared_zookeeper().expire, store.session_id)


class Misfortune(Environment):
    """The session ends before the `turn`th request of the start reaches the store, or (`answered`) before its answer is back."""

    def __init__(self, turn: int, *, answered: bool = False) -> None:
        super().__init__()
        self.is_process = False  # it is the process of the tests, whose garbage collector is theirs
        self.turn = turn
        self.answered = answered
        self.requests = 0
        self.is_over = False

    def metadata_store(self, open_store: Callable[[], MetadataStore]) -> MetadataStore:
        store = open_store()
        carry_out: Carry = store.pipeline

        async def pipeline(requests: Sequence[Request]) -> list[Result | StoreError]:
            self.requests += not self.is_over
            if self.is_over or self.requests != self.turn:
                return await carry_out(requests)
            if not self.answered:
                await end_session(store)
                return await carry_out(requests)
            await carry_out(requests)
            await end_session(store)
            with suppress(SessionExpired):
                await carry_out([Exists("/")])
            raise SessionExpired("")

        store.pipeline = pipeline  # type: ignore[method-assign]  # a fault of this one store
        return store


async def start(directory: Path, connect: str | None, misfortune: Misfortune) -> Broker:
    properties = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "7"}
    if connect is not None:
        properties |= {"zookeeper.connect": connect}
    broker = Broker(BrokerConfig(properties), misfortune)
    async with asyncio.timeout(SECONDS):
        await broker.start()
    misfortune.is_over = True
    return broker


async def check_is_whole(broker: Broker, segment_ms: int) -> None:
    """It is registered and controller in its present session, knows its epoch, and learns of changed configurations."""
    services = broker.services
    store = services.administration.store
    for path in (broker_id_path(7), CONTROLLER):
        assert (await store.get(path))[1].ephemeral_owner == store.session_id
    assert services.cluster.controller.is_active
    assert services.cluster.controller.broker_epoch == (await store.get(broker_id_path(7)))[1].czxid
    partition = services.data.replica_manager.partition("t", 0)
    assert partition is not None
    assert partition.is_leader
    changed = asyncio.Event()
    services.administration.dynamic_config.on_entity_change("topics", lambda *_: changed.set())
    await services.administration.config_admin.alter_topic_configs("t", [ConfigOp("segment.ms", str(segment_ms), OpType.SET)])
    await changed.wait()
    assert services.administration.dynamic_config.topic_config_of("t").overrides["segment.ms"] == str(segment_ms)


@pytest.mark.parametrize("answered", [False, True], ids=["request-lost", "answer-lost"])
@each_store
def test_a_session_that_ends_at_any_request_of_a_start_is_followed_by_another(tmp_path: Path, store: str, *, answered: bool) -> None:
    connect = zookeeper_of(store)

    async def scenario() -> None:
        misfortune = Misfortune(0)
        broker = await start(tmp_path, connect, misfortune)
        await broker.services.administration.auto_topics.create(["t"])
        await broker.stop()
        turn = 1
        while misfortune.requests >= misfortune.turn:
            misfortune = Misfortune(turn, answered=answered)
            broker = await start(tmp_path, connect, misfortune)
            async with asyncio.timeout(SECONDS):
                while True:
                    # What nobody waited for may have been asked last: then the end is noticed after the start.
                    await broker.services.cluster.controller.delivered()
                    with suppress(SessionExpired):
                        await check_is_whole(broker, 1000 + turn)
                        break
            await broker.stop()
            turn += 1
        assert turn > 10

    asyncio.run(scenario())
