"""Declares the families of the metadata of remote segments. Apache Kafka 3.9 has none for its TopicBasedRemoteLogMetadataManager.

They are empty without tiered storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.metrics.families import Family, Kind
from ottla.broker.metrics.remote.families import of_remote

if TYPE_CHECKING:
    from ottla.broker.remote.metadata.topic_metadata import TopicMetadata


def _family(name: str, kind: Kind, doc: str, value: Callable[[TopicMetadata], float]) -> Family:
    return of_remote(f"ottla_remote_log_metadata_{name}", "", doc, lambda remote: value(remote.metadata), kind)


REMOTE_METADATA_FAMILIES: tuple[Family, ...] = (
    _family(
        "unread_partitions",
        Kind.GAUGE,
        "Partitions with a replica here whose entries in `__remote_log_metadata` have not all been read. Nothing of theirs is copied.",
        lambda metadata: metadata.reader.unread_partitions,
    ),
    _family(
        "troubled_partitions",
        Kind.GAUGE,
        "Partitions of `__remote_log_metadata` that cannot be read or written now. The broker's log has the reasons.",
        lambda metadata: len(metadata.reader.refusals) + len(metadata.writer.refusals),
    ),
    _family(
        "records_total", Kind.COUNTER, "Records of `__remote_log_metadata` that were applied.", lambda metadata: metadata.reader.applied
    ),
    _family(
        "skipped_records_total",
        Kind.COUNTER,
        "Records of `__remote_log_metadata` that were left out, because they cannot be read or do not fit.",
        lambda metadata: metadata.reader.skipped,
    ),
    _family(
        "failed_writes_total",
        Kind.COUNTER,
        "Records that this broker could not write to `__remote_log_metadata`, or did not read in time.",
        lambda metadata: metadata.failed_writes,
    ),
)
