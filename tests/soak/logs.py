"""A round of random work on logs in memory: every way to change one, every way to stop, and after each step the model has to agree.

No process, no clock, no thread: a seed gives the same round again, call by call.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from random import Random

import pytest

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.start_errors import DuplicateLog
from ottla.storage.errors import LogBeingTruncated, LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.producers import state_manager as producer_state_manager
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import append, read_all

CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
STEPS = 150
LOG_DIRS = ("/a", "/b")
CONFIG = {"segment.bytes": "3000", "index.interval.bytes": "200", "file.delete.delay.ms": "1000"}

_Batch = tuple[int, int, bytes]
"""Base offset, last offset, bytes."""


class Model:
    """What one log has to hold."""

    def __init__(self) -> None:
        self.start = self.end = self.epoch = 0
        self.deleted = 0
        """The highest log start offset there ever was."""
        self.batches: list[_Batch] = []
        self.written: set[_Batch] = set()
        """All that ever was."""
        self.maybe: bytes | None = None
        """A batch whose append failed: it may be there after a restart, as the last one."""
        self.sequences: Counter[int] = Counter()

    def expected(self) -> bytes:
        """The bytes from the log start offset on."""
        return b"".join(data for _, last, data in self.batches if last >= self.start)


class LogsRound:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.memory = MemoryFileSystem()
        self.disks = Disks(FaultyFileSystem(self.memory), ",".join(LOG_DIRS), seed)
        self.disks.topics["topic"] = {
            **CONFIG,
            "retention.bytes": self.rng.choice(["-1", "9000"]),
            "flush.messages": self.rng.choice(["1", "7", str(2**63 - 1)]),
        }
        self.partitions = [TopicPartition("topic", index) for index in range(PARTITIONS)]
        self.models = {each: Model() for each in self.partitions}
        self.counts: Counter[str] = Counter()
        self.directories: dict[TopicPartition, str] = {}
        """Where each log stood last."""
        self.manager = self._start()
        self._open()

    def run(self, steps: int = STEPS) -> Counter[str]:
        """What was done, and how often. Raises AssertionError."""
        quiet = logging.getLogger("ottla.storage")
        level = quiet.level
        quiet.setLevel(logging.CRITICAL + 1)
        many = producer_state_manager.WRITTEN_AT_ONCE
        try:
            # In half of the rounds threads write the snapshots of producers.
            producer_state_manager.WRITTEN_AT_ONCE = self.rng.choice([0, many])
            for _ in range(steps):
                self._step()
        finally:
            quiet.setLevel(level)
            producer_state_manager.WRITTEN_AT_ONCE = many
        return self.counts

    def _step(self) -> None:
        rng = self.rng
        topic_partition = rng.choice(self.partitions)
        log, model = self._log(topic_partition), self.models[topic_partition]
        names = ["append"] * 10 + ["wait"] * 5
        names += ["flush", "roll", "truncate", "delete_records", "retention", "move", "stop", "crash", "power_cut", "fail"]
        name = rng.choice(names)
        self.counts[name] += 1
        match name:
            case "append":
                for _ in range(rng.randint(1, 4)):
                    self._append(log, model)
            case "wait":
                self.disks.background.advance(rng.choice([0, 5, 1000, 70_000]))
            case "flush":
                log.flush()
            case "roll":
                log.roll()
            case "truncate":
                self._truncate(topic_partition, log, model)
            case "delete_records":
                log.update_high_watermark(log.log_end_offset)
                model.start = rng.randint(log.log_start_offset, log.high_watermark)
                log.increment_log_start_offset(model.start, "soak")
            case "retention":
                log.update_high_watermark(log.log_end_offset)
                self.manager.check_retention()
                self.disks.settle()
            case "move":
                self._move(topic_partition, log)
            case _:
                self._end_and_start(name)
        self._check()

    def _append(self, log: PartitionLog, model: Model) -> None:
        rng = self.rng
        producer_id = rng.choice([-1, 1, 2])
        if producer_id >= 0 and producer_id not in model.sequences:
            # What a crash made the log forget, because it was deleted, its copy may know when it takes the place.
            known = {entry.producer_id: entry.last_sequence + 1 for entry in log.active_producers()}
            model.sequences[producer_id] = known.get(producer_id, 0)
        records = rng.randint(1, 4)
        batch = a_batch(
            records,
            rng.choice(CODECS),
            value_bytes=rng.choice([0, 10, 300]),
            timestamps=[FIRST_TIMESTAMP + rng.randint(0, 1000)] * records,
            producer_id=producer_id,
            base_sequence=model.sequences[producer_id] if producer_id >= 0 else None,
        )
        unstamped = bytearray(batch)
        appended = append(log, batch, epoch=model.epoch)
        assert (appended.first_offset, appended.is_duplicate) == (model.end, False)
        model.batches.append((appended.first_offset, appended.last_offset, bytes(batch)))
        model.end = appended.last_offset + 1
        if producer_id >= 0:
            model.sequences[producer_id] += records
            if rng.random() < 0.2:
                again = append(log, unstamped, epoch=model.epoch)
                assert (again.is_duplicate, again.first_offset) == (True, appended.first_offset)
                self.counts["duplicate"] += 1

    def _truncate(self, topic_partition: TopicPartition, log: PartitionLog, model: Model) -> None:
        bases = [base for base, _, _ in model.batches if base >= model.start] or [model.end]
        offset = self.rng.choice([*bases, model.end])
        if self.rng.random() < 0.5:
            log.truncations.truncate_to(offset)
        else:
            ended: list[Exception | None] = []
            log.truncations.truncate_in_thread(offset, ended.append)
            if not ended:
                with pytest.raises(LogBeingTruncated):
                    append(log)
            self.disks.settle()
            assert ended == [None]
            self.counts["truncate in a thread"] += 1
        model.batches = [batch for batch in model.batches if batch[0] < offset]
        model.end = offset
        model.deleted = min(model.deleted, offset)
        model.written = {batch for batch in model.written if batch[0] < offset}
        # What is known of producers is what is left of them in the log: new ones begin.
        model.sequences.clear()
        for entry in log.active_producers():
            model.sequences[entry.producer_id] = entry.last_sequence + 1
        model.epoch += 1
        log.on_new_leader_epoch(model.epoch)
        self.manager.moves.start(topic_partition)
        self.disks.settle()  # the recovery point went back, and is written down in a moment

    def _move(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        if self.manager.get(topic_partition, future=True) is None:
            a_future_log(self.manager, log, LOG_DIRS[1 - LOG_DIRS.index(log.log_dir)])
            self.disks.settle()
        self.manager.moves.start(topic_partition)

    # -- the end, and the next start

    def _end_and_start(self, name: str) -> None:
        flushed = {each: self._log(each).recovery_point for each in self.partitions}
        if name == "fail":
            self._fail()
        self._note_directories()
        if name == "stop":
            self.manager.shutdown()
        else:
            self.disks.crash(self.manager)
        if name == "power_cut":
            self.memory = self.memory.after_power_cut(self.rng.randrange(1 << 30))
        self.disks.filesystem = FaultyFileSystem(self.memory)
        self._start_again()
        for each in self.partitions:
            self._take_what_is_left(each, flushed[each], exact=name in ("stop", "crash"), is_clean=name == "stop")

    def _fail(self) -> None:
        """The disk refuses some calls while there is work; what failed may be there afterwards, or not."""
        faulty = self.disks.filesystem
        assert isinstance(faulty, FaultyFileSystem)
        faulty.error_number = self.rng.choice([errno.EIO, errno.ENOSPC])
        faulty.fails_for_ever = self.rng.random() < 0.5
        faulty.fail_at = faulty.calls + self.rng.randint(1, 30)
        for _ in range(20):
            topic_partition = self.rng.choice(self.partitions)
            log = self.manager.get(topic_partition)
            if log is None or log.is_closed:
                continue
            model = self.models[topic_partition]
            batch = a_batch(2, value_bytes=self.rng.choice([10, 600]))
            try:
                appended = append(log, batch, epoch=model.epoch)
            except LogDirFailure as failure:
                model.maybe = bytes(batch)
                self.manager.report_failure(failure)
            else:
                model.batches.append((appended.first_offset, appended.last_offset, bytes(batch)))
                model.end = appended.last_offset + 1
            self.disks.settle()
            self._note_directories()

    def _note_directories(self) -> None:
        self.directories.update({each.topic_partition: each.directory for each in self.manager.current_logs()})

    def _take_what_is_left(self, topic_partition: TopicPartition, flushed: int, *, exact: bool, is_clean: bool) -> None:
        """Compares, and goes on with what is there."""
        log, model = self._log(topic_partition), self.models[topic_partition]
        data = read_all(log)
        found = [(header.base_offset, header.last_offset, data[at : at + header.size]) for at, header in iter_batches(data)]
        model.written.update(model.batches)
        known = {*model.batches, *(batch for batch in model.written if batch[1] < model.deleted)}
        # A start offset that was checkpointed late brings back what was deleted; nothing that was never written.
        must = [batch for batch in model.batches if batch[1] >= max(model.start, log.log_start_offset) and (exact or batch[1] < flushed)]
        present = [batch for batch in found if batch in known]
        assert [batch for batch in present if batch[1] >= model.start][: len(must)] == must, f"{topic_partition}: lost what was there"
        strangers = [batch for batch in found if batch not in known]
        assert [batch[2][16:] for batch in strangers] in ([], [(model.maybe or b"")[16:]]), f"{topic_partition}: nobody wrote that"
        assert not strangers or strangers[0] == found[-1]
        # A crash may bring back what was deleted, but not for ever: a future log has the later start offset.
        assert log.log_start_offset <= max(model.start, model.deleted), f"{topic_partition}: more was deleted than anybody asked for"
        assert not is_clean or log.log_start_offset >= model.start, f"{topic_partition}: the log start offset went back"
        model.batches = found
        model.start, model.end = log.log_start_offset, log.log_end_offset
        model.maybe = None
        model.sequences.clear()
        for entry in log.active_producers():
            model.sequences[entry.producer_id] = entry.last_sequence + 1
        # Of what was deleted once and came back its producers are not known any more.
        headers = [header for _, header in iter_batches(data) if header.producer_id >= 0 and header.base_offset >= model.deleted]
        written = {header.producer_id: header.last_sequence + 1 for header in headers}
        assert written.items() <= model.sequences.items(), f"{topic_partition}: a producer is forgotten"

    def _start_again(self) -> None:
        try:
            self.manager = self._start()
        except DuplicateLog as duplicate:
            # The disk refused in the middle of a swap, and the operator does what the message says.
            self.counts["duplicate directory"] += 1
            topic_partition = next(each for each in self.partitions if str(each) == duplicate.partition)
            (wrong,) = {duplicate.first, duplicate.second} - {self.directories[topic_partition]}
            for name in self.memory.list_directory(wrong):
                self.memory.unlink(f"{wrong}/{name}")
            self.memory.remove_directory(wrong)
            self.manager = self._start()
        self._open()

    def _start(self) -> LogManager:
        return self.disks.start(log_segment_delete_delay_ms=1000)

    def _open(self) -> None:
        for each in self.partitions:
            self.manager.get_or_create(each)
            self.manager.moves.start(each)

    def _log(self, topic_partition: TopicPartition) -> PartitionLog:
        found = self.manager.get(topic_partition)
        assert found is not None
        return found

    def _check(self) -> None:
        for topic_partition, model in self.models.items():
            log = self._log(topic_partition)
            assert log.log_start_offset >= model.start, f"{topic_partition}: the log start offset went back"
            model.start = log.log_start_offset  # retention moves it
            model.deleted = max(model.deleted, model.start)
            model.written.update(model.batches)
            first = log.segments.first.base_offset
            model.batches = [batch for batch in model.batches if batch[0] >= first]
            assert log.log_end_offset == model.end, f"{topic_partition}: log end offset"
            data = read_all(log)
            if data != model.expected():
                # Any of what a crash brought back may go again.
                found = {data[at : at + header.size] for at, header in iter_batches(data)}
                model.batches = [batch for batch in model.batches if batch[1] >= model.deleted or batch[2] in found]
            assert data == model.expected(), f"{topic_partition}: content"
            for _, header in iter_batches(data):
                epoch = log.leader_epochs.epoch_of(max(header.base_offset, log.log_start_offset))
                assert epoch in (None, header.partition_leader_epoch), f"{topic_partition}: leader epoch at offset {header.base_offset}"
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            assert log.recovery_point <= log.log_end_offset
