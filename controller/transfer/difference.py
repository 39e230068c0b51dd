"""Compares two stores and plans the writes that give the target the contents of the source. Pure.

The body of `/controller_epoch` is raised by one, as by an election: no controller of the source can be taken for one of
the target. Leader epochs and partition states are copied as they are. Counters are raised, never lowered.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.controller.store.metadata_store import Create, Delete, Multi, SetData, Write
from ottla.controller.transfer.contents import SEQUENTIAL_PARENTS, Contents
from ottla.controller.znodes.layout import (
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    CONTROLLER_EPOCH,
    decode_controller_epoch,
    encode_controller_epoch,
)

MOST_WRITES = 500
MOST_BYTES = 256 * 1024
"""Limits of one Multi: ZooKeeper refuses requests above 1 MiB (jute.maxbuffer)."""

_WRITE_BYTES = 120
"""A generous estimate of what a write takes on the wire beside its path and its data, bytes."""


class Raise(NamedTuple):
    """A counter of the target that is behind the source's."""

    path: str
    now: int
    wanted: int


class Difference(NamedTuple):
    """The writes that the target needs. The cluster id is not part of it: it is written last."""

    creates: list[Create]
    sets: list[SetData]
    deletes: list[Delete]
    raises: list[Raise]

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(self)

    @property
    def writes(self) -> int:
        """The number of writes that it takes."""
        return len(self.creates) + len(self.sets) + len(self.deletes) + sum(each.wanted - each.now for each in self.raises)


def difference(source: Contents, target: Contents) -> Difference:
    """The writes, parents before their children. Raises MalformedZNode for a controller epoch that is no number."""
    creates, sets = [], []
    for path, found in source.nodes.items():
        if path == CLUSTER_ID:
            continue
        data = _raised_epoch(found.data) if path == CONTROLLER_EPOCH else found.data
        present = target.nodes.get(path)
        if present is None:
            creates.append(Create(path, data))
        elif present.data != data:
            sets.append(SetData(path, data, present.version))
    surplus = [path for path in target.nodes if path not in source.nodes and path != CLUSTER_ID]
    deletes = [Delete(path, target.nodes[path].version) for path in reversed(surplus)]
    raises = [
        Raise(path, target.next_number(path), source.next_number(path))
        for path in (BROKER_SEQUENCE_ID, *SEQUENTIAL_PARENTS)
        if target.next_number(path) < source.next_number(path)
    ]
    return Difference(creates, sets, deletes, raises)


def _raised_epoch(data: bytes | None) -> bytes:
    return encode_controller_epoch(decode_controller_epoch(data) + 1)


def transactions(wanted: Difference, source: Contents) -> Iterator[Multi]:
    """The writes of a difference in their order, cut into transactions that a ZooKeeper accepts."""
    batch: list[Write] = []
    size = 0
    for write in _writes(wanted, source):
        bytes_of_write = _size(write)
        if batch and (len(batch) >= MOST_WRITES or size + bytes_of_write > MOST_BYTES) and not _follows(batch[-1], write):
            yield Multi(tuple(batch))
            batch, size = [], 0
        batch.append(write)
        size += bytes_of_write
    if batch:
        yield Multi(tuple(batch))


def _writes(wanted: Difference, source: Contents) -> Iterator[Write]:
    yield from wanted.creates
    yield from wanted.sets
    yield from wanted.deletes
    for path, now, needed in wanted.raises:
        for _ in range(now, needed):
            if path == BROKER_SEQUENCE_ID:
                yield SetData(path, source.nodes[path].data)
            else:
                # A child that is created and deleted counts like one that exists.
                yield Create(f"{path}/counted")
                yield Delete(f"{path}/counted")


def _follows(last: Write, write: Write) -> bool:
    """Whether both belong into one transaction: nothing may remain of a child that only counts."""
    return isinstance(write, Delete) and isinstance(last, Create) and last.path == write.path


def _size(write: Write) -> int:
    data = write.data if isinstance(write, Create | SetData) else None
    return _WRITE_BYTES + 4 * len(write.path) + len(data or b"")
