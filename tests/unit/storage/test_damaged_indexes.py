"""Indexes that do not belong to their segment are rebuilt: a thread reads the batch headers, while the event loop serves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.errors import CorruptRecord
from ottla.storage.log.lookups import begins_up_to
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.cold_lookups import ColdRead
from ottla.storage.segment.index_builder import DamagedIndexes, IndexBuilder
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import a_context, a_log, append

BATCHES = 40
"""Batches of one record each in the first segment of three."""
SIZE = len(a_batch(timestamps=[1000]))


def _reopened(damage: Callable[[MemoryFileSystem, str], None]) -> PartitionLog:
    """A log after a restart. Before, the files of its first segment were changed."""
    filesystem = MemoryFileSystem()
    context = a_context(filesystem)
    log = a_log(context, segment_bytes=BATCHES * SIZE, index_interval_bytes=SIZE)
    for at in range(2 * BATCHES + 1):
        append(log, a_batch(timestamps=[1000 + at]))
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == 3
    log.flush()
    log.close()
    damage(filesystem, log.segments.first.path.removesuffix("log"))
    return a_log(context, segment_bytes=BATCHES * SIZE, index_interval_bytes=SIZE)


def _point_into_batches(filesystem: MemoryFileSystem, name: str) -> None:
    entries = [(at, at * SIZE + 7) for at in range(1, BATCHES)]
    filesystem.open(name + "index").pwrite(b"".join(struct.pack(">ii", *entry) for entry in entries), 0)


def _shorten_the_time_index(filesystem: MemoryFileSystem, name: str) -> None:
    filesystem.open(name + "timeindex").truncate(7)


def _read(log: PartitionLog) -> object:
    """The batch at an offset, and the end of some more."""
    found = log.read(BATCHES // 2, 5 * SIZE, log.log_end_offset, True, False)
    assert found.region is not None
    return found.next_offset, found.region.read()


def _find_by_time(log: PartitionLog) -> object:
    return begins_up_to(log, 1000 + BATCHES, False)


@pytest.mark.parametrize(
    ("damage", "ask"), [(_point_into_batches, _read), (_shorten_the_time_index, _find_by_time)], ids=["offset index", "time index"]
)
def test_a_lookup_on_the_event_loop_leaves_the_batch_headers_to_a_thread(
    damage: Callable[[MemoryFileSystem, str], None],
    ask: Callable[[PartitionLog], object],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read: list[int] = []
    add = IndexBuilder.add

    def counted(builder: IndexBuilder, position: int, header: BatchHeader) -> None:
        read.append(position)
        add(builder, position, header)

    whole = _reopened(lambda *_: None)
    expected = ask(whole)
    log = _reopened(damage)
    monkeypatch.setattr(IndexBuilder, "add", counted)
    with pytest.raises(ColdRead) as raised:
        ask(log)
    with pytest.raises(ColdRead) as again:
        ask(log)
    assert isinstance(raised.value.what, DamagedIndexes)
    assert not read
    raised.value.warm()
    again.value.warm()
    assert len(read) == BATCHES
    assert ask(log) == expected
    assert len(read) == BATCHES
    rebuilt, original = log.segments.first, whole.segments.first
    assert not rebuilt.is_rebuilding
    assert rebuilt.offset_index.all_entries() == original.offset_index.all_entries()
    assert rebuilt.time_index.all_entries() == original.time_index.all_entries()
    assert rebuilt.max_timestamp == original.max_timestamp
    assert caplog.text.count("from the log file") == 1


def test_a_damage_of_the_batches_too_is_an_error_and_those_before_it_are_found() -> None:
    def damage(filesystem: MemoryFileSystem, name: str) -> None:
        _point_into_batches(filesystem, name)
        filesystem.open(name + "log").pwrite(b"\xff" * 30, (BATCHES - 2) * SIZE)

    log = _reopened(damage)
    with pytest.raises(ColdRead) as raised:
        _read(log)
    raised.value.warm()
    with pytest.raises(CorruptRecord):
        _read(log)
    assert _read(log) == _read(_reopened(lambda *_: None))


def test_a_rebuild_of_fewer_batches_than_the_segment_has_is_not_used() -> None:
    log = _reopened(_point_into_batches)
    with pytest.raises(ColdRead) as raised:
        _read(log)
    raised.value.warm()
    segment: Any = log.segments.first
    segment.size -= SIZE
    with pytest.raises(ColdRead) as raised:
        _read(log)
    raised.value.warm()
    assert _read(log) == _read(_reopened(lambda *_: None))
