"""Reports of failed log directories to the controller, and the end of a broker that makes one."""

import asyncio

import pytest

from ottla.broker.cluster import log_dir_failures
from ottla.broker.cluster.log_dir_failures import LogDirFailures
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from tests.support.clocks import ManualClock


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
