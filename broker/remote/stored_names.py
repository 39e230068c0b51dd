"""Reads the names of objects in a remote store, in either layout: of which copy they are a part."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ottla.protocol.uuid import from_text
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition

_TOPIC = r"(?P<topic>[a-zA-Z0-9._-]+)"
_ID = r"[A-Za-z0-9_-]{21}[AQgw]"
"""An id of 16 bytes as brokers write it. Texts with another last character are the same ids."""
_TOPIC_ID = rf"(?P<id>{_ID})"
_PARTITION = r"(?P<partition>0|[1-9][0-9]*)"
_COPY = rf"(?P<start>[0-9]{{20}})-(?P<uuid>{_ID})"
_OBJECT: Final = re.compile(rf"{_TOPIC}-{_TOPIC_ID}/{_PARTITION}/{_COPY}\.(?P<part>[a-z-]+)")
_FILE: Final = re.compile(rf"{_TOPIC}-{_PARTITION}-{_TOPIC_ID}/{_COPY}\.(?P<part>[a-z_]+)")


class StoredName(NamedTuple):
    """The parts of the name of an object: its topic and partition, and the part of a copy."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    uuid: str
    part: str

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition whose segment was copied."""
        return TopicIdPartition(from_text(self.topic_id), self.topic, self.partition)

    @property
    def copy(self) -> StoredName:
        """The same for all objects of the copy."""
        return self._replace(part="")

    def entry(self) -> SegmentEntry:
        """An entry that names all objects of the copy, and tells no more than the name."""
        return SegmentEntry(
            SegmentId(self.topic_id_partition, from_text(self.uuid)),
            self.start_offset,
            self.start_offset,
            broker_id=-1,
            max_timestamp_ms=-1,
            event_timestamp_ms=-1,
            leader_epochs={},
            size=0,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )


def stored_name(name: str) -> StoredName | None:
    """Reads the name of an object; None for one that is of no copy. A name that only resembles that of a copy is none."""
    found = _OBJECT.fullmatch(name) or _FILE.fullmatch(name)
    if found is None:
        return None
    return StoredName(found["topic"], found["id"], int(found["partition"]), int(found["start"]), found["uuid"], found["part"])
