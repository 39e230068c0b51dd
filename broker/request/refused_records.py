"""Logs refused records whose answers contain an error code but no reason.

`Produce` calls it for versions 0 to 2, and for malformed records in all versions. A Fetch calls it for stored records that cannot be
converted for its version. A host that repeats such requests gets a few lines a minute.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.network.offenders import Offenders
from ottla.storage.errors import (
    CorruptRecord,
    InvalidRecord,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from ottla.storage.validation.record_errors import UnreadableRecords

if TYPE_CHECKING:
    from ottla.broker.security.client import Client

logger = logging.getLogger(__name__)

MALFORMED: Final = (CorruptRecord, InvalidRecord, UnreadableRecords)
"""Refusals of records that no client library sends."""
_OF_RECORDS: Final = (
    CorruptRecord,
    InvalidRecord,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnreadableRecords,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)


class RefusedRecords:
    """The log lines of one broker."""

    __slots__ = ("_fetchers", "_offenders")

    def __init__(self) -> None:
        self._offenders = Offenders(logger.warning, "produced records were refused")
        self._fetchers = Offenders(logger.warning, "fetches of records that cannot be converted")

    def report(self, client: Client, topic: str, index: int, error: StorageError, now_s: float) -> None:
        """Log one line if `error` is about the records, unless the client's host had many lately. `now_s` is monotonic."""
        if isinstance(error, _OF_RECORDS):
            line = f"{client.connection_id} on listener {client.listener_name}: records for {topic}-{index} are refused: {error}"
            self._offenders.report(client.client_host, f"{line} (client id {client.client_id})", now_s)

    def report_unconverted(self, client: Client, partition: str, offset: int, error: Exception, now_s: float) -> None:
        """Log one line about stored records that this client cannot get, unless its host had many lately. `now_s` is monotonic."""
        line = f"{partition}: the records from offset {offset} on cannot be converted for {client.connection_id}: {error}"
        self._fetchers.report(client.client_host, f"{line}; `ottla dump-log --verify` names the batch and the way around it", now_s)
