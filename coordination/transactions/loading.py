"""Loads transactional ids from the records of `__transaction_state`. Implements `coordination.elections.Loader`.

The last record of an id is valid, so values are decoded after all records are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping

from ottla.coordination.partitions.skipped import report_skipped
from ottla.coordination.transactions.log_records import read_key, read_value
from ottla.coordination.transactions.metadata import TransactionMetadata
from ottla.large_table import LargeTable
from ottla.protocol.conversion.old_logs import readable
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.records.reader import iter_keys_and_values, record_data
from ottla.protocol.schema.wire import ProtocolError

logger = logging.getLogger(__name__)


class TransactionLoader:
    """See the module. `skipped` counts records that cannot be read; an id without a readable record is left out."""

    __slots__ = ("_values", "name", "skipped")

    def __init__(self, name: str) -> None:
        """`name` is the partition's."""
        self.name = name
        self.skipped = 0
        self._values: LargeTable[bytes, bytes] = LargeTable()

    def feed(self, data: bytes) -> Iterator[None]:
        """Take in whole batches, the next in the log."""
        values = self._values
        for at, found in iter_batches(data):
            header = found
            try:
                if not header.is_control:
                    batch, position, header = readable(data, at, found)
                    for key, value in iter_keys_and_values(record_data(batch, position, header), header):
                        if key is None:
                            self._skip("a record", "it has no key")
                        elif value is None:
                            values.pop(key, None)
                        else:
                            values[key] = value
                        yield
            except RecordFormatError as error:
                self._skip(f"the batch at offset {header.base_offset}", error)
            yield

    def states(self, now_ms: int, into: MutableMapping[str, TransactionMetadata]) -> Iterator[None]:
        """Put the ids that were found into `into`. Records are freed one by one, because freeing all at once would block the event loop."""
        for key, value in self._values.drain():
            try:
                transactional_id = read_key(key)
                if transactional_id is None:
                    self._skip("a record", f"its key has version {int.from_bytes(key[:2], 'big')}")
                else:
                    into[transactional_id] = read_value(transactional_id, value)
            except ProtocolError as error:
                self._skip(f"a record with key {key!r}", error)
            yield

    def found(self, states: int) -> str:
        """The number of ids that were found, for the log."""
        return f"{states} transactional ids"

    def _skip(self, what: str, why: object) -> None:
        self.skipped += 1
        report_skipped(logger, self.name, self.skipped, what, why)
