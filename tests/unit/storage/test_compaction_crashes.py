"""A disk that fails, or a power cut, at every call of a cleaning: the log opens again and no key has lost its value."""

import os
from typing import cast

import pytest

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.cleaners import clean_log
from tests.support.clocks import ManualClock
from tests.support.compacted_logs import Writer, a_writer, batches_of, committed_of, latest_of
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import LOG_DIR, T0, a_config, a_context

CONFIG: dict[str, str | int] = {"cleanup_policy": "compact", "segment_bytes": 700, "segment_index_bytes": 240}


def _fill(writer: Writer) -> None:
    for batch in range(8):
        writer.write([(b"key-%d" % (batch % 3), b"value-%d" % batch), (b"once-%d" % batch, None if batch % 4 == 0 else b"stays")])
        writer.write([(b"key-%d" % batch, b"aborted")], producer_id=5, transactional=True)
        writer.end(5, commit=batch % 2 == 0)
        writer.write([(b"key-1", b"again-%d" % batch)], producer_id=6, codec="lz4")
    writer.roll()
    writer.log.flush()


def _values(log: PartitionLog) -> dict[bytes, bytes | None]:
    return {key: record.value for key, record in latest_of(committed_of(log)).items()}


def _reopened(filesystem: FileSystem, log: PartitionLog) -> PartitionLog:
    opened = open_log(
        a_context(filesystem, ManualClock()), T0, LOG_DIR, a_config(**CONFIG), clean_shutdown=False, recovery_point=log.recovery_point
    )
    opened.update_high_watermark(opened.log_end_offset)
    return opened


class Cleaning:
    """A log with something to clean, on a disk that refuses one call of the cleaning: the first is number 1."""

    def __init__(self, failing: int) -> None:
        self.disk = MemoryFileSystem()
        self.faulty = FaultyFileSystem(self.disk)
        writer = a_writer(a_context(cast(FileSystem, self.faulty)), **CONFIG)
        _fill(writer)
        self._log = writer.log
        self._values = _values(self._log)
        self._producers = _last_sequences(self._log)
        self.faulty.fail_at = self.faulty.calls + failing

    def fails(self) -> bool:
        """Clean; False when the cleaning was over before the call that is refused."""
        try:
            clean_log(self._log)
        except (OSError, LogDirFailure):
            return True
        return False

    def check(self, filesystem: FileSystem) -> None:
        """What is left opens, has lost nothing, and can be cleaned."""
        opened = _reopened(filesystem, self._log)
        assert _values(opened) == self._values
        assert opened.log_end_offset == self._log.log_end_offset
        assert _last_sequences(opened) == self._producers
        offsets = [header.base_offset for header, _ in batches_of(opened)]
        assert offsets == sorted(set(offsets))
        names = filesystem.list_directory(opened.directory)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        clean_log(opened)
        assert _values(opened) == self._values


def _last_sequences(log: PartitionLog) -> dict[int, int]:
    return {entry.producer_id: entry.last_sequence for entry in log.active_producers()}


IS_SOAK = "OTTLA_SOAK" in os.environ
EVERY = 1 if IS_SOAK else 3
"""Which calls fail: each, or each third."""
SEEDS = 3 if IS_SOAK else 1
"""Power cuts at each call."""


@pytest.mark.slow
def test_whichever_call_of_a_cleaning_fails_every_key_has_its_value() -> None:
    failures = 0
    while True:
        cleaning = Cleaning(failing=EVERY * failures + 1)
        cleaning.faulty.fails_for_ever = False
        if not cleaning.fails():
            break
        failures += 1
        cleaning.check(cleaning.disk)
    assert failures > 50 // EVERY


@pytest.mark.slow
def test_after_the_end_of_the_disk_or_a_power_cut_at_any_call_every_key_has_its_value() -> None:
    """A power cut leaves another file system, so the same cleaning has both."""
    failures = 0
    while True:
        cleaning = Cleaning(failing=EVERY * failures + 1)
        if not cleaning.fails():
            break
        failures += 1
        for seed in range(SEEDS):
            cleaning.check(cleaning.disk.after_power_cut(seed))
        cleaning.check(cleaning.disk)
    assert failures > 50 // EVERY
