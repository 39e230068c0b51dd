"""The caches of remote segments leave the last space of the disk to the logs beside them, and reads go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.remote import remote_storage
from ottla.storage.disk import free_space
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote import index_cache
from ottla.storage.remote.chunk_cache import OFF_MS
from tests.support.followers import until
from tests.support.remote_reading import Reading, quiet, run
from tests.unit.storage.remote.test_chunk_cache import chunk_files
from tests.unit.storage.remote.test_segment_reader import a_local_log, a_remote_log, local_bytes, read_segments

TOTAL = 1_000_000
BLOCK = 4096
FOR_LOGS = TOTAL // free_space.SHARE


class SmallDisk:
    """A file system whose logs have left so many `spare` bytes, of which the caches take some."""

    def __init__(self, caches: Path) -> None:
        self._inner = RealFileSystem()
        self._caches = caches
        self.spare = TOTAL // 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def taken(self) -> int:
        """Bytes that the files of the caches take."""
        return sum(512 * path.stat().st_blocks for path in self._caches.rglob("*") if path.is_file())

    def total_and_free_bytes(self, path: str) -> tuple[int, int]:
        """See FileSystem."""
        return TOTAL, FOR_LOGS + self.spare - self.taken


async def a_reading_on(disk: SmallDisk, tmp_path: Path) -> tuple[Reading, list[Any], bytes]:
    log = a_local_log(tmp_path)
    reading, entries = await a_remote_log(tmp_path, log, filesystem=disk, chunk_bytes=BLOCK)  # type: ignore[arg-type]  # it passes all on
    return reading, entries, local_bytes(log, entries)


def test_a_large_disk_has_no_more_than_some_space_for_logs() -> None:
    class Large:
        def total_and_free_bytes(self, path: str) -> tuple[int, int]:
            return 1 << 44, 1 << 40

    assert free_space.spare_bytes(Large(), "/") == (1 << 40) - free_space.MOST_BYTES  # type: ignore[arg-type]  # it asks for nothing else


@pytest.mark.parametrize("spare", [-1, 0, 8192, 20_000])
def test_the_caches_take_no_space_that_is_for_logs(spare: int, tmp_path: Path) -> None:
    async def story() -> None:
        disk = SmallDisk(tmp_path / "cache")
        reading, entries, expected = await a_reading_on(disk, tmp_path)
        disk.spare = spare
        for _ in range(3):
            assert await read_segments(reading, entries, 700) == expected
            await quiet()
            assert disk.taken <= (spare + 3 * BLOCK if spare > 0 else 0)  # an index takes whole blocks
            reading.now_ms[0] += OFF_MS
        assert (reading.chunks.size > 0) is (spare >= 20_000)
        disk.spare = TOTAL // 2
        for entry in entries:
            reading.reader.forget(entry)
        assert await read_segments(reading, entries, 700) == expected
        assert reading.chunks.size == sum(entry.size for entry in entries)
        await reading.reader.close()

    run(story)


def test_a_full_disk_is_told_once_a_minute_however_many_segments_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> int:
        return sum("indexes stay in memory" in each.message for each in caplog.records)

    async def story() -> None:
        disk = SmallDisk(tmp_path / "cache")
        reading, entries, expected = await a_reading_on(disk, tmp_path)
        disk.spare = -1
        assert len(entries) > 1
        assert await read_segments(reading, entries, 700) == expected
        assert told() == 1
        monkeypatch.setattr(index_cache, "WARNING_SECONDS", 0.0)
        reading.indexes._next_warning = 0.0
        for entry in entries:
            reading.reader.forget(entry)
        assert await read_segments(reading, entries, 700) == expected
        assert told() == 1 + len(entries)
        await reading.reader.close()

    run(story)


def test_the_caches_yield_space_to_logs_that_grow(tmp_path: Path) -> None:
    async def story() -> None:
        disk = SmallDisk(tmp_path / "cache")
        reading, entries, expected = await a_reading_on(disk, tmp_path)
        assert await read_segments(reading, entries, 700) == expected
        await reading.reader.yield_space()
        before, files = disk.taken, len(chunk_files(tmp_path))
        assert before > 20_000

        disk.spare = before - 1
        await reading.reader.yield_space()
        await quiet()
        assert files - 2 <= len(chunk_files(tmp_path)) < files
        disk.spare = 0
        await reading.reader.yield_space()
        await quiet()
        assert not chunk_files(tmp_path)
        assert reading.chunks.size == 0
        await reading.reader.yield_space()
        await quiet()
        assert disk.taken <= 3 * BLOCK  # the indexes of the segment that was read last
        assert await read_segments(reading, entries, 700) == expected
        await reading.reader.close()

    run(story)


def test_a_broker_looks_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_storage, "YIELD_SECONDS", 0.001)

    async def story() -> None:
        disk = SmallDisk(tmp_path / "cache")
        reading, entries, _ = await a_reading_on(disk, tmp_path)
        await read_segments(reading, entries, 700)
        storage = object.__new__(remote_storage.RemoteStorage)
        looking = asyncio.ensure_future(storage._yield_space(reading.reader))
        disk.spare = 0
        async with asyncio.timeout(20):
            await until(lambda: not chunk_files(tmp_path))
        looking.cancel()
        await reading.reader.close()

    run(story)
