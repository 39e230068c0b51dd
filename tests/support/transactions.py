"""Writes transactional batches and markers to replicas and logs of a test, as producers and coordinators write them."""

from dataclasses import dataclass

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import (
    ControlRecordType,
    EndTransactionMarker,
    build_end_transaction_marker,
    parse_end_transaction_marker,
)
from ottla.protocol.records.reader import iter_records
from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.origins import CLIENT
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.replicas import TOPIC, Replicas


def write_in_transaction(
    replicas: Replicas, producer_id: int, *, epoch: int = 0, sequence: int = 0, records: int = 1, index: int = 0, topic: str = TOPIC
) -> BatchRun:
    """A batch of the open transaction of the producer, or of a new one, which a coordinator has verified."""
    partition = replicas.manager.partitions[topic][index]
    run = a_run(a_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True))
    run.guard = partition.begin_verification(producer_id, sequence, epoch)
    partition.append(run, -1, replicas.clock.now_ms(), CLIENT)
    return run


def a_marker_batch(producer_id: int, *, commit: bool = True, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """The control batch that ends the transaction of a producer."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = EndTransactionMarker(kind, coordinator_epoch)
    return build_end_transaction_marker(marker, timestamp=FIRST_TIMESTAMP, producer_id=producer_id, producer_epoch=epoch)


@dataclass
class Transaction:
    """One transaction of a log; `last_offset` is that of its marker, -1 while it is open."""

    producer_id: int
    first_offset: int
    last_offset: int = -1
    is_aborted: bool = False


class Transactions:
    """The transactions of a log by plain rules, to compare the log with."""

    def __init__(self, batches: bytes = b"") -> None:
        """Those in the batches of a log, from its beginning."""
        self.all: list[Transaction] = []
        for position, header in iter_batches(batches):
            if header.is_control:
                (record,) = iter_records(batches, position, header)
                kind = parse_end_transaction_marker(record).type
                self.end(header.producer_id, header.base_offset, is_aborted=kind is ControlRecordType.ABORT)
            elif header.is_transactional:
                self.write(header.producer_id, header.base_offset)

    def write(self, producer_id: int, offset: int) -> None:
        """The producer has written a transactional batch."""
        if not any(each.producer_id == producer_id and each.last_offset < 0 for each in self.all):
            self.all.append(Transaction(producer_id, offset))

    def end(self, producer_id: int, offset: int, *, is_aborted: bool) -> None:
        """A marker of the producer stands at `offset`."""
        for each in self.all:
            if each.producer_id == producer_id and each.last_offset < 0:
                each.last_offset = offset
                each.is_aborted = is_aborted

    def cut(self, offset: int) -> None:
        """The log ends at `offset` now."""
        self.all = [each for each in self.all if each.first_offset < offset]
        for each in self.all:
            if each.last_offset >= offset:
                each.last_offset, each.is_aborted = -1, False

    def last_stable_offset(self, high_watermark: int) -> int:
        """The start of the oldest transaction of which the marker is not below the high watermark; else the high watermark."""
        undecided = [each.first_offset for each in self.all if not 0 <= each.last_offset < high_watermark]
        return min([*undecided, high_watermark])

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with something in `start:end`, their markers included."""
        return {
            (each.producer_id, each.first_offset)
            for each in self.all
            if each.is_aborted and each.last_offset >= start and each.first_offset < end
        }

    def check(self, log: PartitionLog) -> None:
        """The log has the last stable offset of these transactions, and tells readers at every offset of the aborted ones."""
        stable = max(self.last_stable_offset(log.high_watermark), log.log_start_offset)
        assert log.last_stable_offset == stable
        for start in range(log.log_start_offset, stable):
            found = aborted_transactions(log, start, stable)
            assert {(each.producer_id, each.first_offset) for each in found} == self.aborted(start, stable)
            assert len(found) == len(self.aborted(start, stable))
