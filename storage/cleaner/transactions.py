"""The transactions that the cleaner comes across while it reads a log from its beginning: which records were aborted, and which markers
nothing needs any more.

Used by `cleaner_run`, one for each pass over the log. The rules are those of Apache Kafka's CleanedTransactionMetadata: records of aborted
transactions go at once; a marker stays as long as a record of its transaction was seen (the index entry of an aborted one with it).
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from protocol.records.batch import TRANSACTIONAL_MASK, BatchHeader, Buffer
from protocol.records.builder import ControlRecordType, control_record_type
from protocol.records.reader import iter_records
from storage.segment.transaction_index import AbortedTransaction, TransactionIndex


class CleanedTransactions:
    """Told of every batch in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "_to_come", "index")

    def __init__(self) -> None:
        self.index: TransactionIndex | None = None
        """That of the cleaned segment, which gets the transactions that stay."""
        self._to_come: list[tuple[int, int, AbortedTransaction]] = []
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._aborted: set[int] = set()
        """The producers of those in `_ongoing` of which a batch was seen."""
        self._committed: set[int] = set()
        """The producers of whose transaction, not an aborted one, a batch was seen."""

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Transactions that begin in what is read next. One may be told of twice."""
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
        """A control batch; True if nothing of its transaction is left, so that it may go when its time has come. May raise OSError."""
        self._begin(header.last_offset)
        record = next(iter_records(buffer, position, header), None)
        if record is None:
            return True  # cleaned before
        producer_id = header.producer_id
        match control_record_type(record.key):
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
