"""Several batches that compiled code writes leave the segment and the indexes that Python leaves, or nothing and Python does it."""

import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.compiled import describe
from storage import plain_append, segment_append
from storage.errors import LogDirFailure
from storage.filesystem import RealFileSystem
from storage.partition_log import PartitionLog
from storage.segment import Segment
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.logs import a_context, a_log
from tests.unit.storage.test_plain_append import NOW_MS, VERSION, contents, short_way
from tests.unit.storage.test_plain_append_of_several import one_by_one

pytestmark = pytest.mark.skipif(describe() != "compiled", reason=f"the hot path is {describe()} here")


def a_real_log(directory: Path, **config: str | int) -> PartitionLog:
    (directory / "topic-0").mkdir(parents=True)
    log = a_log(a_context(RealFileSystem()), log_dir=str(directory), **config)
    log.on_new_leader_epoch(0)
    return log


def at_once(log: PartitionLog, sent: list[bytearray]) -> tuple[list[int], int]:
    return log.append_several_plain([memoryview(bytearray(batch)) for batch in sent], 0, NOW_MS, VERSION)


def in_python(log: PartitionLog, sent: list[bytearray]) -> tuple[list[int], int]:
    return plain_append.append_several_plain(log, [memoryview(bytearray(batch)) for batch in sent], 0, NOW_MS, VERSION)


def state(log: PartitionLog) -> tuple[object, ...]:
    segment = log.active_segment
    offsets, times = segment.offset_index, segment.time_index
    return (
        log.log_end_offset,
        segment.base_offset,
        segment.size,
        segment.bytes_since_last_index_entry,
        segment.max_timestamp,
        (offsets.entries, offsets.last_offset, bytes(offsets._tail)),
        (times.entries, times.last_entry, bytes(times._tail)),
        os.path.getsize(segment.path),
    )


@pytest.fixture
def left_to_python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were, of every call."""
    found: list[int] = []

    def append_several(self: Segment, batches: list[memoryview], placed: Any) -> None:
        found.append(len(batches))
        segment_append.append_several(self, batches, placed)

    monkeypatch.setattr(Segment, "append_several", append_several)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("index_interval_bytes", [0, 300, 4096])
def test_both_leave_the_same_files(tmp_path: Path, seed: int, index_interval_bytes: int) -> None:
    chosen = random.Random(seed)
    config = {
        "index_interval_bytes": index_interval_bytes,
        "segment_index_bytes": chosen.choice([600, 1 << 20]),
        "segment_bytes": chosen.choice([50_000, 1 << 30]),
    }
    compiled, python = a_real_log(tmp_path / "compiled", **config), a_real_log(tmp_path / "python", **config)
    for log in (compiled, python):
        assert short_way(log, a_batch()) == 0
    taken = 0
    for _ in range(150):
        sent = []
        for _ in range(chosen.choice([2, 2, 2, 3, 5, 16, 17, 20])):
            count = chosen.choice([1, 1, 3])
            first = FIRST_TIMESTAMP + chosen.choice([-50, 0, chosen.randrange(1000)])
            sent.append(a_batch(count, timestamps=[first] * count, value_bytes=chosen.choice([1, 50, 400])))
        found = at_once(compiled, sent)
        assert found == in_python(python, sent)
        assert state(compiled) == state(python)
        taken += bool(found[0])
        if not found[0]:  # the segment is full
            assert one_by_one(compiled, *sent) == one_by_one(python, *sent)
    assert taken > 50
    assert contents(compiled) == contents(python)


def test_python_has_what_is_out_of_the_ordinary(tmp_path: Path, left_to_python: list[int]) -> None:
    log = a_real_log(tmp_path, index_interval_bytes=0, segment_index_bytes=1 << 20)
    assert short_way(log, a_batch()) == 0
    assert at_once(log, [a_batch()] * 16)[0] == list(range(1, 17))
    assert left_to_python == []
    assert at_once(log, [a_batch()] * 17)[0] == list(range(17, 34))
    assert left_to_python == [17]
    offsets = log.active_segment.offset_index
    while len(offsets._tail) + 16 < 4096:
        assert at_once(log, [a_batch()] * 2)[0]
    assert left_to_python == [17]
    assert at_once(log, [a_batch()] * 2)[0]
    assert left_to_python == [17, 2]
    assert not offsets._tail
    assert at_once(log, [a_batch()] * 2)[0]
    assert left_to_python == [17, 2]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 10, 100, 200])
def test_a_disk_that_takes_a_part_leaves_the_log_as_it_was(tmp_path: Path, left_to_python: list[int], room: int) -> None:
    log = a_real_log(tmp_path, index_interval_bytes=0)
    sent = [a_batch(), a_batch(3), a_batch()]
    assert short_way(log, sent[0]) == 0
    assert sum(map(len, sent)) > 200
    before = state(log)
    with files_of_at_most(log.active_segment.size + room), pytest.raises(LogDirFailure, match="File too large"):
        at_once(log, sent)
    assert left_to_python == [3]
    assert state(log) == before
    assert at_once(log, sent)[0] == [1, 2, 5]
    assert left_to_python == [3]


def test_a_file_that_cannot_be_written_leaves_the_log_as_it_was(tmp_path: Path, left_to_python: list[int]) -> None:
    log = a_real_log(tmp_path, index_interval_bytes=0)
    assert short_way(log, a_batch()) == 0
    before = state(log)
    segment = log.active_segment
    segment._file, file = RealFileSystem().open(segment.path, read_only=True), segment._file
    with pytest.raises(LogDirFailure, match="Bad file descriptor"):
        at_once(log, [a_batch()] * 2)
    assert left_to_python == [2]
    segment._file = file
    assert state(log) == before
