"""A store that did not answer at the start is written only once it has named its owner."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.replication.remote.claimed_store import ClaimedStore, OtherOwner
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStoreError, SegmentFiles
from tests.support.filesystems import MemoryFileSystem
from tests.support.remote_fakes import MemoryStore
from tests.support.remote_segments import an_entry
from tests.support.virtual_time import in_virtual_time

FILES = SegmentFiles("log", "index", "time index", None, b"", b"")


class Store(MemoryStore):
    """Notes its calls. It answers none while `is_away`, and waits before it names its owner until `may_answer`."""

    def __init__(self, owner: str | None) -> None:
        super().__init__(MemoryFileSystem())
        self.owner_id = owner
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.said: list[str] = []

    async def owner(self, claim: str | None = None) -> str | None:
        self.said.append("owner")
        await self.may_answer.wait()
        if self.is_away:
            raise RemoteStoreError("503")
        return await super().owner(claim)

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        self.said.append("copy")
        return None

    async def now_ms(self) -> int | None:
        self.said.append("now_ms")
        return await super().now_ms()

    async def delete(self, entry: SegmentEntry) -> None:
        self.said.append("delete")

    async def probe(self) -> None:
        self.said.append("probe")


WRITES: dict[str, Callable[[ClaimedStore], Awaitable[object]]] = {
    "copy": lambda store: store.copy(an_entry(0, 9), FILES),
    "delete": lambda store: store.delete(an_entry(0, 9)),
    "now_ms": lambda store: store.now_ms(),
}


def written(store: Store) -> list[str]:
    return [name for name in store.said if name in WRITES]


@pytest.mark.parametrize("call", WRITES)
def test_a_write_waits_for_the_owner_which_is_asked_until_it_is_known(call: str) -> None:
    @in_virtual_time
    async def story() -> None:
        store = Store("one")
        store.is_away = True
        claimed = ClaimedStore(store, "one")
        for _ in range(2):
            with pytest.raises(RemoteStoreError, match="503"):
                await WRITES[call](claimed)
        assert written(store) == []
        store.is_away = False
        for _ in range(2):
            await WRITES[call](claimed)
        assert written(store) == [call, call]
        assert store.said.count("owner") == 3

    story()


@in_virtual_time
async def test_a_store_without_an_owner_is_claimed_by_the_first_write() -> None:
    store = Store(None)
    await ClaimedStore(store, "one").delete(an_entry(0, 9))
    assert store.owner_id == "one"


@pytest.mark.parametrize("call", WRITES)
def test_the_store_of_another_cluster_is_never_written_and_one_line_says_so(call: str, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def story() -> None:
        store = Store("another")
        claimed = ClaimedStore(store, "one")
        for owner in ("another", None, "one"):
            with pytest.raises(OtherOwner, match=r"belongs to the cluster another,.* this is the cluster one"):
                await WRITES[call](claimed)
            store.owner_id = owner
        with pytest.raises(OtherOwner):
            await claimed.probe()
        assert written(store) == []

    story()
    (line,) = caplog.records
    assert (line.levelname, "belongs to the cluster another" in line.message) == ("ERROR", True)


@in_virtual_time
async def test_writes_at_the_same_time_ask_once_and_one_that_gives_up_harms_no_other() -> None:
    store = Store("one")
    store.may_answer.clear()
    claimed = ClaimedStore(store, "one")
    first, second, third = (asyncio.ensure_future(claimed.delete(an_entry(0, 9))) for _ in range(3))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    store.may_answer.set()
    await asyncio.gather(second, third)
    assert first.cancelled()
    assert store.said == ["owner", "delete", "delete"]


@in_virtual_time
async def test_a_closed_store_ends_the_writes_that_wait_for_its_owner() -> None:
    store = Store("one")
    store.may_answer.clear()
    claimed = ClaimedStore(store, "one")
    write = asyncio.ensure_future(claimed.delete(an_entry(0, 9)))
    await asyncio.sleep(1)
    await claimed.close()
    with pytest.raises(RemoteStoreError, match="closed"):
        await write
    assert written(store) == []


@in_virtual_time
async def test_reads_go_on_without_the_owner() -> None:
    store = Store("another")
    claimed = ClaimedStore(store, "one")
    with pytest.raises(RemoteStoreError):
        await claimed.fetch(an_entry(0, 9), 0, 1)
    assert [each async for each in claimed.list("")] == []
    assert await claimed.owner() == "another"
    assert store.said == ["owner"]


@in_virtual_time
async def test_a_store_whose_owner_was_checked_is_not_asked_again() -> None:
    store = Store("one")
    await ClaimedStore(store, "one", is_ours=True).delete(an_entry(0, 9))
    assert store.said == ["delete"]
