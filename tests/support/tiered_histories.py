"""Plays two brokers with one tiered partition: steps, faults, crashes and elections, and what must be true after each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ottla.protocol.records.batch import iter_batches
from ottla.replication.remote.aux_state import AuxStates
from ottla.replication.remote.leadership import Deposed
from ottla.replication.remote.positions import CopiesOf, refresh
from ottla.storage.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.entries import SegmentEntry, SegmentState
from ottla.storage.remote.lineage import first_missing, is_in_lineage, with_records
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import MetadataWriteFailed, RemoteStoreError
from tests.support.batches import a_batch, a_record
from tests.support.clocks import ManualClock
from tests.support.logs import append, follow
from tests.support.remote_fakes import MemoryMetadata, Parts, Record, SlowBackground
from tests.support.tiered_replicas import TIERED, TieredReplica, follows

KEPT = 8
"""Records that retention.bytes keeps at least."""
HOUR_MS = 3_600_000
RETENTION_MS = 6 * HOUR_MS
SEGMENT_BATCHES = 2
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
SIZE = len(a_batch([a_record(value=b"0" * 12)]))
FAULTS = (RemoteStoreError, MetadataWriteFailed, Deposed)


class Crash(Exception):
    """The process of the broker ends at this step."""


class Broker:
    """A broker with its disk. `fail_at` is the number of the step at which `fault` is raised."""

    def __init__(self, broker_id: int, clock: ManualClock, caches: dict[Any, Any], parts: dict[bytes, Parts]) -> None:
        self.broker_id = broker_id
        self.fail_at = -1
        self.fault: type[Exception] = RemoteStoreError
        self.saved_start = 0
        self.replica = TieredReplica(
            broker_id=broker_id,
            metadata=MemoryMetadata(caches),
            clock=clock,
            segment_batches=1,
            segment_bytes=SEGMENT_BATCHES * SIZE,
            retention_bytes=KEPT * SIZE,
            retention_ms=RETENTION_MS,
            local_retention_bytes=SIZE,
        )
        self.replica.store.parts = parts
        self.replica.store.before = self._before_call
        self.replica.metadata.before = self._before_record
        self.replica.metadata.after = self._before_record
        self._save_log_start()

    @property
    def log(self) -> PartitionLog:
        return self.replica.log

    async def _before_call(self, call: str, entry: SegmentEntry) -> None:
        metadata = self.replica.metadata
        known = metadata.get(TIERED, entry.id.uuid)
        if call == "delete":
            assert known is not None
            assert known.state == SegmentState.DELETE_SEGMENT_STARTED, "objects are deleted after the deletion's begin is applied"
        if call == "copy":
            assert known is not None
            assert entry.end_offset < self.log.last_stable_offset, "only final records are copied"
        self._step(RemoteStoreError)

    async def _before_record(self, record: Record) -> None:
        self._step(MetadataWriteFailed)

    def _step(self, usual: type[Exception]) -> None:
        self.fail_at -= 1
        if self.fail_at == 0:
            raise Crash if self.fault is Crash else usual(f"a fault of broker {self.broker_id}")

    def restart(self) -> None:
        """As after a crash: with the log as it is on the disk, and the log start offset of the last checkpoint."""
        self.replica.log.close_without_writing()
        self.replica.log = self.replica.partition.log = self.replica.open(clean=False, log_start_offset=self.saved_start)
        self.replica.services.being_copied.clear()
        self.replica.copier = None
        self._save_log_start()

    def _save_log_start(self) -> None:
        """A log start offset that moves is written at once, also by `ReplicaManager`."""

        def save(log: PartitionLog) -> None:
            self.saved_start = log.log_start_offset

        self.log.context.on_log_start_offset = save


class History:
    """Two brokers, of which `leader` leads."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.clock = ManualClock()
        self.parts: dict[bytes, Parts] = {}
        caches: dict[Any, Any] = {}
        self.brokers = [Broker(number, self.clock, caches, self.parts) for number in (1, 2)]
        self.leader, self.follower = self.brokers
        self.epoch = 0
        self.count = 0
        self.deleted = 0
        self.start = self.longest = self.expired = 0
        self.lost: set[int] = set()
        self.timestamps: dict[int, int] = {}
        self.committed: dict[int, bytes] = {}
        self._lead()

    # -- steps -----------------------------------------------------------------------------------------------------------

    def produce(self, records: int, age_ms: int = 0) -> None:
        """Appends batches of a record each to the leader."""
        at = self.clock.now_ms() - age_ms
        for _ in range(records):
            self.count += 1
            value = b"%012d" % self.count
            self.timestamps[self.leader.log.log_end_offset] = at
            self.longest = max(self.longest, self.leader.log.log_end_offset + 1)
            append(self.leader.log, a_batch([a_record(value=value, timestamp=at)]), epoch=self.epoch)

    def replicate(self) -> None:
        """The follower gets all that the leader has, and the high watermark moves."""
        leader, follower = self.leader.log, self.follower.log
        while follower.log_end_offset < leader.log_end_offset:
            try:
                found = leader.read(follower.log_end_offset, 1 << 20, leader.log_end_offset, True)
            except OffsetMovedToTieredStorage:
                self._begin_remotely()
                continue
            except OffsetOutOfRange:
                follower.truncations.truncate_fully_and_start_at(leader.log_start_offset)
                continue
            assert found.region is not None
            follow(follower, found.region.read(), self.epoch)
        self._commit(leader.log_end_offset)
        for log in (leader, follower):
            log.update_high_watermark(leader.log_end_offset)
        if leader.log_start_offset > follower.log_start_offset:
            follower.increment_log_start_offset(leader.log_start_offset, "the leader's moved")

    def _begin_remotely(self) -> None:
        leader, broker = self.leader.log, self.follower
        states = AuxStates(
            broker.replica.store, broker.replica.metadata, SlowBackground(), broker.replica.counters, lambda _: None, MemoryBudget(64 << 20)
        )
        last = leader.local_log_start_offset - 1
        broker.fail_at = -1

        async def begin() -> None:
            async with states.state_at(broker.log, leader.leader_epochs.entries, last, leader.log_end_offset) as state:
                await states.begin(broker.log, state, leader.log_start_offset, lambda: True)

        self._run(begin())
        assert broker.log.log_end_offset > last

    def copy(self) -> bool:
        """The leader copies what it can. Returns whether its process survives."""
        return self._work(self.leader.replica.copy_all())

    def expire(self) -> bool:
        """The leader removes what is due. Returns whether its process survives."""
        return self._work(self.leader.replica.expiry.run())

    def _work(self, work: Coroutine[Any, Any, None]) -> bool:
        broker = self.leader
        try:
            self._run(work)
        except Crash:
            self.start = max(self.start, broker.log.log_start_offset)  # what it was about to remove is gone, though a start forgets it
            broker.restart()
            return False
        except FAULTS:
            pass
        finally:
            broker.fail_at = -1
        return True

    def retain(self) -> None:
        """Both brokers remove what retention lets them remove of their own disks."""
        for broker in self.brokers:
            refresh(broker.log, CopiesOf(broker.replica.metadata, TIERED))
            delete_old_segments(broker.log, self.clock.now_ms())

    def delete_records(self, offset: int) -> None:
        """A client deletes the records below the offset."""
        log = self.leader.log
        self.deleted = max(self.deleted, min(offset, log.high_watermark))
        log.increment_log_start_offset(min(offset, log.high_watermark), "records were deleted by a client")

    def lose_copy(self, number: int) -> None:
        """Someone removes a finished copy of records that both brokers still have, whatever is behind it."""
        metadata = self.leader.replica.metadata
        first = max(broker.log.local_log_start_offset for broker in self.brokers)
        chosen = [each for each in metadata.all_entries(TIERED) if each.state == FINISHED and each.start_offset >= first]
        if chosen:
            chosen.sort(key=lambda each: (each.start_offset, each.id.uuid))
            entry = chosen[number % len(chosen)]
            uuid = entry.id.uuid
            self.lost.update(range(entry.start_offset, entry.end_offset + 1))
            for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED):
                metadata.caches[TIERED].change(int.from_bytes(uuid, "big"), state, 9, self.clock.now_ms(), None)
            del self.parts[uuid]

    def checkpoint(self) -> None:
        """Both brokers write their checkpoints, and flush."""
        for broker in self.brokers:
            broker.saved_start = broker.log.log_start_offset

    def elect(self) -> None:
        """The follower becomes leader. If it lacks committed records, they are lost."""
        self.leader, self.follower = self.follower, self.leader
        self.epoch += 1
        new, old = self.leader.log, self.follower.log
        if self.follower.replica.copier is not None:
            self._run(_stopped(self.follower.replica))
        follows(self.follower.replica.partition, self.leader.broker_id, self.epoch)
        self._lead()
        while old.truncations.truncate_to(_divergence(new, old)):
            pass
        self.committed = {offset: batch for offset, batch in self.committed.items() if offset < new.log_end_offset}
        self.timestamps = {offset: at for offset, at in self.timestamps.items() if offset < new.log_end_offset}

    def restart(self, broker: Broker) -> None:
        """Kills a broker; a leader that comes back leads again."""
        broker.restart()
        if broker is self.leader:
            self.epoch += 1
            self._lead()

    def wait(self) -> None:
        """So long that no cancelled copy is still busy, and that other brokers' copies count as abandoned."""
        self.clock.move(2 * HOUR_MS)
        for broker in self.brokers:
            if broker.replica.copier is None or broker is not self.leader:
                broker.replica.services.being_copied.clear()

    def settle(self) -> None:
        """Everything works again for long enough."""
        for broker in self.brokers:
            broker.fail_at = -1
        self.replicate()
        self.wait()
        self.retain()  # which may end an active segment that is old
        for _ in range(3):
            assert self.copy()
            self.leader.replica.services.being_copied.clear()  # all that was begun has ended, and the time of grace, too
            assert self.expire()
        self.retain()

    def _lead(self) -> None:
        replica = self.leader.replica
        if replica.copier is not None:
            self._run(_stopped(replica))
        replica.lead(self.epoch)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def close(self) -> None:
        """Ends the event loop."""
        self._runner.close()

    def _commit(self, end_offset: int) -> None:
        log = self.leader.log
        for offset in range(max(self.committed, default=-1) + 1, end_offset):
            if offset >= log.local_log_start_offset:
                self.committed[offset] = _local(log, offset)

    # -- what must be true -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every committed record from the log start offset on is readable at the leader, with the bytes that were committed."""
        log = self.leader.log
        self.longest = max(self.longest, log.log_end_offset)  # an election may have shortened the log since then
        assert log.log_start_offset <= self._most_start()
        self.start = max(self.start, log.log_start_offset)
        for offset, batch in self.committed.items():
            if offset >= self.start:
                assert self._read(offset) == batch, f"offset {offset}"

    def _most_start(self) -> int:
        """The offset up to which retention, or a client, lets the log start move.

        A copy that is lost does not hold up the removal of those behind it, unless the leader still has its records.
        """
        local_start = self.leader.log.local_log_start_offset
        self.expired = max(self.expired, self.deleted, self.longest - KEPT + SEGMENT_BATCHES - 1)
        oldest_ms = self.clock.now_ms() - RETENTION_MS
        while (self.expired in self.lost and self.expired < local_start) or self.timestamps.get(self.expired, oldest_ms + 1) <= oldest_ms:
            self.expired += 1
        return self.expired

    def _read(self, offset: int) -> bytes:
        log = self.leader.log
        if offset >= log.local_log_start_offset:
            return _local(log, offset)
        epoch, epochs = log.leader_epochs.epoch_of(offset), with_records(log.leader_epochs.entries)
        assert epoch is not None
        entry = self.leader.replica.metadata.find(TIERED, epoch, offset, lambda each: is_in_lineage(each, log.log_end_offset, epochs))
        assert entry is not None, f"offset {offset} is nowhere"
        records = self.parts[entry.id.uuid].log
        assert records is not None
        return _batch_in(records, offset)

    def check_settled(self) -> None:
        """Nothing is forgotten in the store, and everything that can be there is."""
        self.check()
        metadata = self.leader.replica.metadata
        entries = {each.id.uuid: each for each in metadata.all_entries(TIERED)}
        assert {each.state for each in entries.values()} <= {FINISHED}
        assert self.parts.keys() == entries.keys()
        log = self.leader.log
        assert log.tier is not None
        end, epochs = log.segments.active.base_offset, with_records(log.leader_epochs.entries)
        assert max(log.tier.copied.offset + 1, log.log_start_offset) >= end
        assert first_missing(log.log_start_offset, end - 1, log.log_end_offset, epochs, log.tier.find) is None


async def _stopped(replica: TieredReplica) -> None:
    assert replica.copier is not None
    replica.copier.stop()


def _local(log: PartitionLog, offset: int) -> bytes:
    region = log.read(offset, SIZE, log.log_end_offset, True).region
    assert region is not None
    return region.read()


def _batch_in(records: bytes, offset: int) -> bytes:
    for at, header in iter_batches(records):
        if header.base_offset == offset:
            return bytes(records[at : at + header.size])
    raise AssertionError(f"the remote segment does not have offset {offset}")


def _divergence(leader: PartitionLog, log: PartitionLog) -> int:
    """Where the log differs from the leader's, by their epochs (KIP-101)."""
    if log.latest_epoch is None:
        return min(log.log_end_offset, leader.log_end_offset)
    epoch, end_offset = leader.end_offset_for_epoch(log.latest_epoch)
    if epoch == -1:
        return min(log.high_watermark, leader.log_end_offset)
    _, own_end = log.end_offset_for_epoch(epoch)
    return min(end_offset, log.log_end_offset if own_end == -1 else own_end, log.log_end_offset)
