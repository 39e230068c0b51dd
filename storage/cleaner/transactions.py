"""Tracks transactions while the cleaner reads a log from its beginning: aborted records, and markers that are no longer
needed.

Used by `run`, one for each pass over the log. The rules are those of Apache Kafka's CleanedTransactionMetadata. Records
of aborted transactions are dropped at once. A marker is kept if a record of its transaction was seen. The index entry
of an aborted transaction is kept together with its marker.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from ottla.protocol.records.batch import TRANSACTIONAL_MASK, BatchHeader, Buffer
from ottla.protocol.records.builder import ControlRecordType, read_control_type
from ottla.storage.segment.transaction_index import AbortedTransaction, TransactionIndex


class CleanedTransactions:
    """Called for every batch in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "_to_come", "index")

    def __init__(self) -> None:
        self.index: TransactionIndex | None = None
        """Index of the cleaned segment, for the aborted transactions that are kept."""
        self._to_come: list[tuple[int, int, AbortedTransaction]] = []
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._aborted: set[int] = set()
        """The producers in `_ongoing` of which a batch was seen."""
        self._committed: set[int] = set()
        """The producers with a batch of a transaction that is not aborted."""

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Adds transactions that begin in the batches to be read next. A transaction may be added twice."""
        for transaction in transactions:
            heappush(self._to_come, (transaction.first_offset, transaction.producer_id, transaction))

    def on_data(self, header: BatchHeader) -> bool:
        """A batch of records; True if its transaction was aborted."""
        if self._to_come:
            self._begin(header.last_offset)
        if not header.attributes & TRANSACTIONAL_MASK:
            return False
        producer_id = header.producer_id
        if producer_id in self._ongoing:
            self._aborted.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """A control batch; True if no record of its transaction is left, so that it may be dropped after its retention.
        May raise OSError."""
        self._begin(header.last_offset)
        producer_id = header.producer_id
        match read_control_type(buffer, position, header):
            case None:
                return True  # it was cleaned before
            case ControlRecordType.ABORT:
                transaction = self._ongoing.pop(producer_id, None)
                if transaction is None or producer_id not in self._aborted:
                    return True
                self._aborted.remove(producer_id)
                if self.index is not None:
                    self.index.append(transaction)
                return False
            case ControlRecordType.COMMIT:
                if producer_id not in self._committed:
                    return True
                self._committed.remove(producer_id)
                return False
        return False

    def _begin(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            _, producer_id, transaction = heappop(self._to_come)
            self._ongoing.setdefault(producer_id, transaction)
