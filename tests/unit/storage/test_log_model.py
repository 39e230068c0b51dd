"""A log against the simplest thing that behaves like one, a list of batches, through any order of events."""

import errno
import logging

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.protocol.records.batch import iter_batches
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.context import LogContext
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_log, append, follow, read_all

CONFIG = {"segment_bytes": 600, "index_interval_bytes": 100, "segment_index_bytes": 120, "segment_ms": 10_000}


class LogMachine(RuleBasedStateMachine):
    """Batches as (base offset, last offset, bytes); `flushed` is the offset below which a power cut must keep everything."""

    def __init__(self) -> None:
        super().__init__()
        self.storage_log = logging.getLogger("ottla.storage")
        self.storage_log.setLevel(logging.CRITICAL)  # thousands of expected warnings

    def teardown(self) -> None:
        self.storage_log.setLevel(logging.NOTSET)

    @initialize()
    def begin(self) -> None:
        self.memory = MemoryFileSystem()
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = self.end = self.flushed = 0
        self.timestamp = FIRST_TIMESTAMP
        self.checkpoint = 0
        self.refused: tuple[int, int, bytes] | None = None
        self._open(clean=True)

    def _open(self, *, clean: bool) -> None:
        self.disk = FaultyFileSystem(self.memory)
        self.scheduler = ManualScheduler()
        context = LogContext(self.disk, ManualClock(), self.scheduler)
        self.log = a_log(context, clean=clean, log_start_offset=self.start, recovery_point=self.checkpoint, **CONFIG)
        # A batch whose write succeeded, but was refused for what failed behind it, may be there after a crash.
        if self.refused is not None and self.refused[0] == self.end and not clean and self.refused[2] in read_all(self.log):
            self.batches.append(self.refused)
            self.end += 2
        self.refused = None

    def _forget_from(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] < offset]

    @rule(records=st.integers(1, 4), size=st.integers(0, 120), later_ms=st.integers(-3000, 6000))
    def append(self, records: int, size: int, later_ms: int) -> None:
        self.timestamp += later_ms
        batch = a_batch(records, value_bytes=size, timestamps=[self.timestamp] * records)
        appended = append(self.log, batch, epoch=0)
        assert appended.first_offset == self.end
        self.end += records
        self.batches.append((appended.first_offset, appended.last_offset, bytes(batch)))

    @rule(records=st.integers(1, 3), gap=st.integers(0, 5))
    def append_as_follower(self, records: int, gap: int) -> None:
        batch = a_batch(records, base_offset=self.end + gap, leader_epoch=0)
        follow(self.log, batch, 0)
        self.batches.append((self.end + gap, self.end + gap + records - 1, bytes(batch)))
        self.end += gap + records

    @rule(nth=st.integers(1, 6), number=st.sampled_from([errno.EIO, errno.ENOSPC]), for_ever=st.booleans())
    def append_on_a_failing_disk(self, nth: int, number: int, for_ever: bool) -> None:
        self.disk.error_number, self.disk.fails_for_ever = number, for_ever
        self.disk.fail_at = self.disk.calls + nth
        batch = a_batch(2, value_bytes=90, timestamps=[self.timestamp] * 2)
        try:
            appended = append(self.log, batch, epoch=0)
        except LogDirFailure:
            assert self.log.log_end_offset == self.end
            self.refused = (self.end, self.end + 1, bytes(batch))
        else:
            self.batches.append((appended.first_offset, appended.last_offset, bytes(batch)))
            self.end += 2
        self.disk.fail_at = None

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end
        assert self.log.recovery_point == self.end

    @rule()
    def move_the_high_watermark(self) -> None:
        self.log.update_high_watermark(self.end)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Leaders and followers agree on where epochs begin, which is where a batch begins.
        offset = data.draw(st.sampled_from([max(0, self.start - 3), self.end, self.end + 2, *(batch[0] for batch in self.batches)]))
        self.log.truncations.truncate_to(offset)
        if offset < self.end:
            self._forget_from(offset)
            if offset < self.log.segments.first.base_offset:
                assert not self.batches
            self.end = offset
            self.start = self.log.log_start_offset
            assert self.start <= offset
            self.flushed = min(self.flushed, offset)

    @rule(gap=st.integers(0, 20))
    def start_again(self, gap: int) -> None:
        self.log.truncations.truncate_fully_and_start_at(self.end + gap)
        self.batches = []
        self.start = self.end = self.flushed = self.end + gap

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.high_watermark))
        self.log.increment_log_start_offset(offset, "test")
        self.start = offset

    @rule(count=st.integers(0, 3))
    def delete_segments(self, count: int) -> None:
        doomed = self.log.segments.bases[:count]
        self.log.delete_old_segments(lambda segment, _: segment.base_offset in doomed, "test")
        self.start = self.log.log_start_offset
        first = self.log.segments.first.base_offset
        self.batches = [batch for batch in self.batches if batch[0] >= first]

    @rule()
    def let_time_pass(self) -> None:
        self.scheduler.run_all()

    @rule()
    def checkpoint_and_stop_cleanly(self) -> None:
        self.log.flush()
        self.log.close()
        self.checkpoint = self.flushed = self.end
        self._restart(clean=True)

    @rule()
    def kill_the_process(self) -> None:
        self.checkpoint = self.log.recovery_point
        self._restart(clean=False)

    def _restart(self, *, clean: bool) -> None:
        # A log that was cut behind a gap in its offsets ends where its last batch or its last segment says.
        active = self.log.segments.bases[-1]
        self._open(clean=clean)
        self.end = max([active, self.start, *(batch[1] + 1 for batch in self.batches)])
        self.flushed = min(self.flushed, self.end)

    @rule(seed=st.integers(0, 1000))
    def cut_the_power(self, seed: int) -> None:
        """Any of what was not flushed may be lost; of what was, nothing."""
        self.checkpoint = self.log.recovery_point
        self.memory = self.memory.after_power_cut(seed)
        self._open(clean=False)
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset
        found = read_all(self.log)
        there = [found[at : at + header.size] for at, header in iter_batches(found)]
        assert [batch[2] for batch in self.batches if self.start <= batch[1] < self.flushed] == there[
            : len([batch for batch in self.batches if self.start <= batch[1] < self.flushed])
        ]
        self.batches = [batch for batch in self.batches if batch[2] in there]
        assert [batch[2] for batch in self.batches] == there
        self.flushed = min(self.flushed, self.end)

    @invariant()
    def it_has_the_batches_of_the_list(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        expected = [batch for batch in self.batches if batch[1] >= self.start]
        found = read_all(log, max_bytes=250)
        assert found == b"".join(batch[2] for batch in expected)
        assert [(header.base_offset, header.last_offset) for _, header in iter_batches(found)] == [batch[:2] for batch in expected]
        assert log.size_bytes >= len(found)

    @invariant()
    def any_offset_is_found_below_any_end(self) -> None:
        for base, last, data in self.batches[-3:]:
            if last < self.start:
                continue
            offset = max(base, self.start)
            assert self.log.read(offset, 1, self.end, True).region.read() == data
            assert self.log.read(offset, 1 << 20, base, True).region is None
            bounded = self.log.read(offset, 1 << 20, last + 1, True).region
            assert bounded is not None
            assert bounded.read() == data


LogMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLog = pytest.mark.slow(LogMachine.TestCase)
