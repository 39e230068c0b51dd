"""Prepares the records of a Fetch for a client that knows only message format 0 or 1.

`DelayedFetch` calls it before the answer is written. Threads convert the first batch of each partition, one partition after the other;
`FileSender` has the rest converted while the client reads. Apache Kafka fails the whole request when a batch cannot be read; here that
partition gets the error.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from broker.fetching.fetch_session import SessionPartition
from broker.handlers.data.fetch_reading import Fetch
from protocol.errors import ErrorCode
from protocol.records.errors import CorruptRecord, RecordFormatError
from storage.segment.converted_region import ConvertedRegion, NotConvertible

logger = logging.getLogger(__name__)


async def convert_first_batches(fetch: Fetch) -> None:
    """Replace the regions of the fetch by converted ones."""
    services = fetch.services
    loop = asyncio.get_running_loop()
    magic = fetch.old_magic()
    stats = services.data.replica_manager.topic_stats
    converted: dict[SessionPartition, ConvertedRegion] = {}
    failed: dict[SessionPartition, int] = {}
    for asked in fetch.unconverted():
        assert asked.region is not None  # otherwise there is nothing to convert
        region = ConvertedRegion(asked.region, magic, asked.offset, services.workers, partial(stats.on_fetch_conversion, asked.name or ""))
        try:
            await loop.run_in_executor(services.workers, region.begin)
        except NotConvertible:
            failed[asked] = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except RecordFormatError as error:
            logger.warning(
                "%s-%d cannot be converted for %s from offset %d on: %s",
                asked.name,
                asked.index,
                fetch.connection.client.connection_id,
                asked.offset,
                error,
            )
            failed[asked] = ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptRecord) else ErrorCode.UNKNOWN_SERVER_ERROR
        except OSError as error:
            logger.error("%s-%d cannot be read from offset %d on: %s", asked.name, asked.index, asked.offset, error)
            failed[asked] = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            region.report()
            converted[asked] = region
    fetch.on_converted(converted, failed)
