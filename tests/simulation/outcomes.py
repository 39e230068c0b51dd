"""Follows the transactions in committed batches: which are open, which were aborted, and what the coordinator had decided before.

A second reading of the log format beside the brokers' own (`ottla.storage.producers`), without their shortcuts.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.builder import ControlRecordType, parse_end_transaction_marker
from ottla.protocol.records.reader import Record

TRANSACTION_STATE = "__transaction_state"
PREPARE_COMMIT = 2
PREPARE_ABORT = 3
ONGOING = 1
FINISHED = frozenset({0, 4, 5})
"""Empty, CompleteCommit, CompleteAbort."""
VERSION_BYTES = 2


class Outcome(NamedTuple):
    """How the transaction of a producer ends."""

    producer_id: int
    epoch: int
    is_commit: bool


class Aborted(NamedTuple):
    """An aborted transaction: its producer, its first record and its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The transactions of one partition, up to where it is committed."""

    def __init__(self) -> None:
        self.aborted: list[Aborted] = []
        """In the order of their markers."""
        self._open: dict[int, int] = {}
        """Producer id -> its first offset, in order of the offset."""

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def open_below(self, offset: int) -> list[int]:
        """Producers with an open transaction that begins below `offset`."""
        return [producer_id for producer_id, first_offset in self._open.items() if first_offset < offset]

    def take(self, header: BatchHeader, records: list[Record]) -> Outcome | None:
        """Follow the next batch; the outcome, if it is a marker."""
        if not header.is_transactional:
            return None
        producer_id = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            return None
        (record,) = records
        is_commit = parse_end_transaction_marker(record).type is ControlRecordType.COMMIT
        first_offset = self._open.pop(producer_id, None)
        if first_offset is not None and not is_commit:
            self.aborted.append(Aborted(producer_id, first_offset, record.offset))
        return Outcome(producer_id, header.producer_epoch, is_commit)


class Decisions:
    """What the committed records of `__transaction_state` say."""

    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        """Transactional id -> its newest state, by Kafka's number."""
        self._by_producer: dict[int, int] = {}
        self._outcomes: set[Outcome] = set()

    def take(self, records: list[Record]) -> None:
        """Follow the next batch."""
        for record in records:
            assert record.key is not None
            key, _ = TransactionLogKey.decode(record.key, 0, VERSION_BYTES)
            if record.value is None:
                self.states.pop(key.transactional_id, None)
                continue
            version = int.from_bytes(record.value[:VERSION_BYTES], "big")
            value, _ = TransactionLogValue.decode(record.value, version, VERSION_BYTES)
            state = self.states[key.transactional_id] = self._by_producer[value.producer_id] = value.transaction_status
            if state in (PREPARE_COMMIT, PREPARE_ABORT):
                self._outcomes.add(Outcome(value.producer_id, value.producer_epoch, state == PREPARE_COMMIT))

    def check(self, outcome: Outcome, who: str) -> None:
        """A marker is committed: the decision was, before."""
        assert outcome in self._outcomes, f"{who}: a marker says {outcome}, and no coordinator had decided that"

    def check_last_stable_offset(self, offset: int, transactions: PartitionTransactions, who: str) -> None:
        """No transaction below it is undecided.

        Its marker need not be on all replicas in sync. A broker that starts from a snapshot of its producers does not tell those markers
        from others, and neither does Apache Kafka.
        """
        undecided = [each for each in transactions.open_below(offset) if self._by_producer.get(each, ONGOING) == ONGOING]
        assert not undecided, f"{who}: stable up to {offset}, where transactions of the producers {undecided} are undecided"

    def unfinished(self) -> list[str]:
        """Transactional ids whose transactions are not at their ends."""
        return [name for name, state in self.states.items() if state not in FINISHED]
