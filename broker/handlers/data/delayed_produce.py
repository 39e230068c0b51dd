"""A Produce that is in the log and waits until its records are safe: on all in-sync replicas (acks=all), or on the disk (`flush.messages`).

`DelayedAppend` is one batch of the hot path, in plain fields; `DelayedProduce` whatever else a request may hold. Both are decided alike.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.loop.purgatory import DelayedOperation
from broker.network.request_channel import Completion, Pending
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse
from protocol.produce_fast_path import encode_produce_response
from replication.leader.partition import Partition

ACKS_ALL = -1
FLUSH_TIMEOUT_MS = 60_000
"""How long acks=1 waits for the disk, at least."""


def wait_ms(acks: int, asked_ms: int) -> int:
    """How long to wait. Only acks=all has a timeout of the producer's; it is not for the disk."""
    return asked_ms if acks == ACKS_ALL else max(asked_ms, FLUSH_TIMEOUT_MS)


class DelayedAppend(DelayedOperation):
    """One batch, appended on the hot path: no objects of a response, and an answer made from a template. Completing takes 3 µs."""

    __slots__ = ("_acks", "_correlation_id", "_end_offset", "_error_code", "_partition", "_pending", "_result", "_topic", "_version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        topic: str,
        partition: Partition,
        end_offset: int,
        result: tuple[int, int, int],
        acks: int,
        pending: Pending,
    ) -> None:
        """`end_offset` is behind the batch's last record; `result` is (first offset, log append time, log start offset)."""
        super().__init__()
        self._version = version
        self._correlation_id = correlation_id
        self._topic = topic
        self._partition = partition
        self._end_offset = end_offset
        self._result = result
        self._acks = acks
        self._pending = pending
        self._error_code = 0

    def try_complete(self) -> bool:
        """Complete when the batch is safe, or cannot be any more."""
        partition = self._partition
        # Most looks come from a high watermark that has moved, but not yet past this batch.
        if partition.is_leader and self._acks == ACKS_ALL and partition.log.high_watermark < self._end_offset and not partition.is_cut_off:
            return False
        code = outcome(partition, self._end_offset, self._acks)
        if code is None:
            return False
        self._error_code = code
        return self.force_complete()

    def on_expiration(self) -> None:
        """The timeout of the request passed."""
        self._error_code = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        """Answer."""
        first_offset, log_append_time_ms, log_start_offset = self._result
        code = self._error_code
        self._pending.complete(
            encode_produce_response(
                self._version,
                self._correlation_id,
                self._topic,
                self._partition.topic_partition.partition,
                code,
                -1 if code else first_offset,
                log_append_time_ms,
                log_start_offset,
                0,
            )
        )


class DelayedProduce(DelayedOperation):
    """A Produce that waits until its records are on the disk, if `flush.messages` says so, and with acks=all on all in-sync replicas."""

    __slots__ = ("_acks", "_answer", "_pending", "_waiting")

    def __init__(
        self, waiting: list[tuple[Partition, int, PartitionProduceResponse]], answer: Callable[[], Completion], pending: Pending, acks: int
    ) -> None:
        super().__init__()
        self._acks = acks
        self._waiting = waiting
        self._answer = answer
        self._pending = pending

    def try_complete(self) -> bool:
        """Complete when no partition is left whose records are not safe yet."""
        self._waiting = [entry for entry in self._waiting if not _is_settled(*entry, self._acks)]
        return not self._waiting and self.force_complete()

    def on_expiration(self) -> None:
        """The timeout of the request passed: what is not replicated by now is answered with REQUEST_TIMED_OUT."""
        for _, _, result in self._waiting:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def on_complete(self) -> None:
        """Answer."""
        self._pending.complete(self._answer())


def _is_settled(partition: Partition, end_offset: int, result: PartitionProduceResponse, acks: int) -> bool:
    """Whether one partition of a Produce that waits is decided; `result` then says how."""
    code = outcome(partition, end_offset, acks)
    if code is None:
        return False
    if code:
        result.error_code = code
    return True


def outcome(partition: Partition, end_offset: int, acks: int) -> ErrorCode | None:
    """What became of the records below `end_offset`; None while that is open."""
    if not partition.is_leader:
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.has_failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not partition.is_flushed(end_offset):
        return None
    if acks != ACKS_ALL:
        return ErrorCode.NONE
    if partition.log.high_watermark < end_offset:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if partition.is_cut_off else None
    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if len(partition.maximal_isr) < partition.effective_min_isr else ErrorCode.NONE
