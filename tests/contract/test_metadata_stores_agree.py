"""The same requests have the same outcomes, and leave the same tree, in memory, in the file and in a real ZooKeeper."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.errors import StoreError
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import (
    Check,
    Children,
    Create,
    Delete,
    Exists,
    Get,
    MetadataStore,
    Multi,
    Request,
    Result,
    SetData,
    Stat,
    WatchedEvent,
)
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.clocks import ManualClock
from tests.support.zookeeper import a_chroot

PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "bad")
VERSIONS = st.sampled_from([-1, 0, 1])
DATA = st.sampled_from([None, b"", b"x", b"yy"])

Batches = list[tuple[bool, list[Request]]]


def batches(*names: str) -> st.SearchStrategy[Batches]:
    """Requests about these paths, in pipelines of one or the other of two clients."""
    paths = st.sampled_from(names)
    writes = st.one_of(
        st.builds(Create, paths, DATA, st.booleans(), st.booleans()),
        st.builds(SetData, paths, DATA, VERSIONS),
        st.builds(Delete, paths, VERSIONS),
        st.builds(Check, paths, VERSIONS),
    )
    requests = st.one_of(
        writes,
        st.builds(Multi, st.lists(writes, min_size=1, max_size=4).map(tuple)),
        st.builds(Get, paths),
        st.builds(Exists, paths),
        st.builds(Children, paths),
    )
    return st.lists(st.tuples(st.booleans(), st.lists(requests, min_size=1, max_size=5)), min_size=1, max_size=8)


def comparable(outcome: Result | StoreError) -> object:
    """Without zxids, whose order alone is promised, and session ids."""
    if isinstance(outcome, StoreError):
        return type(outcome), outcome.path, outcome.index
    if isinstance(outcome, Stat):
        return outcome.version, outcome.cversion, outcome.czxid == outcome.mzxid, outcome.ephemeral_owner != 0
    if isinstance(outcome, tuple):
        return outcome[0], comparable(outcome[1])
    if isinstance(outcome, list):
        return [comparable(each) if isinstance(each, Stat) else each for each in outcome]
    return outcome


async def history(one: MetadataStore, other: MetadataStore, batches: Batches) -> list[object]:
    """Outcomes of all requests, what the watches of the writer saw, and the tree after one of the two sessions ended."""
    await one.open_session()
    await other.open_session()
    seen: list[object] = []
    events: list[WatchedEvent] = []
    for by_one, batch in batches:
        store = one if by_one else other
        await store.pipeline([Exists("/a", events.append), Children("/a", events.append)])
        seen += [comparable(outcome) for outcome in await store.pipeline(batch)]
    await other.close()
    paths = ["/"]
    for path in paths:
        data, stat = await one.get(path)
        names = await one.children(path)
        seen.append((path, data, comparable(stat), names))
        paths += [f"{path.rstrip('/')}/{name}" for name in names]
    await one.close()
    return seen


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(batches(*PATHS, "/"))
def test_any_history_is_the_same_in_memory_and_in_the_file(batches: Batches) -> None:
    async def play() -> None:
        ensemble = MemoryEnsemble(ManualClock())
        in_memory = await history(ensemble.store(), ensemble.store(), batches)
        with tempfile.TemporaryDirectory() as directory:
            path, clock = str(Path(directory) / "metadata.db"), ManualClock()
            assert await history(EmbeddedStore(path, clock), EmbeddedStore(path, clock), batches) == in_memory

    asyncio.run(play())


@pytest.mark.java
@settings(max_examples=25, deadline=None)
@given(batches(*PATHS))
def test_any_history_is_the_same_in_memory_and_in_zookeeper(batches: Batches) -> None:
    def without_root(seen: list[object]) -> list[object]:
        """A chroot is a node like others, without the beginnings of a real root."""
        return [(each[0], each[3]) if isinstance(each, tuple) and each[0] == "/" else each for each in seen]

    async def play() -> None:
        ensemble = MemoryEnsemble(ManualClock())
        in_memory = await history(ensemble.store(), ensemble.store(), batches)
        settings = ZooKeeperSettings(a_chroot(), session_timeout_ms=6000)
        assert without_root(await history(ZooKeeperStore(settings), ZooKeeperStore(settings), batches)) == without_root(in_memory)

    asyncio.run(play())
