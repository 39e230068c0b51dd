"""Names the files of a store on a directory, as Apache Kafka's LocalTieredStorage does.

`<topic>-<partition>-<topic id>/<start offset, 20 digits>-<segment uuid>` with a suffix for each part of a segment. Ids are base64url.
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.uuid import to_text
from ottla.storage.disk.file_names import file_name
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.ports import IndexKind

ROOT: Final = "kafka-tiered-storage"
"""The folder in `rsm.config.dir` that holds everything."""

LOG_SUFFIX: Final = ".log"
SUFFIX_OF: Final = {
    IndexKind.OFFSET: ".index",
    IndexKind.TIMESTAMP: ".timeindex",
    IndexKind.TRANSACTION: ".txnindex",
    IndexKind.PRODUCER_SNAPSHOT: ".snapshot",
    IndexKind.LEADER_EPOCH: ".leader_epoch_checkpoint",
}


def partition_directory(partition: TopicIdPartition) -> str:
    """Names the folder of a partition: `orders-3-<topic id>`."""
    return f"{partition.topic}-{partition.partition}-{to_text(partition.topic_id)}"


def segment_name(entry: SegmentEntry) -> str:
    """Names all files of a copy, without the folder and the suffix."""
    return file_name(entry.start_offset, f"-{to_text(entry.id.uuid)}")
