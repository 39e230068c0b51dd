"""Several batches that compiled code writes leave the segment and the indexes that Python leaves, or nothing and Python does it."""

import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.compiled import describe
from storage.disk.filesystem import RealFileSystem
from storage.errors import LogDirFailure, StorageError
from storage.log import append as log_append
from storage.log import plain_append
from storage.log.append import Appended
from storage.log.partition_log import PartitionLog
from storage.segment import append as segment_append
from storage.segment.segment import Segment
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


def two_logs(directory: Path, chosen: random.Random, **config: int) -> tuple[PartitionLog, PartitionLog]:
    """Of the same configuration, with indexes that fill soon or never."""
    config["segment_index_bytes"] = chosen.choice([600, 1 << 20])
    return a_real_log(directory / "compiled", **config), a_real_log(directory / "python", **config)


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
    compiled, python = two_logs(tmp_path, chosen, index_interval_bytes=index_interval_bytes, segment_bytes=chosen.choice([50_000, 1 << 30]))
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


def at_offset(offset: int, chosen: random.Random) -> bytearray:
    count = chosen.choice([1, 1, 3])
    times = [FIRST_TIMESTAMP + chosen.choice([-50, 0, chosen.randrange(1000)]) for _ in range(count)]
    return a_batch(count, base_offset=offset, leader_epoch=0, timestamps=times, value_bytes=chosen.choice([1, 50, 400]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("index_interval_bytes", [0, 300, 4096])
def test_followers_append_the_same(tmp_path: Path, seed: int, index_interval_bytes: int) -> None:
    chosen = random.Random(seed)
    segment_bytes, flush_messages = chosen.choice([5_000, 50_000, 1 << 30]), chosen.choice([100, 2**63 - 1])
    compiled, python = two_logs(
        tmp_path, chosen, index_interval_bytes=index_interval_bytes, segment_bytes=segment_bytes, flush_messages=flush_messages
    )
    for _ in range(400):
        sent = bytearray()
        offset = compiled.log_end_offset + chosen.choice([0, 0, 0, 0, 5])
        for _ in range(chosen.choice([1, 1, 2, 5])):
            batch = at_offset(offset, chosen)
            offset += batch[26] + 1
            sent += batch
        sent += batch[: chosen.choice([0, 0, 0, 30, 70])]
        found = outcome(compiled, PartitionLog.append_as_follower, sent)
        assert found == outcome(python, log_append.append_as_follower, sent)
        assert state(compiled) == state(python)
        assert compiled.flush_due_offset == python.flush_due_offset
    assert contents(compiled) == contents(python)


def test_python_has_nothing_of_what_is_ordinary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_real_log(tmp_path)
    log.append_as_follower(memoryview(a_batch(3, leader_epoch=0)), 0)
    monkeypatch.delattr(Segment, "append")
    both = a_batch(2, base_offset=3, leader_epoch=0) + a_batch(1, base_offset=5, leader_epoch=0)
    assert vars_of(log.append_as_follower(memoryview(both), 0)) == [False, 3, 5, -1, 0]


def outcome(
    log: PartitionLog, append: Callable[[PartitionLog, memoryview, int], Appended], sent: bytearray, epoch: int = 0
) -> list[object] | tuple[str, str]:
    """What an append gave, or its error."""
    try:
        return vars_of(append(log, memoryview(sent), epoch))
    except StorageError as error:
        return type(error).__name__, str(error).replace(log.log_dir, "")


def vars_of(appended: Appended) -> list[object]:
    return [getattr(appended, name) for name in Appended.__slots__]


def damaged(batch: bytearray, at: int, changed: int) -> bytearray:
    batch[at] ^= changed
    return batch


PRODUCED = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize(
    ("sent", "epoch"),
    [
        (a_batch(2, base_offset=3, leader_epoch=1), 1),
        (a_batch(2, base_offset=3, leader_epoch=2), 1),
        (a_batch(2, base_offset=3, leader_epoch=0, **PRODUCED), 0),
        (a_batch(2, base_offset=2, leader_epoch=0), 0),
        (a_batch(2, base_offset=3, leader_epoch=0) + a_batch(2, base_offset=4, leader_epoch=0), 0),
        (a_batch(2, base_offset=3, leader_epoch=0) + a_batch(2, base_offset=5, leader_epoch=1), 0),
        (a_batch(2, base_offset=2**31 + 3, leader_epoch=0), 0),
        (a_batch(2, base_offset=2**63 - 2, leader_epoch=0), 0),
        *((damaged(a_batch(2, base_offset=3, leader_epoch=0), at, 0x81), 0) for at in (0, 7, 8, 11, 16, 17, 23, 26, 60)),
        (bytearray(), 0),
        (bytearray(40), 0),
    ],
)
def test_what_a_follower_is_sent_ends_the_same(tmp_path: Path, sent: bytearray, epoch: int) -> None:
    logs = []
    outcomes = []
    for name, append in (("compiled", PartitionLog.append_as_follower), ("python", log_append.append_as_follower)):
        log = a_real_log(tmp_path / name)
        log_append.append_as_follower(log, memoryview(a_batch(3, leader_epoch=0)), 0)
        outcomes.append(outcome(log, append, sent, epoch))
        logs.append(log)
    assert outcomes[0] == outcomes[1]
    assert state(logs[0]) == state(logs[1])
    assert contents(logs[0]) == contents(logs[1])


def test_a_follower_whose_disk_is_full_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = a_real_log(tmp_path, index_interval_bytes=0)
    log.append_as_follower(memoryview(a_batch(3, leader_epoch=0)), 0)
    before = state(log)
    batch = memoryview(a_batch(3, base_offset=3, leader_epoch=0))
    with files_of_at_most(log.active_segment.size + 100), pytest.raises(LogDirFailure, match="File too large"):
        log.append_as_follower(batch, 0)
    assert state(log) == before
    assert log.append_as_follower(batch, 0).last_offset == 5


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
