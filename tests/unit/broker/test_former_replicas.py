"""Two log directories have logs of different topics of one name: a topic was deleted while one of them was offline."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.broker.cluster.former_replicas import set_former_replicas_aside
from ottla.config.broker import BrokerConfig
from ottla.controller.store.memory_store import MemoryStore
from ottla.controller.store.metadata_store import SetData
from ottla.controller.znodes.layout import ReplicaAssignment, TopicAssignment, encode_topic, topic_path
from ottla.storage.disk.start_errors import DuplicateLog
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from tests.support.batches import a_batch
from tests.support.controlled_cluster import new_ensemble
from tests.support.handler_bench import on_a_loop
from tests.support.log_manager import CLUSTER_ID, Disks
from tests.support.logs import T0, append

FORMER, LATER = b"id of the former", b"id of the later."
ZOOKEEPER = {"zookeeper.connect": "127.0.0.1:2181"}


class Stage:
    """The former topic's log in /a has two records, that of the later one in /b three."""

    def __init__(self, later: bytes = LATER) -> None:
        self.disks = Disks(log_dirs="/a,/b")
        for log_dir, topic_id, records in (("/a", FORMER, 2), ("/b", later, 3)):
            manager = Disks(self.disks.filesystem, log_dir).start()
            append(manager.get_or_create(T0, topic_id, is_new=True), a_batch(records))
            manager.shutdown()
        self.store = MemoryStore(new_ensemble())

    async def start(self, stored: bytes | None, properties: dict[str, str] | None = None, body: bytes | None = None) -> LogManager:
        """Starts on a store that has the topic with the id `stored`, or does not have it."""
        await self.store.open_session()
        if stored is not None or body is not None:
            path = topic_path(T0.topic)
            await self.store.create("/brokers")
            await self.store.create("/brokers/topics")
            await self.store.create(path)
            topic = TopicAssignment(stored, {0: ReplicaAssignment((0,))})
            await self.store.pipeline([SetData(path, body or encode_topic(topic))])
        manager = self.disks.a_manager()
        manager.open()
        manager.identify(CLUSTER_ID, 0)
        with ThreadPoolExecutor(1) as workers:
            await set_former_replicas_aside(self.store, BrokerConfig(properties or {}), manager, workers)
        manager.load()
        return manager

    def strays(self, log_dir: str) -> int:
        return sum(name.endswith("-stray") for name in self.disks.filesystem.list_directory(log_dir))


def the_log(manager: LogManager) -> PartitionLog:
    log = manager.get(T0)
    assert log is not None
    return log


@pytest.mark.parametrize(("stored", "kept", "records"), [(FORMER, "/a", 2), (LATER, "/b", 3)])
def test_the_log_of_the_topic_that_exists_is_opened_and_the_other_one_set_aside(stored: bytes, kept: str, records: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage()
        log = the_log(await stage.start(stored))
        assert (log.directory, log.topic_id, log.log_end_offset) == (f"{kept}/topic-0", stored, records)
        assert {log_dir: stage.strays(log_dir) for log_dir in ("/a", "/b")} == {kept: 0, "/b" if kept == "/a" else "/a": 1}

    scenario()


def test_both_are_set_aside_if_there_is_no_such_topic_any_more() -> None:
    @on_a_loop
    async def scenario() -> None:
        stage = Stage()
        assert (await stage.start(None)).get(T0) is None
        assert (stage.strays("/a"), stage.strays("/b")) == (1, 1)

    scenario()


@pytest.mark.parametrize("why", ["the same topic", "unreadable", "with ZooKeeper"])
def test_nothing_is_set_aside_that_may_be_needed(why: str) -> None:
    """The broker does not start, and both logs stay for the operator."""

    @on_a_loop
    async def scenario() -> None:
        stage = Stage(later=FORMER if why == "the same topic" else LATER)
        with pytest.raises(DuplicateLog):
            await stage.start(LATER, ZOOKEEPER if why == "with ZooKeeper" else None, b"{" if why == "unreadable" else None)
        assert (stage.strays("/a"), stage.strays("/b")) == (0, 0)

    scenario()
