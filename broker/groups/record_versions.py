"""Chooses the versions of records in `__consumer_offsets` by inter.broker.protocol.version, as Apache Kafka 3.9 does.

A broker of an older release in the cluster may become the coordinator of a group. A single value of an unknown version makes its load fail,
and then all groups and offsets of the partition are missing.
"""

from typing import Final

from ottla.config.schema.metadata_version import is_at_least

_GROUP_VALUES: Final = ((3, "2.3-IV0"), (2, "2.1-IV0"), (1, "0.10.1-IV0"), (0, "0.8.0"))
_OFFSET_VALUES: Final = ((3, "2.1-IV1"), (2, "2.1-IV0"), (1, "0.8.0"))


def group_value_version(inter_broker_protocol_version: str) -> int:
    """The version in which groups are written."""
    return _chosen(_GROUP_VALUES, inter_broker_protocol_version)


def offset_value_version(inter_broker_protocol_version: str) -> int:
    """The version in which committed offsets are written, unless a client gave a retention time."""
    return _chosen(_OFFSET_VALUES, inter_broker_protocol_version)


def _chosen(table: tuple[tuple[int, str], ...], inter_broker_protocol_version: str) -> int:
    return next(version for version, since in table if is_at_least(inter_broker_protocol_version, since))
