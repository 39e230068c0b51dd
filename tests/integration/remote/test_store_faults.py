"""A store that fails, is slow or changes bytes: calls end in time with the right error, and repeated ones find no harm."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ottla.broker.remote import objects
from ottla.storage.remote.ports import RemoteObjectMissing, RemoteStoreDenied, RemoteStoreError
from tests.support.fault_proxy import Fault, FaultProxy, a_fault_proxy, always, at_request, once
from tests.support.remote_reading import a_reading, copy_closed_segments, run, when_here
from tests.support.remote_stores import an_entry, an_s3_store, segment_files
from tests.support.s3_servers import KINDS, S3Server, an_s3_server
from tests.unit.storage.remote.test_segment_reader import a_local_log, local_bytes, read_segments

RECORDS = bytes(range(256)) * 400


@pytest.fixture(scope="module", params=KINDS)
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with an_s3_server(request.param, tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr(objects, "CALL_SECONDS", 1.0)
    monkeypatch.setitem(objects._RETRY, "max_retries", 0)
    monkeypatch.setitem(objects._CLIENT, "timeout", timedelta(seconds=5))
    s3.make_bucket("bucket")
    with a_fault_proxy(s3.url) as proxy:
        yield proxy
    s3.forget_buckets()


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BLACK_HOLE, Fault.UNAVAILABLE, Fault.CUT, Fault.TRICKLE])
def test_a_read_that_fails_is_an_error_in_time_and_can_be_repeated(proxy: FaultProxy, tmp_path: Path, fault: Fault) -> None:
    async def story() -> None:
        store = an_s3_store(proxy.url)
        entry = an_entry(0, 99, len(RECORDS))
        await store.copy(entry, segment_files(tmp_path, RECORDS))
        await store.fetch(entry, 0, 1)  # the manifest is known
        proxy.choose = once(fault)
        with pytest.raises(RemoteStoreError):
            await asyncio.wait_for(store.fetch(entry, 0, len(RECORDS)), 10)
        assert await store.fetch(entry, 0, len(RECORDS)) == RECORDS
        await store.close()

    run(story)


def test_refused_credentials_are_no_missing_object(proxy: FaultProxy, tmp_path: Path) -> None:
    async def story() -> None:
        store = an_s3_store(proxy.url)
        proxy.choose = always(Fault.FORBIDDEN)
        for call in (store.probe(), store.fetch(an_entry(0, 9, 100), 0, 1), store.delete(an_entry(0, 9, 100))):
            with pytest.raises(RemoteStoreDenied):
                await call
        assert len(proxy.requests) <= 4  # no storm
        await store.close()

    run(story)


def test_a_bucket_that_is_gone_is_no_missing_object(proxy: FaultProxy, s3: S3Server) -> None:
    async def story() -> None:
        store = an_s3_store(proxy.url)
        with pytest.raises(RemoteObjectMissing):
            await store.fetch(an_entry(0, 9, 100), 0, 1)
        s3.forget_buckets()
        with pytest.raises(RemoteStoreError) as error:
            await store.fetch(an_entry(0, 9, 100), 0, 1)
        assert not isinstance(error.value, RemoteObjectMissing)
        await store.close()

    run(story)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED, Fault.UNAVAILABLE])
def test_a_copy_that_fails_at_any_request_is_completed_by_the_next(proxy: FaultProxy, tmp_path: Path, fault: Fault) -> None:
    files = segment_files(tmp_path, RECORDS)

    async def story() -> None:
        store = an_s3_store(proxy.url)
        await store.copy(an_entry(0, 99, len(RECORDS), uuid=200), files)
        count = len(proxy.requests)
        assert count >= 3
        for number in range(1, count + 1):
            entry = an_entry(0, 99, len(RECORDS), uuid=number)
            proxy.choose = at_request(len(proxy.requests) + number, fault)
            try:
                await store.copy(entry, files)
            except RemoteStoreError:
                await store.copy(entry, files)
            proxy.choose = lambda number, method, path: None
            assert await store.fetch(entry, 0, len(RECORDS)) == RECORDS
        await store.close()

    run(story)


def test_a_store_that_never_answers_is_left_within_seconds(proxy: FaultProxy) -> None:
    async def story() -> None:
        store = an_s3_store(proxy.url)
        proxy.choose = always(Fault.BLACK_HOLE)
        probe = asyncio.ensure_future(store.probe())
        await asyncio.sleep(0)
        await asyncio.wait_for(store.close(), 5)
        with pytest.raises((asyncio.CancelledError, RemoteStoreError)):
            await probe

    run(story)


def test_no_flipped_byte_reaches_a_reader(proxy: FaultProxy, tmp_path: Path) -> None:
    log = a_local_log(tmp_path)
    (tmp_path / "cache").mkdir()

    async def story() -> None:
        store = an_s3_store(proxy.url, **{"chunk.size": "2000"})
        entries = await copy_closed_segments(log, store)
        reading = a_reading(store, tmp_path / "cache", chunk_bytes=2000)
        expected = local_bytes(log, entries)
        proxy.choose = always(Fault.FLIPPED, lambda method, path: path.endswith(".log"))
        with pytest.raises(RemoteStoreError):
            await when_here(reading.reader.read, entries[0], 0, 1 << 20, True, True)
        proxy.choose = always(Fault.SLOW)
        assert await read_segments(reading, entries, 1500) == expected
        await reading.reader.close()
        await store.close()

    run(story)
