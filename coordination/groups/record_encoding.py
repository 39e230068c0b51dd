"""Encodes the records of committed offsets in the form of a batch's body."""

from __future__ import annotations

from struct import Struct

from ottla.coordination.groups.commits import Commit
from ottla.coordination.groups.offset_records import key_start
from ottla.coordination.partitions import topic_log

_pack_index = Struct(">i").pack


def encode_commits(group_id: str, commit: Commit) -> tuple[bytes, int]:
    """The records that commit these offsets, and their number."""
    parts: list[bytes] = []
    delta = 0
    for topic in commit.topics:
        start: bytes = key_start(group_id, topic.name)
        values = topic.values
        for index, value in values.items():
            if value is not None:
                topic_log.add_pair(delta, start + _pack_index(index), value, parts)
                delta += 1
    return b"".join(parts), delta
