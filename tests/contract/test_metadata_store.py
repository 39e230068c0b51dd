"""What every MetadataStore promises, over every implementation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ottla.controller.errors import (
    BadArguments,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreError,
)
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import (
    Check,
    Children,
    Create,
    Delete,
    EventType,
    Exists,
    Get,
    MetadataStore,
    Multi,
    SetData,
    Stat,
    WatchedEvent,
)
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.zookeeper import a_chroot

Opener = Callable[[], MetadataStore]


class RealClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture(params=["memory", "embedded", pytest.param("zookeeper", marks=pytest.mark.java)])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens clients of one and the same tree."""
    if request.param == "memory":
        yield MemoryEnsemble(RealClock()).store
    elif request.param == "zookeeper":
        settings = ZooKeeperSettings(a_chroot(), session_timeout_ms=6000)
        yield lambda: ZooKeeperStore(settings)
    else:
        path = str(tmp_path / "metadata.db")
        yield lambda: EmbeddedStore(path, RealClock())


def run(opener: Opener, scenario: Callable[..., Awaitable[None]], clients: int = 1) -> None:
    """Runs `scenario` with that many clients, each with a session."""

    async def play() -> None:
        stores = [opener() for _ in range(clients)]
        try:
            for store in stores:
                await store.open_session()
            await scenario(*stores)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(play())


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another client's change brings about."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.005)


def test_a_created_node_is_read_back_with_its_stat(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        before = time.time_ns() // 1_000_000
        assert await store.create("/a", b"x") == "/a"
        data, stat = await store.get("/a")
        assert data == b"x"
        assert (stat.version, stat.cversion, stat.ephemeral_owner) == (0, 0, 0)
        assert stat.czxid == stat.mzxid > 0
        assert before <= stat.ctime_ms == stat.mtime_ms
        assert await store.exists("/a") == stat
        assert await store.children("/") == ["a"]

    run(opener, scenario)


def test_no_data_is_not_empty_data(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/none")
        await store.create("/empty", b"")
        assert (await store.get("/none"))[0] is None
        assert (await store.get("/empty"))[0] == b""
        await store.set("/empty", None)
        assert (await store.get("/empty"))[0] is None

    run(opener, scenario)


def test_a_node_needs_its_parent_and_a_free_name(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(NoNode):
            await store.create("/a/b")
        await store.create("/a")
        with pytest.raises(NodeExists):
            await store.create("/a")
        assert await store.exists("/a/b") is None

    run(opener, scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["a", "/", "/a/", "//a", "/a/../b", "/./a", "/a\x00b", "/a\x1f", "/\x7f", "/\x9f", "/\ue000", "/\uffff", "/\U0001f600"]
)
def test_an_impossible_path_is_refused(opener: Opener, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(BadArguments):
            await store.create(path)

    run(opener, scenario)


@pytest.mark.parametrize("path", ["/a/.", "/a/..", "/a/\x1f"])
def test_no_node_is_at_an_impossible_path(opener: Opener, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"0")
        outcomes = await store.pipeline([Get(path), Children(path), Get("/a")])
        assert [isinstance(outcome, NoNode) for outcome in outcomes] == [True, True, False]
        assert await store.exists(path) is None

    run(opener, scenario)


def test_a_set_counts_the_version_and_checks_the_expected_one(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"0")
        stat = await store.set("/a", b"1", version=0)
        assert stat.version == 1
        assert stat.mzxid > stat.czxid
        with pytest.raises(BadVersion):
            await store.set("/a", b"2", version=0)
        assert (await store.set("/a", b"3")).version == 2
        assert (await store.get("/a"))[0] == b"3"
        with pytest.raises(NoNode):
            await store.set("/b", b"")

    run(opener, scenario)


def test_a_delete_checks_version_and_children(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.ensure_path("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.delete("/a/b", version=7)
        await store.delete("/a/b", version=0)
        await store.delete("/a")
        with pytest.raises(NoNode):
            await store.delete("/a")

    run(opener, scenario)


def test_cversion_counts_children_that_came_and_that_went(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        await store.create("/a/1")
        await store.create("/a/2")
        await store.delete("/a/1")
        stat = await store.exists("/a")
        assert stat is not None
        assert (stat.cversion, stat.version, stat.mzxid == stat.czxid) == (3, 0, True)

    run(opener, scenario)


def test_sequential_nodes_are_numbered_by_the_children_ever_created(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a")
        assert await store.create("/a/n_", sequential=True) == "/a/n_0000000000"
        await store.delete("/a/n_0000000000")
        assert await store.create("/a/n_", b"x", sequential=True) == "/a/n_0000000001"
        await store.create("/a/other")
        assert await store.create("/a/n_", sequential=True) == "/a/n_0000000003"
        assert await store.children("/a") == ["n_0000000001", "n_0000000003", "other"]

    run(opener, scenario)


def test_ensure_path_makes_what_is_missing_and_minds_nothing_that_is_there(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.ensure_path("/a/b/c")
        await store.set("/a/b", b"x")
        await store.ensure_path("/a/b/d")
        await store.ensure_path("/a")
        assert (await store.get("/a/b"))[0] == b"x"
        assert await store.children("/a/b") == ["c", "d"]

    run(opener, scenario)


def test_a_pipeline_carries_out_each_request_on_its_own_in_order(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        outcomes = await store.pipeline(
            [
                Create("/a"),
                Create("/a"),
                Create("/a/b", b"1"),
                SetData("/a/b", b"2"),
                Get("/a/b"),
                Children("/a"),
                Delete("/x"),
                Exists("/x"),
            ]
        )
        assert outcomes[0] == "/a"
        assert isinstance(outcomes[1], NodeExists)
        assert outcomes[2] == "/a/b"
        assert isinstance(outcomes[3], Stat)
        assert outcomes[4] == (b"2", outcomes[3])
        assert outcomes[5] == ["b"]
        assert isinstance(outcomes[6], NoNode)
        assert outcomes[7] is None

    run(opener, scenario)


def test_refusals_leave_nothing_to_the_garbage_collector(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        refusals = await store.pipeline([Get("/none"), Create("/none/a"), Multi((Delete("/none"),))])
        assert [type(each) for each in refusals] == [NoNode, NoNode, NoNode]
        assert [each.__traceback__ for each in refusals if isinstance(each, StoreError)] == [None] * 3

    run(opener, scenario)


def test_later_writes_have_higher_zxids_also_within_a_pipeline(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.pipeline([Create("/a"), Create("/b"), Create("/c")])
        stats = [await store.exists(path) for path in ("/a", "/b", "/c")]
        zxids = [stat.czxid for stat in stats if stat is not None]
        assert sorted(set(zxids)) == zxids
        await store.delete("/a")
        await store.create("/a")
        stat = await store.exists("/a")
        assert stat is not None
        assert stat.czxid > zxids[-1]

    run(opener, scenario)


def test_a_multi_is_all_or_nothing(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/epoch", b"1")
        results = await store.multi([Check("/epoch", 0), Create("/a"), Create("/a/b", b"1"), SetData("/a/b", b"2"), Delete("/epoch")])
        assert results[1:3] == ["/a", "/a/b"]
        assert await store.exists("/epoch") is None
        stat = await store.exists("/a/b")
        assert stat is not None
        assert (stat.version, stat.czxid == stat.mzxid) == (1, True)
        with pytest.raises(BadVersion) as refused:
            await store.multi([Create("/c"), Create("/a/d"), Check("/a", 5), Delete("/a/b")])
        assert refused.value.index == 2
        assert await store.exists("/c") is None
        assert await store.children("/a") == ["b"]
        await store.multi([Delete("/a/b"), Delete("/a"), Create("/a", b"new"), Create("/a/e")])
        assert await store.children("/a") == ["e"]

    run(opener, scenario)


def test_a_failed_multi_in_a_pipeline_leaves_the_others_alone(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        outcomes = await store.pipeline([Multi((Create("/a"), Check("/x", 0))), Create("/b"), Multi((Create("/c"),))])
        assert isinstance(outcomes[0], NoNode)
        assert outcomes[1:] == ["/b", ["/c"]]
        assert await store.children("/") == ["b", "c"]

    run(opener, scenario)


def test_an_ephemeral_node_goes_with_its_session_and_has_no_children(opener: Opener) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.create("/mine", ephemeral=True)
        stat = await other.exists("/mine")
        assert stat is not None
        assert stat.ephemeral_owner == one.session_id != other.session_id
        for sequential in (False, True):
            with pytest.raises(NoChildrenForEphemerals) as refused:
                await other.create("/mine/x", sequential=sequential)
            assert refused.value.path == "/mine/x"
        await one.close()
        assert await other.exists("/mine") is None

    run(opener, scenario, clients=2)


def test_a_store_without_a_session_refuses_everything(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.close()
        await store.close()
        with pytest.raises(SessionExpired):
            await store.exists("/")
        assert store.session_id == 0
        await store.open_session()
        assert await store.exists("/") is not None

    run(opener, scenario)


def test_a_data_watch_fires_once_for_each_kind_of_change(opener: Opener) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        assert await one.exists("/a", events.append) is None
        await other.create("/a", b"0")
        await until(lambda: len(events) == 1)
        await one.get("/a", events.append)
        await other.set("/a", b"1")
        await until(lambda: len(events) == 2)
        await other.set("/a", b"2")
        await one.get("/a", events.append)
        await other.delete("/a")
        await until(lambda: len(events) == 3)
        assert [event.type for event in events] == [EventType.CREATED, EventType.DATA_CHANGED, EventType.DELETED]
        assert {event.path for event in events} == {"/a"}

    run(opener, scenario, clients=2)


def test_a_children_watch_fires_for_children_and_for_the_end_of_the_node(opener: Opener) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        await other.ensure_path("/a/b")
        await one.children("/a", events.append)
        await other.set("/a", b"not a matter of children")
        await other.set("/a/b", b"nor this")
        await other.create("/a/c")
        await until(lambda: len(events) == 1)
        await one.children("/a", events.append)
        await other.multi([Delete("/a/b"), Delete("/a/c")])
        await until(lambda: len(events) == 2)
        await one.children("/a", events.append)
        await other.delete("/a")
        await until(lambda: len(events) == 3)
        assert [event.type for event in events] == [EventType.CHILDREN_CHANGED, EventType.CHILDREN_CHANGED, EventType.DELETED]

    run(opener, scenario, clients=2)


def test_a_read_of_a_missing_node_sets_no_watch(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        outcomes = await store.pipeline([Get("/a", events.append), Children("/a", events.append)])
        assert all(isinstance(outcome, NoNode) for outcome in outcomes)
        await store.create("/a")
        await store.create("/a/b")
        assert events == []

    run(opener, scenario)


def test_the_own_write_fires_the_own_watch_before_its_result_is_seen(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        await store.children("/", events.append)
        await store.exists("/a", events.append)
        await store.create("/a")
        assert {event.type for event in events} == {EventType.CREATED, EventType.CHILDREN_CHANGED}
        await store.set("/a", b"x")
        assert len(events) == 2

    run(opener, scenario)


def test_a_watch_set_after_a_write_of_the_same_pipeline_does_not_see_it(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        await store.create("/a")
        await store.pipeline([SetData("/a", b"1"), Get("/a", events.append)])
        assert events == []
        await store.pipeline([SetData("/a", b"2"), SetData("/a", b"3")])
        assert len(events) == 1

    run(opener, scenario)


def test_a_change_by_another_is_announced_before_it_is_read(opener: Opener) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.create("/a", b"0")
        for turn in range(5):
            events: list[WatchedEvent] = []
            await one.get("/a", events.append)
            await other.set("/a", b"%d" % turn)
            assert (await one.get("/a"))[0] == b"%d" % turn
            assert len(events) == 1

    run(opener, scenario, clients=2)


def test_a_failed_multi_fires_nothing(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        events: list[WatchedEvent] = []
        await store.children("/", events.append)
        with pytest.raises(StoreError):
            await store.multi([Create("/a"), Delete("/b")])
        assert events == []

    run(opener, scenario)


@pytest.mark.slow
def test_concurrent_writers_lose_no_update(opener: Opener) -> None:
    async def scenario(*stores: MetadataStore) -> None:
        await stores[0].create("/counter", b"0")

        async def count(store: MetadataStore) -> None:
            for _ in range(10):
                while True:
                    data, stat = await store.get("/counter")
                    try:
                        await store.set("/counter", b"%d" % (int(data or b"") + 1), stat.version)
                        break
                    except BadVersion:
                        continue

        await asyncio.gather(*(count(store) for store in stores))
        data, stat = await stores[0].get("/counter")
        assert (data, stat.version) == (b"30", 30)

    run(opener, scenario, clients=3)


def test_a_client_may_change_what_belongs_to_no_other_and_asking_changes_nothing(opener: Opener) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.create("/a", b"1")
        assert await store.forbidden(["/a", "/missing"]) == []
        data, stat = await store.get("/a")
        assert (data, stat.version) == (b"1", 0)
        assert await store.exists("/missing") is None

    run(opener, scenario)
