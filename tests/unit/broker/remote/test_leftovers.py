"""What deleted topics have left in a remote store goes after two listings, and nothing else goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.remote import leftovers
from ottla.broker.remote.gone_topics import GoneTopics
from ottla.broker.remote.leftovers import Leftovers
from ottla.broker.remote.stored_names import stored_name
from ottla.broker.remote.tasks import local_topic_ids
from ottla.controller.errors import StoreUnavailable
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID, from_text, to_text
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.metadata.packed_entries import HEAD
from ottla.storage.remote.metadata.segment_cache import SegmentCache
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.filesystems import MemoryFileSystem
from tests.support.log_manager import Disks
from tests.support.remote_fakes import MemoryStore
from tests.support.tiered_replicas import TieredReplica
from tests.support.virtual_time import VirtualLoop, in_virtual_time

INTERVAL = 10.0
OLD, NEW = bytes([1] * 16), bytes([2] * 16)


def name_of(topic: str, topic_id: bytes, uuid: int, part: str = "log", start_offset: int = 0) -> str:
    return f"{topic}-{to_text(topic_id)}/0/{start_offset:020d}-{to_text(bytes([uuid] * 16))}.{part}"


class Store(MemoryStore):
    """Fails so many times."""

    failures = 0

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore."""
        if self.failures:
            self.failures -= 1
            raise RemoteStoreError("503")
        return await super().owner(claim)


class Stage:
    """A store of the cluster `one`, and the topics that this has."""

    def __init__(self, *names: str, **topics: bytes) -> None:
        self.store = Store(MemoryFileSystem())
        replica = TieredReplica(store=self.store)
        self.metadata = replica.metadata
        self.store.owner_id = "one"
        self.store.names = dict.fromkeys(names, 0)
        for name in filter(None, map(stored_name, names)):
            start, partition = name.start_offset, name.topic_id_partition
            cache = self.metadata.caches.setdefault(partition, SegmentCache(partition))
            cache.add(int.from_bytes(from_text(name.uuid), "big"), HEAD.pack(start, start, -1, -1, -1, 0, name.entry().state, 0))
        self.local: set[bytes] = set()
        self.logs: LogManager | None = None
        """The logs that this broker has, in place of `local`."""
        self.stored_cluster_id: str | None = "one"
        self.topics = topics
        self.fails = 0
        self.is_controller = True
        self.manager = RemoteLogManager(replica.services)
        self.filesystem = MemoryFileSystem()
        self.filesystem.make_directory("/logs")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._clock = loop
        self.leftovers = self.searcher()

    def searcher(self) -> Leftovers:
        """The search of a broker that was just started."""
        return Leftovers(
            self.store,
            self.manager,
            "one",
            self._topic_id_of,
            self._cluster_id_of,
            self._local_topic_ids,
            lambda: self.is_controller,
            GoneTopics(self.filesystem, "/logs", "one"),
            self._in_thread,
            self._clock,
            INTERVAL,
        )

    async def _local_topic_ids(self) -> set[bytes]:
        return self.local if self.logs is None else await local_topic_ids(self.logs, self.logs.context.filesystem, self._in_thread)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _topic_id_of(self, topic: str) -> bytes | None:
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("zookeeper", "no connection")
        return self.topics.get(topic)

    async def _cluster_id_of(self) -> str | None:
        return self.stored_cluster_id

    async def look(self) -> list[int]:
        """The start offsets of the copies that a listing removes, an interval later than the last one."""
        await asyncio.sleep(INTERVAL)
        await self.leftovers.look()
        return await self.removed()

    async def removed(self) -> list[int]:
        """The start offsets of the copies that were removed since the last call."""
        tasks = asyncio.all_tasks()
        while any("remote deletion" in task.get_name() for task in tasks):
            await asyncio.sleep(0.01)
            tasks = asyncio.all_tasks()
        found = {start for call, start in self.store.calls if call == "delete"}
        self.store.calls.clear()
        return sorted(found)


def test_copies_of_a_deleted_topic_go_after_the_second_listing(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("gone", OLD, 1), name_of("gone", OLD, 1, "indexes"), name_of("gone", OLD, 2, "log", 500), "notes/todo.txt")
        assert await stage.look() == []
        assert f"go after the next listing: gone ({to_text(OLD)})" in caplog.text
        assert await stage.look() == [0, 500]

    scenario()
    assert "are removed, where the metadata know their partitions: gone" in caplog.text


@in_virtual_time
async def test_a_broker_that_is_restarted_before_each_second_listing_removes_copies_all_the_same() -> None:
    stage = Stage(name_of("gone", OLD, 1))
    assert await stage.look() == []
    stage.leftovers = stage.searcher()
    assert await stage.look() == [0]


@in_virtual_time
async def test_restarts_do_not_shorten_the_time_until_copies_are_removed() -> None:
    stage = Stage(name_of("gone", OLD, 1))
    for _ in range(5):
        stage.leftovers = stage.searcher()
        await stage.leftovers.look()
        assert await stage.removed() == []
        await asyncio.sleep(INTERVAL / 10)
    assert await stage.look() == [0]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "cluster_id": "another", "topics": []}', b"\xff"])
def test_a_file_of_another_cluster_or_form_delays_removals_and_no_more(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("gone", OLD, 1))
        replace_file(stage.filesystem, "/logs/remote-leftovers", content)
        assert [await stage.look() for _ in range(2)] == [[], [0]]

    scenario()
    assert "remote-leftovers is not used" in caplog.text


@in_virtual_time
async def test_copies_of_topics_that_exist_stay() -> None:
    stage = Stage(name_of("orders", OLD, 1), name_of("old.topic", OLD, 2), orders=OLD, **{"old.topic": ZERO_UUID})

    assert [await stage.look() for _ in range(3)] == [[], [], []]


@in_virtual_time
async def test_a_topic_of_the_same_name_does_not_keep_the_copies_of_a_deleted_one() -> None:
    stage = Stage(name_of("orders", OLD, 1, start_offset=7), name_of("orders", NEW, 2), orders=NEW)

    assert [await stage.look() for _ in range(2)] == [[], [7]]


@in_virtual_time
async def test_copies_of_a_topic_that_is_there_again_at_the_second_listing_stay() -> None:
    stage = Stage(name_of("orders", OLD, 1))
    assert await stage.look() == []

    stage.topics["orders"] = OLD
    assert await stage.look() == []
    del stage.topics["orders"]
    assert [await stage.look() for _ in range(2)] == [[], [0]]


@pytest.mark.parametrize("owner", ["another", None])
def test_nothing_is_removed_from_a_store_that_does_not_name_the_cluster(owner: str | None, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("gone", OLD, 1))
        stage.store.owner_id = owner
        assert [await stage.look() for _ in range(3)] == [[], [], []]

    scenario()
    assert f"belongs to the cluster {owner}, and not to one" in caplog.text


def test_copies_of_which_the_metadata_know_nothing_stay(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("gone", OLD, 1), name_of("gone", OLD, 2, "log", 500))
        stage.metadata.caches.clear()
        assert [await stage.look() for _ in range(3)] == [[], [], []]

    scenario()
    assert "gone-0: copies in the remote store stay, because the metadata have no entry of this partition" in caplog.text


def test_copies_of_a_topic_whose_replica_here_was_set_aside_stay_while_its_directory_does() -> None:
    """A metadata store from an old copy does not know the topic, so without ZooKeeper the replica is set aside soon after the start."""

    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("unknown", NEW, 1), name_of("gone", OLD, 2, start_offset=9))
        disks = Disks()
        stage.logs = disks.start()
        unknown = TopicPartition("unknown", 0)
        stage.logs.get_or_create(unknown, NEW, is_new=True)
        stage.logs.delete(unknown, is_stray=True)
        disks.settle()
        assert [await stage.look() for _ in range(3)] == [[], [9], []]
        (stray,) = [name for name in disks.filesystem.list_directory("/data") if name.endswith("-stray")]
        disks.filesystem.rename(f"/data/{stray}", "/elsewhere")
        assert [await stage.look() for _ in range(2)] == [[], [0]]

    scenario()


def test_copies_of_a_topic_of_which_the_broker_has_logs_stay(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("unknown", NEW, 1), name_of("gone", OLD, 2, start_offset=9))
        stage.local = {NEW}
        assert [await stage.look() for _ in range(3)] == [[], [9], []]
        stage.local = set()
        assert [await stage.look() for _ in range(2)] == [[], [0]]

    scenario()
    assert (
        f"does not have topics of which this broker has logs; their copies in the remote store stay: unknown ({to_text(NEW)})"
        in caplog.text
    )


def test_copies_that_stay_are_no_obstacle_to_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("a-strange-one", NEW, 9, start_offset=77), name_of("gone", OLD, 1, start_offset=5))
        del stage.metadata.caches[TopicIdPartition(NEW, "a-strange-one", 0)]
        assert [await stage.look() for _ in range(3)] == [[], [], [5]]

    monkeypatch.setattr(leftovers, "MOST_COPIES", 1)
    scenario()


def test_the_event_loop_has_other_turns_while_many_copies_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    @in_virtual_time
    async def scenario() -> None:
        nonlocal pauses
        stage = Stage(*(name_of(f"gone-{uuid % 5}", OLD, uuid, start_offset=uuid) for uuid in range(50)))
        await stage.look()
        pauses = 0
        assert await stage.look() == list(range(50))
        assert pauses == 50 + 50 + 5, "for each object, each copy and each partition"

    monkeypatch.setattr(leftovers, "pause", pause)
    scenario()


@in_virtual_time
async def test_nothing_is_removed_where_the_metadata_store_is_not_that_of_the_cluster_any_more() -> None:
    stage = Stage(name_of("gone", OLD, 1))
    assert await stage.look() == []

    for other in (None, "another"):
        stage.stored_cluster_id = other
        with pytest.raises(RemoteStoreError, match=f"that of the cluster {other}, and not of one"):
            await stage.look()
    stage.stored_cluster_id = "one"
    assert await stage.look() == [0]


@in_virtual_time
async def test_a_topic_that_is_there_again_while_its_copies_are_removed_keeps_the_others() -> None:
    stage = Stage(*(name_of("orders", OLD, uuid, start_offset=uuid) for uuid in range(1, 5)))

    async def come_back(call: str, entry: SegmentEntry) -> None:
        stage.topics["orders"] = OLD

    stage.store.before = come_back
    assert [await stage.look() for _ in range(3)] == [[], [1], []]
    assert len(next(iter(stage.metadata.caches.values())).all_entries()) == 3


@in_virtual_time
async def test_a_removal_waits_where_the_metadata_store_does_not_answer() -> None:
    stage = Stage(*(name_of("orders", OLD, uuid, start_offset=uuid) for uuid in range(1, 5)))

    async def fail(call: str, entry: SegmentEntry) -> None:
        stage.fails += entry.start_offset == 2

    stage.store.before = fail
    assert [await stage.look() for _ in range(2)] == [[], [1, 2, 3, 4]]


def _deny(stage: Stage) -> None:
    stage.store.failures = 1


def _lose_metadata(stage: Stage) -> None:
    stage.fails = 1


def _lose_the_election(stage: Stage) -> None:
    stage.is_controller = False
    asyncio.get_running_loop().call_later(1.5 * INTERVAL, setattr, stage, "is_controller", True)


@pytest.mark.parametrize("trouble", [_deny, _lose_metadata, _lose_the_election])
def test_the_controllers_broker_lists_once_in_an_interval_whatever_fails(trouble: Callable[[Stage], None]) -> None:
    @in_virtual_time
    async def scenario() -> None:
        stage = Stage(name_of("gone", OLD, 1))
        trouble(stage)
        stage.leftovers.start()
        try:
            for seconds, expected in ((INTERVAL + 1, []), (INTERVAL, []), (INTERVAL, [0])):
                await asyncio.sleep(seconds)
                assert await stage.removed() == expected
        finally:
            await stage.leftovers.close()

    scenario()
