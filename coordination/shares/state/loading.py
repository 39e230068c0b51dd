"""Loads the states of share partitions from the records of `__share_group_state`. Implements `coordination.elections.Loader`.

The log may begin with updates whose snapshot was deleted. Such updates are not needed: a later snapshot of the share partition follows.
A damaged batch is left out: its records are delivered again, instead of being lost by a wrong start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping

from ottla.coordination.partitions.skipped import report_skipped
from ottla.coordination.shares.state.stored_state import SNAPSHOT, StoredState, read_key, read_snapshot, read_update
from ottla.large_table import LargeTable
from ottla.protocol.conversion.old_logs import readable
from ottla.protocol.records.batch import crc_is_valid, iter_batches
from ottla.protocol.records.errors import CorruptRecord, RecordFormatError
from ottla.protocol.records.reader import iter_keys_and_values, record_data
from ottla.protocol.schema.wire import ProtocolError

logger = logging.getLogger(__name__)


class ShareStateLoader:
    """See the module. `skipped` counts records that cannot be read, and share partitions with updates but without any snapshot."""

    __slots__ = ("_states", "_unfounded", "name", "skipped")

    def __init__(self, name: str) -> None:
        """`name` is the partition's."""
        self.name = name
        self.skipped = 0
        self._states: LargeTable[str, StoredState] = LargeTable()
        self._unfounded: LargeTable[str, None] = LargeTable()
        """The share partitions with updates, for which no snapshot has been found yet."""

    def feed(self, data: bytes) -> Iterator[None]:
        """Take in whole batches, the next in the log."""
        for at, found in iter_batches(data):
            header = found
            try:
                if not crc_is_valid(data, at):
                    raise CorruptRecord("its checksum is wrong")
                if not header.is_control:
                    batch, position, header = readable(data, at, found)
                    records = iter_keys_and_values(record_data(batch, position, header), header)
                    for key, value in records:
                        self.take(key, value, header.base_offset, header.max_timestamp)
                        yield
            except RecordFormatError as error:
                self._skip(f"the batch at offset {header.base_offset}", error)
            yield

    def states(self, now_ms: int, into: MutableMapping[str, StoredState]) -> Iterator[None]:
        """Put the states that were found into `into`, by the text of their keys."""
        for key, state in self._states.drain():
            into[key] = state
            yield
        for key, _ in self._unfounded.drain():
            self._skip(f"the state of share partition {key}", "there are updates, but no snapshot")
            yield

    def found(self, states: int) -> str:
        """The number of states that were found, for the log."""
        return f"{states} share partitions"

    def take(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int) -> None:
        """Take in a record."""
        if key is None:
            self._skip("a record", "it has no key")
            return
        try:
            found = read_key(key)
            if found is None:
                self._skip("a record", f"its key has version {int.from_bytes(key[:2], 'big')}")
                return
            kind, share_partition = found
            name = str(share_partition)
            if value is None:
                self._states.pop(name, None)
                self._unfounded.pop(name, None)
            elif kind == SNAPSHOT:
                snapshot = read_snapshot(value)
                state = self._states.get(name)
                if state is None:
                    state = self._states[name] = StoredState(share_partition)
                    self._unfounded.pop(name, None)
                state.apply_snapshot(snapshot, offset)
            elif (state := self._states.get(name)) is not None:
                state.apply_update(read_update(value), timestamp)
            else:
                self._unfounded[name] = None
        except ProtocolError as error:
            self._skip(f"a record with key {key!r}", error)

    def _skip(self, what: str, why: object) -> None:
        self.skipped += 1
        report_skipped(logger, self.name, self.skipped, what, why)
