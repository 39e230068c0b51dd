"""Any log, cleaned any number of times, held against what a cleaner must and must not do."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.reader import Record
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.cleaners import LIMITS, clean_log
from tests.support.clocks import ManualClock
from tests.support.compacted_logs import Writer, a_writer, batches_of, committed_of, latest_of, records_of
from tests.support.logs import LOG_DIR, T0, a_context, read_all

RETENTION_MS = 1000
CODECS = ("none", "gzip", "lz4")


class Write(NamedTuple):
    """A batch of (key, value); producer -1 is none, 0 to 1 idempotent ones, 2 to 4 transactional ones."""

    producer: int
    records: Sequence[tuple[int | None, bool]]
    codec: str


class End(NamedTuple):
    producer: int
    commit: bool


class Clean(NamedTuple):
    after_ms: int
    map_entries: int


_keys = st.one_of(st.none(), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))
_writes = st.builds(
    Write,
    st.integers(-1, 4),
    st.lists(st.tuples(_keys, st.booleans()), min_size=1, max_size=6),
    st.sampled_from(CODECS),
)
_steps = st.lists(
    st.one_of(
        _writes,
        _writes,
        _writes,
        st.builds(End, st.integers(2, 4), st.booleans()),
        st.just("roll"),
        st.builds(Clean, st.sampled_from([0, RETENTION_MS // 2, 2 * RETENTION_MS]), st.sampled_from([3, 6, 1000])),
    ),
    min_size=3,
    max_size=40,
)


class Model:
    """The log under test, and all that was ever written to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.writer = a_writer(a_context(clock=self.clock), segment_bytes=600, delete_retention_ms=RETENTION_MS)
        self.first_dirty: int | None = None
        self.open_transactions: set[int] = set()
        self.written: dict[int, Record] = {}
        self.aborted: set[int] = set()
        self._of_transaction: dict[int, list[int]] = {}

    @property
    def log(self) -> PartitionLog:
        return self.writer.log

    def write(self, step: Write) -> None:
        records = [
            (None if key is None else b"key-%d" % key, b"value-%d-%d" % (self.log.log_end_offset, at) if has_value else None)
            for at, (key, has_value) in enumerate(step.records)
        ]
        offsets = self.writer.write(records, producer_id=step.producer, transactional=step.producer >= 2, codec=step.codec)
        if step.producer >= 2:
            self.open_transactions.add(step.producer)
            self._of_transaction.setdefault(step.producer, []).extend(offsets)
        self.written |= {record.offset: record for record in records_of(self.log) if record.offset in offsets}

    def end(self, step: End) -> None:
        if step.producer in self.open_transactions:
            self.writer.end(step.producer, commit=step.commit)
            self.open_transactions.discard(step.producer)
            offsets = self._of_transaction.pop(step.producer)
            if not step.commit:
                self.aborted.update(offsets)

    def clean(self, step: Clean) -> None:
        self.clock.move(step.after_ms)
        log = self.log
        before = records_of(log)
        seen_before = committed_of(log)
        last_batches = _last_batches(log)
        uncleanable = min(log.last_stable_offset, log.segments.active.base_offset)
        first_uncleanable_base = log.segments.floor(uncleanable)
        assert first_uncleanable_base is not None
        untouched = _bytes_from(log, first_uncleanable_base.base_offset)
        stats = clean_log(log, self.first_dirty, limits=LIMITS._replace(map_bytes=step.map_entries * 24, load_factor=1.0))
        end_offset = max(stats.end_offset, self.first_dirty or 0)
        self._check(before, seen_before, end_offset)
        assert stats.end_offset <= first_uncleanable_base.base_offset
        assert _bytes_from(log, first_uncleanable_base.base_offset) == untouched
        assert last_batches.items() <= _last_batches(log).items()
        self.first_dirty = end_offset

    def _check(self, before: list[Record], seen_before: list[Record], end_offset: int) -> None:
        log = self.log
        after = records_of(log)
        assert all(record == self.written[record.offset] for record in after)
        # Beyond that only aborted records may have gone: those of a segment that was cleaned in part.
        rest = [
            [record for record in some if record.offset >= end_offset and record.offset not in self.aborted] for some in (before, after)
        ]
        assert rest[0] == rest[1]
        clean = [record for record in after if record.offset < end_offset]
        assert not [record for record in clean if record.key is None]
        assert not [record for record in clean if record.offset in self.aborted]
        # One record for each key, the latest one; only a tombstone may be missing.
        latest = latest_of(record for record in self.written.values() if record.offset < end_offset and record.offset not in self.aborted)
        offsets = {record.offset for record in clean}
        assert len(offsets) == len(clean) == len({record.key for record in clean})
        assert offsets <= {record.offset for record in latest.values()}
        missing = {record.offset for record in latest.values()} - offsets
        assert all(self.written[offset].value is None for offset in missing)
        # Whoever reads from the beginning ends up with the same values.
        assert _values(committed_of(log)) == _values(seen_before)

    def check_restart(self) -> None:
        log = self.log
        everything, end = read_all(log), log.log_end_offset
        producers = {entry.producer_id: (entry.producer_epoch, entry.last_sequence) for entry in log.active_producers()}
        log.flush()
        for clean in (False, True):
            if clean:
                log.close()
            opened = open_log(a_context(log.context.filesystem, self.clock), T0, LOG_DIR, log.config, clean_shutdown=clean)
            assert read_all(opened) == everything
            assert opened.log_end_offset == end
            assert {entry.producer_id: (entry.producer_epoch, entry.last_sequence) for entry in opened.active_producers()} == producers
            log = opened


def _values(records: list[Record]) -> dict[bytes, bytes]:
    return {key: record.value for key, record in latest_of(records).items() if record.value is not None}


def _bytes_from(log: PartitionLog, base_offset: int) -> list[bytes]:
    filesystem = log.context.filesystem
    return [filesystem.read_file(segment.path) for segment in log.segments if segment.base_offset >= base_offset]


def _last_batches(log: PartitionLog) -> dict[int, tuple[int, int, int]]:
    """Of each producer the last batch of data, as far as its state needs it."""
    found = {}
    for header, _ in batches_of(log):
        if header.producer_id >= 0 and not header.is_control:
            found[header.producer_id] = (header.last_offset, header.producer_epoch, header.last_sequence)
    return found


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_steps)
def test_after_any_cleaning_every_key_has_its_latest_value_and_nothing_else_has_changed(steps: list[Write | End | Clean | str]) -> None:
    model = Model()
    for step in steps:
        if isinstance(step, Write):
            model.write(step)
        elif isinstance(step, End):
            model.end(step)
        elif isinstance(step, Clean):
            model.clean(step)
        else:
            model.writer.roll()
    model.writer.roll()
    model.clean(Clean(2 * RETENTION_MS, 1000))
    model.clean(Clean(2 * RETENTION_MS, 1000))
    model.check_restart()
    assert Writer(model.log).write([(b"k", b"v")]) == [model.log.log_end_offset - 1]
