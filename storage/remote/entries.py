"""Defines what is known of a segment in a remote store: RemoteLogSegmentMetadata of KIP-405, and how its state changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


class SegmentState(IntEnum):
    """RemoteLogSegmentState: only FINISHED copies are read; an entry whose deletion is finished is forgotten."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id (16 bytes) and name."""

    topic_id: bytes
    topic: str
    partition: int


class SegmentId(NamedTuple):
    """RemoteLogSegmentId: `uuid` (16 bytes) names one copy of one segment, and never another content."""

    partition: TopicIdPartition
    uuid: bytes


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A copy of a segment, with the offsets `start_offset` to `end_offset` (both included).

    `leader_epochs` maps each epoch that has records in it to its first offset here; the first one's is `start_offset`. Times are
    milliseconds since 1970, `size` counts the bytes of the records. `custom` is what the store answered to the copy.
    """

    id: SegmentId
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    leader_epochs: Mapping[int, int]
    size: int
    state: SegmentState
    custom: bytes | None = None


TO_COPY_AGAIN: Final = -1
"""The broker of an update to DELETE_SEGMENT_STARTED that asks for another copy, because the objects of this one have vanished."""


def is_to_copy_again(entry: SegmentEntry) -> bool:
    """Tells if only the objects of the copy are gone. Its records stay part of the log: some replica has them, and is to copy them again.

    All other entries whose deletion began are those of records that expired or were deleted, or that another copy has.
    """
    return entry.state == SegmentState.DELETE_SEGMENT_STARTED and entry.broker_id == TO_COPY_AGAIN


Accepts = Callable[[SegmentEntry], bool]
"""Tells if a copy is one that is looked for."""


def any_copy(entry: SegmentEntry) -> bool:
    """Accepts every copy."""
    return True


class SegmentUpdate(NamedTuple):
    """RemoteLogSegmentMetadataUpdate: the state that a copy has now."""

    id: SegmentId
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom: bytes | None = None
