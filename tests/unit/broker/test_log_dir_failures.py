"""A broker reports a failed log directory until the metadata store takes the report, or the broker ends."""

import asyncio

import pytest

from ottla.broker.cluster import log_dir_failures
from ottla.broker.cluster.log_dir_failures import RETRY_SECONDS, LogDirFailures
from ottla.controller.errors import SessionExpired, StoreError, StoreUnavailable
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.znodes.changes import encode_log_dir_event
from ottla.controller.znodes.layout import LOG_DIR_EVENT_NOTIFICATION, LOG_DIR_EVENT_PREFIX
from tests.support.clocks import ManualClock
from tests.support.virtual_time import in_virtual_time


class Refusing(MemoryStore):
    """A store that refuses every new node as long as it has a reason."""

    def __init__(self) -> None:
        super().__init__(MemoryEnsemble(ManualClock()))
        self.reason: StoreError | None = None
        self.refused = 0

    async def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> str:
        if self.reason is not None:
            self.refused += 1
            raise self.reason
        return await super().create(path, data, ephemeral=ephemeral, sequential=sequential)


async def a_store() -> Refusing:
    store = Refusing()
    await store.open_session()
    await store.ensure_path(LOG_DIR_EVENT_NOTIFICATION)
    store.reason = StoreUnavailable("metadata.db", "disk full")
    return store


@in_virtual_time
async def test_a_report_that_is_refused_is_repeated() -> None:
    store = await a_store()
    failures = LogDirFailures(store, 7)
    failures.report()
    await asyncio.sleep(2.5 * RETRY_SECONDS)
    assert store.refused == 3
    store.reason = None
    await asyncio.sleep(2.5 * RETRY_SECONDS)
    assert await store.children(LOG_DIR_EVENT_NOTIFICATION) == ["log_dir_event_0000000000"]
    assert (await store.get(f"{LOG_DIR_EVENT_PREFIX}0000000000"))[0] == encode_log_dir_event(7)
    await failures.close()
    await store.close()


@in_virtual_time
async def test_a_report_ends_with_the_session_or_with_the_broker() -> None:
    store = await a_store()
    failures = LogDirFailures(store, 7)
    failures.report()
    await asyncio.sleep(0.5 * RETRY_SECONDS)
    store.reason = SessionExpired("")
    await asyncio.sleep(2.5 * RETRY_SECONDS)
    assert store.refused == 2
    store.reason = StoreUnavailable("metadata.db", "disk full")
    failures.report()
    await asyncio.sleep(0)
    await failures.close()
    assert store.refused == 3
    await store.close()


def test_a_broker_ends_although_the_metadata_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_failures, "CLOSE_SECONDS", 0.001)

    async def scenario() -> None:
        store = MemoryStore(MemoryEnsemble(ManualClock()))

        async def never(*_: object, **__: object) -> str:
            await asyncio.Event().wait()
            return ""

        monkeypatch.setattr(store, "create", never)
        failures = LogDirFailures(store, 0)
        failures.report()
        async with asyncio.timeout(90):
            await failures.close()

    asyncio.run(scenario())
