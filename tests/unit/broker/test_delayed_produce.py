"""What waits until its records are safe: it is answered once, and its request is released then."""

import gc
import weakref
from collections.abc import Sequence

import pytest

from ottla.coordination.appends.delayed_produce import ACKS_ALL, AppendedPartition, DelayedProduce
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from tests.support.batches import a_batch
from tests.support.logs import follow
from tests.support.replicas import Replicas, state
from tests.support.timers import FakeTime

TIMEOUT_MS = 1000


class Request:
    """Is answered with error codes."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes

    def answer(self, decided: Sequence[AppendedPartition]) -> None:
        self.codes += [each.error_code for each in decided]


@pytest.mark.parametrize("how", ["replicated", "timed out", "cancelled"])
def test_a_request_that_is_decided_is_freed_although_its_time_limit_is_not_over(how: str) -> None:
    replicas, time, codes = Replicas(), FakeTime(), list[int]()
    replicas.say(state(isr=[0, 1], replicas=[0, 1]))
    replicas.append(1)
    request = Request(codes)
    gone = weakref.ref(request)
    delayed = DelayedProduce([AppendedPartition(replicas.partition, 0, 1, 0)], ACKS_ALL, request.answer)
    delayed.begin(Purgatory("Produce", TimingWheel(time.clock, time.call_later)), TIMEOUT_MS)
    gc.disable()
    try:
        del request
        assert gone() is not None
        if how == "replicated":
            replicas.follow(1, 1)
        elif how == "timed out":
            time.advance(5 * TIMEOUT_MS)
        else:
            delayed.cancel()
        assert delayed.completed
        assert gone() is None
    finally:
        gc.enable()
    assert codes == {"replicated": [ErrorCode.NONE], "timed out": [ErrorCode.REQUEST_TIMED_OUT], "cancelled": []}[how]


@pytest.mark.parametrize("is_cut", [True, False])
def test_records_that_another_leader_has_cut_before_the_request_began_to_wait_are_not_confirmed(is_cut: bool) -> None:
    replicas, time, codes = Replicas(), FakeTime(), list[int]()
    both = {"isr": [0, 1], "replicas": [0, 1]}
    replicas.say(state(**both))
    replicas.append(2)
    appended = AppendedPartition(replicas.partition, 0, 2, 0)
    if is_cut:
        replicas.say(state(1, 1, partition_epoch=1, **both))
        cut: list[Exception | None] = []
        replicas.partition.log.truncations.truncate_in_thread(0, cut.append)
        replicas.disks.settle()
        assert cut == [None]
        follow(replicas.partition.log, a_batch(3, leader_epoch=1), 1)
    replicas.say(state(0, 2, partition_epoch=2, **both))
    replicas.follow(1, replicas.partition.log.log_end_offset)
    delayed = DelayedProduce([appended], ACKS_ALL, Request(codes).answer)
    delayed.begin(Purgatory("Produce", TimingWheel(time.clock, time.call_later)), TIMEOUT_MS)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER if is_cut else ErrorCode.NONE]
