"""What was committed: the batches of a partition below the highest high watermark that a leader of it ever had. That never changes again.

Every byte stands here once, as the first leader had it that committed it; all replicas are compared with it, and what producers were told
and consumers saw.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.protocol.records.batch import BatchHeader, iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from tests.simulation.outcomes import TRANSACTION_STATE, Decisions, PartitionTransactions

OFFSETS_TOPIC = "__consumer_offsets"
"""Every batch of a transaction there has the sequence number 0, as those of Apache Kafka."""


class Committed:
    """Of one partition. Offsets are dense: every batch begins where the one before it ended.

    `decisions` are those of all transaction coordinators.
    """

    def __init__(self, partition: TopicPartition, decisions: Decisions) -> None:
        self.partition = partition
        self.transactions = PartitionTransactions()
        self._decisions = decisions
        self.end_offset = 0
        self.acknowledged = 0
        self.seen = 0
        self._batches: dict[int, tuple[bytes, int]] = {}
        """First offset -> the batch, and the offset behind it."""
        self._sent: set[tuple[int, int, int]] = set()
        self._records: dict[int, bytes | None] = {}
        self._offsets: dict[bytes, int] = {}

    def extend(self, log: PartitionLog, high_watermark: int, who: str) -> None:
        """A leader raised its high watermark."""
        for batch, header in batches(log, self.end_offset, high_watermark):
            assert header.base_offset == self.end_offset, f"{who}: a batch of offset {header.base_offset} comes after {self.end_offset - 1}"
            if header.producer_id >= 0 and not header.is_control and self.partition.topic != OFFSETS_TOPIC:
                sent = header.producer_id, header.producer_epoch, header.base_sequence
                assert sent not in self._sent, f"{who}: {_told(batch)} is there twice"
                self._sent.add(sent)
            end_offset = header.last_offset + 1
            self._batches[header.base_offset] = batch, end_offset
            records = list(iter_records(batch))
            for record in records:
                self._records[record.offset] = record.value
            if self.partition.topic == TRANSACTION_STATE:
                self._decisions.take(records)
            outcome = self.transactions.take(header, records)
            if outcome is not None:
                self._decisions.check(outcome, who)
            self.end_offset = end_offset

    def check_last_stable_offset(self, offset: int, who: str) -> None:
        """Consumers of committed transactions may read up to there."""
        self._decisions.check_last_stable_offset(offset, self.transactions, who)

    def compare(self, log: PartitionLog, start: int, end: int, who: str) -> int:
        """A replica has what was committed between these offsets, byte for byte; up to where that could be told.

        `start` may be within a batch, where a log starts after DeleteRecords.
        """
        offset = start
        for batch, header in batches(log, start, end):
            offset = min(offset, header.base_offset)
            assert header.base_offset == offset, f"{who}: a batch of offset {header.base_offset} comes after {offset - 1}"
            committed, end_offset = self._batches.get(offset, (b"", offset))
            assert committed == batch, f"{who} differs at {offset}: {_told(batch)}; committed was {_told(committed)}"
            offset = end_offset
        return offset

    def acknowledge(self, offset: int, values: list[bytes]) -> None:
        """A producer was told that its records are there: each once, and for ever."""
        for at, value in enumerate(values, offset):
            self._check(at, value, "acknowledged")
            known = self._offsets.setdefault(value, at)
            assert known == at, f"{value!r} was acknowledged at {known} and at {at} of {self.partition}"
        self.acknowledged += len(values)

    def see(self, offset: int, value: bytes | None) -> None:
        """A consumer read this."""
        self._check(offset, value, "read")
        self.seen += 1

    def bytes_between(self, start: int, end: int) -> bytes:
        """The batches from the one at `start` to the one that ends before `end`."""
        return b"".join(batch for first, (batch, behind) in self._batches.items() if first >= start and behind <= end)

    def values(self) -> list[bytes]:
        """Of all records, in their order."""
        return [value for value in self._records.values() if value is not None]

    def _check(self, offset: int, value: bytes | None, how: str) -> None:
        assert offset < self.end_offset, f"{value!r} was {how} at {offset} of {self.partition}, which is committed up to {self.end_offset}"
        known = self._records[offset]
        assert known == value, f"{value!r} was {how} at {offset} of {self.partition}; {known!r} is committed there"


def batches(log: PartitionLog, start: int, end: int) -> Iterator[tuple[bytes, BatchHeader]]:
    """The batches of a log from the one at `start` to the last that ends below `end`."""
    offset = start
    while offset < end:
        part = log.read(offset, 1 << 20, log.log_end_offset, True)
        data = b"" if part.region is None else bytes(part.region.read())
        before = offset
        for at, header in iter_batches(data):
            if header.last_offset < start:
                continue
            if header.last_offset >= end:
                return
            yield data[at : at + header.size], header
            offset = header.last_offset + 1
        assert offset > before, f"{log.topic_partition}: nothing can be read at {before}"


def _told(batch: bytes) -> str:
    """A batch in a few words."""
    if not batch:
        return "nothing"
    ((_, header),) = iter_batches(batch)
    return f"{header.base_offset} to {header.last_offset} of epoch {header.partition_leader_epoch}, producer {header.producer_id}"
