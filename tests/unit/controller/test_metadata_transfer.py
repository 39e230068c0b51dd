"""A transfer gives the target what the source has, goes on after an end at any write, and refuses what would do harm."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.broker.loop.clock import SystemClock
from ottla.controller.errors import StoreError, StoreUnavailable
from ottla.controller.registration import next_broker_sequence, prepare_store
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import Create, MetadataStore, Multi, Request, Result, SetData
from ottla.controller.transfer import difference as planning
from ottla.controller.transfer import transfer as transferring
from ottla.controller.transfer.contents import MARKER, SEQUENTIAL_PARENTS, Contents, read_contents, read_state
from ottla.controller.transfer.difference import MOST_BYTES, MOST_WRITES, difference, transactions
from ottla.controller.transfer.transfer import Side, TransferRefused, plan, transfer
from ottla.controller.znodes.layout import BROKER_SEQUENCE_ID, CLUSTER_ID, CONFIG_CHANGE_PREFIX, CONTROLLER_EPOCH, encode_cluster_id

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper"
MOMENTS = sorted(path.name for path in GOLDEN.glob("*.json"))
T = TypeVar("T")


class BreaksAfter(MetadataStore):
    """Another store, whose connection breaks at the n-th pipeline with writes: before it is carried out, or after."""

    def __init__(self, behind: MetadataStore, left: int, *, carried_out: bool) -> None:
        self._behind = behind
        self._left = left
        self._carried_out = carried_out

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return self._behind.session_id

    async def open_session(self) -> int:
        """See MetadataStore."""
        return await self._behind.open_session()

    async def close(self) -> None:
        """See MetadataStore."""
        await self._behind.close()

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        self._behind.on_session_expired(callback)

    async def pipeline(self, requests: Sequence[Request]) -> list[Result | StoreError]:
        """See MetadataStore."""
        if any(isinstance(request, Create | Multi | SetData) for request in requests):
            self._left -= 1
            if self._left < 0:
                if self._carried_out and self._left == -1:
                    await self._behind.pipeline(requests)
                raise StoreUnavailable("/", "the connection broke")
        return await self._behind.pipeline(requests)


async def opened() -> MetadataStore:
    """A store over an empty tree."""
    store = MemoryEnsemble(SystemClock()).store()
    await store.open_session()
    return store


async def recorded(moment: str, *, brokers: bool = False) -> MetadataStore:
    """A tree of Apache Kafka, with its ephemeral nodes only if `brokers`."""
    store = await opened()
    requests: list[Request] = []
    for node in json.loads((GOLDEN / moment).read_text(encoding="utf-8"))["tree"][1:]:
        data = None if node["data"] is None else node["data"].encode()
        if not node["ephemeral"] or brokers:
            requests.append(Create(node["path"], data, ephemeral=node["ephemeral"]))
            requests += node["version"] * [SetData(node["path"], data)]
    assert not [result for result in await store.pipeline(requests) if isinstance(result, StoreError)]
    return store


def sides(source: MetadataStore, target: MetadataStore) -> tuple[Side, Side]:
    return Side(source, "the source"), Side(target, "the target")


async def copy(source: MetadataStore, target: MetadataStore) -> transferring.Plan:
    return await transfer(*sides(source, target), lambda *_: None)


def persistent(contents: Contents) -> dict[str, bytes | None]:
    """What has to be equal on both sides; the epoch is raised."""
    return {path: found.data for path, found in contents.nodes.items() if path != CONTROLLER_EPOCH}


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    async def play() -> T:
        return await scenario()

    return asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_recorded_cluster_moves_to_the_file_and_back_unchanged(moment: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        source, back = await recorded(moment), await opened()
        file = EmbeddedStore(str(tmp_path / "metadata.db"), SystemClock())
        await file.open_session()
        try:
            await copy(source, file)
            await copy(file, back)
        finally:
            await file.close()
        before, after = await read_contents(source), await read_contents(back)
        assert persistent(before) == persistent(after)
        epoch, raised = before.nodes[CONTROLLER_EPOCH].data, after.nodes[CONTROLLER_EPOCH].data
        assert int(raised or b"") == int(epoch or b"") + 2  # once for each transfer
        assert (await read_state(back)).marker is None

    run(scenario)


def test_sequence_numbers_and_broker_ids_go_on_above_those_in_use() -> None:
    async def scenario() -> None:
        source, target = await recorded("05-log-topics-transactions.json"), await opened()
        used = [await next_broker_sequence(source) for _ in range(7)][-1]
        names = [await source.create(CONFIG_CHANGE_PREFIX, b"", sequential=True) for _ in range(1300)]
        for name in names[:-2]:
            await source.delete(name)
        found = await copy(source, target)
        assert set(names[-2:]) <= set(found.contents.sequential)
        assert await next_broker_sequence(target) > used
        assert await target.create(CONFIG_CHANGE_PREFIX, b"", sequential=True) > names[-1]
        assert await target.children("/config/changes") == [f"config_change_{int(names[-1][-10:]) + 1:010d}"]

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_transfer_that_ends_at_any_write_is_completed_by_the_next(carried_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_WRITES", 15)
    monkeypatch.setattr(transferring, "_TRANSACTIONS_AT_ONCE", 2)

    async def scenario() -> int:
        source = await recorded("13-reassign-after.json")
        await next_broker_sequence(source)
        wanted = persistent(await read_contents(source))
        for position in range(1000):
            target = await opened()
            broken = BreaksAfter(target, position, carried_out=carried_out)
            try:
                await copy(source, broken)
                return position
            except StoreUnavailable:
                unfinished, nodes = await read_state(target), (await read_contents(target)).nodes
                # The last write, whose reply was lost, has completed the target; none has begun it before the mark.
                assert (unfinished.cluster_id is not None) == (unfinished.marker is None and bool(nodes))
            await copy(source, target)
            assert persistent(await read_contents(target)) == wanted
            assert (await read_state(target)).marker is None
        raise AssertionError("the transfer does not end")

    assert run(scenario) > 8


def test_a_completed_transfer_is_not_repeated_and_other_contents_are_refused() -> None:
    async def scenario() -> None:
        source, target = await recorded("04-topics-created.json"), await opened()
        await copy(source, target)
        assert (await copy(source, target)).is_complete
        await target.create("/brokers/topics/new", b"{}")
        with pytest.raises(TransferRefused, match=r"is not empty .* 1 differ"):
            await copy(source, target)

    run(scenario)


def test_a_changed_source_is_followed_when_the_transfer_goes_on() -> None:
    async def scenario() -> None:
        source, target = await recorded("04-topics-created.json"), await opened()
        with pytest.raises(StoreUnavailable):
            await copy(source, BreaksAfter(target, 2, carried_out=False))
        gone = next(path for path in (await read_contents(source)).nodes if path.startswith("/config/topics/"))
        await source.delete(gone)
        await source.create("/config/topics/late", b"{}")
        await source.set("/controller_epoch", b"41")
        found = await copy(source, target)
        assert found.is_resumed
        after = await read_contents(target)
        assert persistent(after) == persistent(await read_contents(source))
        assert after.nodes[CONTROLLER_EPOCH].data == b"42"

    run(scenario)


def test_a_plan_alone_writes_nothing() -> None:
    async def scenario() -> None:
        source, target = await recorded("07-configs-quotas-scram.json"), await opened()
        found = await plan(*sides(source, target), lambda *_: None)
        assert len(found.wanted.creates) == len(found.contents.nodes) - 1  # the cluster id is written last
        assert await target.children("/") == []

    run(scenario)


async def _live_source() -> tuple[MetadataStore, MetadataStore]:
    return await recorded("03-three-brokers.json", brokers=True), await opened()


async def _live_target() -> tuple[MetadataStore, MetadataStore]:
    target = await opened()
    await target.ensure_path("/brokers/ids")
    await target.create("/brokers/ids/5", b"", ephemeral=True)
    return await recorded("03-three-brokers.json"), target


async def _not_empty() -> tuple[MetadataStore, MetadataStore]:
    target = await opened()
    await target.ensure_path("/brokers/topics/t")
    return await recorded("03-three-brokers.json"), target


async def _other_cluster() -> tuple[MetadataStore, MetadataStore]:
    target = await opened()
    await prepare_store(target, lambda count: bytes(range(count)))
    return await recorded("03-three-brokers.json"), target


async def _no_cluster() -> tuple[MetadataStore, MetadataStore]:
    return await opened(), await opened()


async def _unfinished_source() -> tuple[MetadataStore, MetadataStore]:
    source, unfinished = await recorded("03-three-brokers.json"), await opened()
    with pytest.raises(StoreUnavailable):
        await copy(source, BreaksAfter(unfinished, 1, carried_out=True))
    return unfinished, await opened()


async def _unfinished_other() -> tuple[MetadataStore, MetadataStore]:
    _, target = await opened(), await opened()
    await target.create(MARKER, b'{"version":1,"cluster_id":"another","acls":false}')
    return await recorded("03-three-brokers.json"), target


async def _other_acls() -> tuple[MetadataStore, MetadataStore]:
    source, target = await recorded("03-three-brokers.json"), await opened()
    body = json.loads((await source.get(CLUSTER_ID))[0] or b"")
    await target.create(MARKER, json.dumps({"version": 1, "cluster_id": body["id"], "acls": True}).encode())
    return source, target


async def _kraft() -> tuple[MetadataStore, MetadataStore]:
    source = await recorded("03-three-brokers.json")
    await source.create("/migration", b"{}")
    return source, await opened()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (_live_source, r"the source has live brokers \(0, 1, 2\): stop all"),
        (_live_target, r"the target has live brokers \(5\): stop all"),
        (_not_empty, r"the target is not empty \(3 nodes"),
        (_other_cluster, r"the target holds cluster .*, and the source cluster .*: choose an empty target"),
        (_no_cluster, r"the source holds no cluster: there is no /cluster/id"),
        (_unfinished_source, "the source is the target of an unfinished transfer: complete that first"),
        (_unfinished_other, "unfinished transfer of cluster another, not of"),
        (_other_acls, "begun with zookeeper.set.acl=true: go on with the same value"),
        (_kraft, "migration to KRaft has begun"),
    ],
)
def test_a_transfer_that_would_do_harm_is_refused_and_writes_nothing(
    setting: Callable[[], Awaitable[tuple[MetadataStore, MetadataStore]]], reason: str
) -> None:
    async def scenario() -> None:
        source, target = await setting()
        before = await read_contents(target), await read_state(target)
        with pytest.raises(TransferRefused, match=reason):
            await copy(source, target)
        assert (await read_contents(target), await read_state(target)) == before

    run(scenario)


def test_a_broker_that_starts_on_an_unfinished_target_finds_no_cluster_id() -> None:
    async def scenario() -> None:
        source, target = await recorded("03-three-brokers.json"), await opened()
        with pytest.raises(StoreUnavailable):
            await copy(source, BreaksAfter(target, 2, carried_out=False))
        invented = await prepare_store(target, lambda count: bytes(range(count)))
        assert encode_cluster_id(invented) != (await source.get(CLUSTER_ID))[0]
        with pytest.raises(TransferRefused, match="choose an empty target, or delete that one"):
            await copy(source, target)

    run(scenario)


def test_no_broker_process_may_hold_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "metadata.db")
        broker, mine = EmbeddedStore(path, SystemClock()), EmbeddedStore(path, SystemClock())
        await broker.open_session()
        await mine.open_session()
        try:
            with pytest.raises(TransferRefused, match=r"the target is used by process \d+: stop all brokers"):
                await copy(await recorded("03-three-brokers.json"), mine)
            await broker.close()
            await copy(await recorded("03-three-brokers.json"), mine)
        finally:
            await broker.close()
            await mine.close()

    run(scenario)


def test_transactions_are_of_a_size_that_zookeeper_accepts() -> None:
    async def scenario() -> None:
        source, target = await recorded("04-topics-created.json"), await opened()
        for number in range(1200):
            await source.create(f"/brokers/topics/topic-{number}", b"x" * (1 if number % 7 else 40_000))
        await source.create(CONFIG_CHANGE_PREFIX, b"", sequential=True)
        contents = await read_contents(source)
        cut = list(transactions(difference(contents, await read_contents(target)), contents))
        assert len(cut) > 3
        for one in cut:
            size = sum(len(write.path) + len(getattr(write, "data", None) or b"") for write in one.writes)
            assert len(one.writes) <= MOST_WRITES + 1
            assert size <= MOST_BYTES

    run(scenario)


def test_the_counters_are_those_of_the_parents_of_notifications_and_of_broker_ids() -> None:
    async def scenario() -> None:
        source, target = await recorded("03-three-brokers.json"), await opened()
        await next_broker_sequence(source)
        for parent in SEQUENTIAL_PARENTS:
            await source.ensure_path(parent)
            await source.create(f"{parent}/n_", b"", sequential=True)
        contents = await read_contents(source)
        raised = {each.path for each in difference(contents, await read_contents(target)).raises}
        assert raised == {BROKER_SEQUENCE_ID, *SEQUENTIAL_PARENTS}

    run(scenario)
