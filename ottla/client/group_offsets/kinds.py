"""Chooses the requests for the offsets of a group by its type: consumers commit offsets, share groups have start offsets."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.client.cluster import Cluster
from ottla.client.errors import Refused
from ottla.client.group_admin import SHARE
from ottla.client.group_offsets.committed import Committed, commit_offsets, committed_offsets, delete_offsets
from ottla.client.group_offsets.starts import Start, delete_starts, move_starts, share_starts
from ottla.protocol.topic_partition import TopicPartition

Position: TypeAlias = Committed | Start


class Read(Protocol):
    """Reads the offsets of a group, for these partitions or for all."""

    def __call__(
        self, cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> Mapping[TopicPartition, Position]:
        """See the class. Raises Refused."""


class OffsetRequests(NamedTuple):
    """Has the requests that read, move and delete the offsets of a group."""

    read: Read
    move: Callable[[Cluster, str, Mapping[TopicPartition, int]], None]
    delete: Callable[[Cluster, str, Iterable[TopicPartition]], dict[TopicPartition, Refused | None]]
    fields: tuple[str, ...]
    """The fields of an offset."""
    may_stay: bool
    """Whether a group that is set to its own offsets stays where it is."""


_OF_CONSUMERS: Final = OffsetRequests(committed_offsets, commit_offsets, delete_offsets, Committed._fields, may_stay=True)
_OF_SHARE_GROUPS: Final = OffsetRequests(share_starts, move_starts, delete_starts, Start._fields, may_stay=False)


def requests_of(group_type: str) -> OffsetRequests:
    """The requests for groups of a type."""
    return _OF_SHARE_GROUPS if group_type == SHARE else _OF_CONSUMERS


def known(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """The offsets of the partitions that have one."""
    return {where: each.offset for where, each in positions.items() if each.offset is not None}
