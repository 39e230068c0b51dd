"""Stands in for the offsets of groups, for tests of commands without a coordinator."""

from collections.abc import Callable, Mapping

from ottla.client.group_offsets.kinds import OffsetRequests, Position, requests_of
from ottla.protocol.topic_partition import TopicPartition


def offsets_at(positions: Mapping[TopicPartition, Position], group: str | None = None) -> Callable[[str], OffsetRequests]:
    """A `requests_of` that reads these offsets for each group, or for this one alone."""
    return lambda group_type: requests_of(group_type)._replace(read=lambda _, name, *__: positions if group in (None, name) else {})
