"""Delays the answer to a Produce until its records are on all in-sync replicas (acks=all), or flushed (`flush.messages`).

An `AppendedPartition` waits in the list of its own partition, and checks only that partition. So a change of one partition costs the same
for a request of many partitions. The request (`DelayedProduce`) counts the partitions that are left, and has the timeout. The markers of a
transaction (`handlers.transactions.marker_writer`) and the records of a coordinator (`coordination.partitions.topic_log`) wait in the
same way. DeleteRecords counts its partitions like that, too (`DelayedPartitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, final

from ottla.coordination.error_map import error_code
from ottla.protocol.errors import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import DelayedOperation, Purgatory

ACKS_ALL: Final = -1
FLUSH_TIMEOUT_MS: Final = 60_000
"""Minimum time that acks=1 waits for the disk, ms; the producer's own timeout is meant for replicas."""
NONE: Final = int(ErrorCode.NONE)
REQUEST_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class WaitingPartition(Protocol):
    """One partition of a request. A waiter of the partition, which calls `on_decided` of the request when it completes."""

    @property
    def partition(self) -> Partition:
        """The partition for which it waits."""

    @property
    def completed(self) -> bool:
        """Whether its outcome is known."""

    def try_complete(self) -> bool:
        """Complete if the outcome is known by now. Returns whether it is."""


class DelayedPartitions(DelayedOperation):
    """A request that is complete when the outcomes of all its partitions are known.

    Each partition checks only itself, so a change of one costs the same among many.
    """

    __slots__ = ("_left",)

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._left = partitions

    def let_wait(self, each: WaitingPartition, purgatory: Purgatory) -> None:
        """Let one of the partitions wait, if it is undecided. Call this for all of them, then `wait`."""
        if not each.try_complete():
            waiters = each.partition.waiters
            waiters.add(each)
            purgatory.will_purge(waiters)

    def wait(self, purgatory: Purgatory, timeout_ms: int) -> None:
        """Wait for the undecided partitions, at most `timeout_ms`."""
        if self.completed:
            return
        if timeout_ms <= 0:
            self.expire()
        else:
            purgatory.wait(self, self._left, timeout_ms)

    def on_decided(self) -> None:
        """Called when the outcome of one more partition is known."""
        self._left -= 1
        if not self._left:
            self.force_complete()

    def try_complete(self) -> bool:
        """Its partitions complete it."""
        return self.completed


@final
class AppendedPartition:
    """One partition of a Produce whose records are in its log, below `end_offset`. A waiter of the partition."""

    __slots__ = ("_leader_epoch", "base_offset", "completed", "end_offset", "error_code", "partition", "place", "produce")

    def __init__(self, partition: Partition, base_offset: int, end_offset: int, place: int) -> None:
        """`place` is the place of the partition in the answer. Made in the turn of the loop that appended."""
        self.partition = partition
        self._leader_epoch = partition.leader_epoch
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.place = place
        self.error_code = NONE
        self.completed = False
        self.produce: DelayedProduce | None = None

    def try_complete(self) -> bool:
        """Complete when the records are safe, or can no longer become safe."""
        produce = self.produce
        if self.completed or produce is None:
            return self.completed
        partition = self.partition
        try:
            if not partition.is_acknowledged(self.end_offset, produce.acks):
                return False
            if partition.leader_epoch != self._leader_epoch:
                partition.check_kept(self._leader_epoch, self.end_offset)
        except ReplicationError as error:
            self.error_code = error_code(error)
        self.completed = True
        produce.on_decided()
        return True


OnDecided: TypeAlias = Callable[[Sequence[AppendedPartition]], None]


@final
class DelayedProduce(DelayedPartitions):
    """A Produce that waits for some of its partitions."""

    __slots__ = ("_then", "_waiting", "acks")

    def __init__(self, waiting: Sequence[AppendedPartition], acks: int, then: OnDecided) -> None:
        """`then` is called when the results of all partitions are known."""
        super().__init__(len(waiting))
        self.acks = acks
        self._waiting = waiting
        self._then = then

    def begin(self, purgatory: Purgatory, asked_ms: int) -> None:
        """Answer now if all partitions are decided; otherwise let the others wait. `asked_ms` is the producer's timeout."""
        for each in self._waiting:
            each.produce = self
            self.let_wait(each, purgatory)
        # The producer's timeout is for acks=all; it does not bound a wait for the disk.
        self.wait(purgatory, asked_ms if self.acks == ACKS_ALL else max(asked_ms, FLUSH_TIMEOUT_MS))

    def on_expiration(self) -> None:
        """Answer REQUEST_TIMED_OUT for the partitions that are still undecided."""
        for each in self._waiting:
            if not each.completed:
                each.error_code = REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        """Answer."""
        waiting, then = self._release()
        then(waiting)

    def cancel(self) -> None:
        self._release()
        self._finish()

    def _release(self) -> tuple[Sequence[AppendedPartition], OnDecided]:
        """End the waiting, and release the request: a completed operation may stay in the queue of its time limit."""
        waiting, then = self._waiting, self._then
        self._waiting, self._then = (), _ignore
        for each in waiting:
            each.completed = True
            each.produce = None
        return waiting, then


def _ignore(_: Sequence[AppendedPartition]) -> None:
    pass
