"""Prepares the records of a Fetch for a client that knows only message format 0 or 1.

`DelayedFetch` calls it before the answer is written. A thread converts the first batch of each partition, and more up to a limit. A
partition that it converts completely is sent from memory. `FileSender` lets a thread convert the rest while the client reads. Apache Kafka
fails the whole request when a batch cannot be read; here that partition gets the error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from ottla.broker.fetching.fetch_session import SessionPartition
from ottla.broker.handlers.data.fetch_reading import Fetch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.protocol.records.errors import CorruptRecord, DecompressionTooLarge, InvalidRecord, RecordFormatError
from ottla.storage.disk.yielding import PacedYield
from ottla.storage.segment.converted_region import PIECE_BYTES, ConvertedRegion, NotConvertible

logger = logging.getLogger(__name__)


async def convert_first_batches(fetch: Fetch) -> None:
    """Replace the regions of the fetch by converted ones."""
    services = fetch.services
    magic = fetch.old_magic()
    stats = services.data.replica_manager.topic_stats
    regions: dict[SessionPartition, ConvertedRegion] = {}
    for asked in fetch.unconverted or ():
        assert asked.region is not None  # otherwise there is nothing to convert
        on_converted = partial(stats.on_fetch_conversion, asked.name or "")
        regions[asked] = ConvertedRegion(asked.region, magic, asked.offset, services.expansion.begin, on_converted)
    errors: list[Exception | None] = []
    await services.expansion.run(partial(_begin, list(regions.values()), errors))
    converted: dict[SessionPartition, ConvertedRegion | bytearray] = {}
    failed: dict[SessionPartition, int] = {}
    for (asked, region), error in zip(regions.items(), errors, strict=True):
        if error is not None:
            failed[asked] = _code(error, asked, fetch)
            continue
        region.report()
        converted[asked] = region.take_begun() if region.is_complete else region
    fetch.on_converted(converted, failed)


def _begin(regions: Sequence[ConvertedRegion], errors: list[Exception | None], max_bytes: int) -> None:
    """Convert the first batches of the regions, and together about one piece more. Blocks. Adds an error for each, or None, to `errors`.

    The regions that have their entry are done. Raises DecompressionTooLarge if the next one needs a larger `max_bytes`.
    """
    between = PacedYield()
    taken = 0
    for region in regions[len(errors) :]:
        try:
            taken += region.begin(between, max_bytes, takes_piece=taken < PIECE_BYTES)
            errors.append(None)
        except (NotConvertible, RecordFormatError, OSError) as error:
            if isinstance(error, DecompressionTooLarge) and max_bytes < MAX_DECOMPRESSED_BYTES:
                raise
            errors.append(error.with_traceback(None))  # its frames hold the records


def _code(error: Exception, asked: SessionPartition, fetch: Fetch) -> int:
    """The error code of a partition, of which the log of the broker gets the reason."""
    if isinstance(error, NotConvertible):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if isinstance(error, OSError):
        logger.error("%s-%d cannot be read from offset %d on: %s", asked.name, asked.index, asked.offset, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    services = fetch.services
    services.data.refused_records.report_unconverted(
        fetch.connection.client, f"{asked.name}-{asked.index}", asked.offset, error, services.clock.monotonic()
    )
    if isinstance(error, InvalidRecord):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptRecord) else ErrorCode.UNKNOWN_SERVER_ERROR
