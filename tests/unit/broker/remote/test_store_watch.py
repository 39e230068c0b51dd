"""The broker knows whether its remote store answers, also while nothing is copied or read."""

import asyncio

import pytest

from ottla.broker.remote import store_watch
from ottla.broker.remote.store_watch import ASK_SECONDS, RETRY_SECONDS, StoreWatch
from ottla.storage.remote.ports import RemoteStoreDenied, RemoteStoreError
from tests.support.filesystems import MemoryFileSystem
from tests.support.remote_fakes import MemoryStore
from tests.support.virtual_time import in_virtual_time


class Store(MemoryStore):
    """Answers questions with these errors, one after the other, and then without."""

    def __init__(self, *errors: Exception | None) -> None:
        super().__init__(MemoryFileSystem())
        self.errors = list(errors)
        self.asked = 0

    async def probe(self) -> None:
        self.asked += 1
        error = self.errors.pop(0) if self.errors else None
        if isinstance(error, TimeoutError):
            await asyncio.Event().wait()
        if error is not None:
            raise error


async def troubles(store: Store, *waits: float) -> list[str]:
    """The state of the store after each of these times."""
    watch = StoreWatch(store)
    watch.start()
    found = []
    for seconds in waits:
        await asyncio.sleep(seconds)
        found.append(watch.trouble)
    await watch.close()
    return found


def test_a_store_that_fails_twice_in_a_row_is_degraded_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    @in_virtual_time
    async def scenario() -> None:
        store = Store(RemoteStoreError("503"), RemoteStoreError("504"))
        assert await troubles(store, ASK_SECONDS + 1, RETRY_SECONDS, RETRY_SECONDS) == ["", "504", ""]

    scenario()
    assert [record.levelname for record in caplog.records if "remote store" in record.message] == ["ERROR", "INFO"]


@in_virtual_time
async def test_an_error_that_no_one_expects_is_a_failure_and_does_not_end_the_questions() -> None:
    store = Store(RuntimeError("panic"), RuntimeError("panic"))
    assert await troubles(store, ASK_SECONDS + 1, RETRY_SECONDS, RETRY_SECONDS) == ["", "RuntimeError: panic", ""]


@in_virtual_time
async def test_one_failure_is_no_trouble() -> None:
    assert await troubles(Store(RemoteStoreError("503")), ASK_SECONDS + 1, RETRY_SECONDS) == ["", ""]


@in_virtual_time
async def test_refused_credentials_are_told_at_once() -> None:
    assert await troubles(Store(RemoteStoreDenied("403")), ASK_SECONDS + 1, RETRY_SECONDS) == ["403", ""]


def test_a_store_that_never_answers_is_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "ANSWER_SECONDS", 5.0)

    @in_virtual_time
    async def scenario() -> None:
        store = Store(TimeoutError(), TimeoutError())
        assert await troubles(store, ASK_SECONDS + 6, RETRY_SECONDS + 5) == ["", "no answer within 5 s"]

    scenario()
