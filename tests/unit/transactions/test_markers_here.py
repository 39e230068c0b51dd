"""Writes the markers of this broker's own partitions without a request: after the answers, in turns, and again when they were refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.transactions.markers import Marker, OnMarked
from ottla.coordination.transactions.metadata import VERSION_0
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.pauses import every_pause_waits
from tests.support.transaction_bench import TransactionBench, run

E = ErrorCode


class Here:
    """The own partitions of broker 0. `codes`: the first error codes of a partition; later ones are NONE."""

    def __init__(self) -> None:
        self.written: list[tuple[Marker, TopicPartition]] = []
        self.codes: dict[int, list[ErrorCode]] = {}
        self.fails = 0
        self.held: list[Callable[[], None]] | None = None
        """What is told later, when the test holds answers back."""

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition], sender: str, then: OnMarked) -> None:
        assert sender == "this broker"
        if self.fails:
            self.fails -= 1
            raise RuntimeError("planted")
        codes: dict[tuple[str, int], int] = {}
        for partition in partitions:
            await pause()
            self.written.append((marker, partition))
            planned = self.codes.get(partition.partition)
            codes[partition] = planned.pop(0) if planned else E.NONE
        if self.held is None:
            then(codes)
        else:
            self.held.append(lambda: then(codes))


async def begin(bench: TransactionBench, *indexes: int) -> Here:
    """Broker 0 coordinates, leads all partitions, and has an open transaction in some."""
    here = Here()
    bench.transactions.markers.here = 0, here.write
    await bench.coordinate()
    bench.init()
    assert bench.add(*indexes) == [E.NONE]
    return here


async def ends(bench: TransactionBench) -> None:
    def has_ended() -> bool:
        bench.pass_time(50)
        return bench.state() == "CompleteCommit"

    await bench.until(has_ended)


def test_own_partitions_get_their_markers_without_a_request() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0, 2)
        bench.end(is_commit=False)
        await bench.until(lambda: bench.state() == "CompleteAbort")
        marker = Marker(1_000, 0, False, 0, 0)
        assert sorted(here.written) == [(marker, TopicPartition("t", 0)), (marker, TopicPartition("t", 2))]
        assert bench.leaders.asked == []

    run(scenario)


def test_answers_leave_before_markers_are_written() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        seen: list[int] = []
        assert bench.end() == [E.NONE]
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(here.written)))  # as a processor sends the answers of this turn
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert seen == [0]

    run(scenario)


def test_other_leaders_are_asked_as_ever() -> None:
    async def scenario(bench: TransactionBench) -> None:
        bench.move({1: 1})
        here = await begin(bench, 0, 1)
        bench.end()
        await ends(bench)
        assert [partition for _, partition in here.written] == [TopicPartition("t", 0)]
        assert bench.leaders.partitions == [(1, "t", 1)]

    run(scenario)


@pytest.mark.parametrize("code", [E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT])
def test_a_marker_that_was_refused_here_is_written_again_and_the_others_are_not(code: ErrorCode) -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0, 1)
        here.codes[1] = [code, code]
        bench.end()
        await ends(bench)
        assert sorted(partition.partition for _, partition in here.written) == [0, 1, 1, 1]

    run(scenario)


def test_a_fault_while_markers_are_written_here_loses_none(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.fails = 1
        bench.end()
        await ends(bench)
        assert [partition.partition for _, partition in here.written] == [0]

    run(scenario)
    assert "its markers cannot be written here; they are written again" in caplog.text


def test_a_marker_that_waits_for_replicas_delays_no_other_transaction() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = held = []
        bench.end()
        await bench.until(lambda: len(held) == 1)
        here.held = None
        bench.init("other")
        bench.add(1, name="other")
        bench.end(name="other")
        await bench.until(lambda: bench.state("other") == "CompleteCommit")
        assert bench.state() == "PrepareCommit"
        held[0]()
        assert bench.state() == "CompleteCommit"

    run(scenario)


def test_a_lost_coordinator_ends_nothing_that_it_is_told_later() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = held = []
        bench.end()
        await bench.until(lambda: len(held) == 1)
        txn = bench.txn()
        await bench.lead(topic="__transaction_state", epoch=1, leader=1)
        held[0]()
        assert txn.state.label == "PrepareCommit"

    run(scenario)


def test_markers_of_many_partitions_are_written_in_turns() -> None:
    async def scenario(bench: TransactionBench) -> None:
        every_pause_waits()
        count = 50
        bench.announce({"t": count})
        here = await begin(bench, *range(count))
        bench.end()
        most = last = 0
        while bench.state() != "CompleteCommit":
            await asyncio.sleep(0)
            most = max(most, len(here.written) - last)
            last = len(here.written)
        assert last == count
        assert most <= 2

    run(scenario)


# The next transaction


def test_what_begins_the_next_transaction_waits_for_the_markers() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = held = []
        bench.end()
        await bench.until(lambda: len(held) == 1)
        added = bench.add(1)
        await bench.take_turns()
        assert added == []
        held[0]()
        assert (added, bench.state()) == ([], "CompleteCommit")  # nothing is appended while the waiters of a log are told
        await bench.take_turns()
        assert (added, bench.state()) == ([E.NONE], "Ongoing")

    run(scenario)


def test_it_is_refused_when_the_markers_take_long() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = []
        bench.end()
        added = bench.add(1, topic=GROUP_METADATA_TOPIC)
        bench.pass_time(200)
        await bench.take_turns()
        assert added == [E.CONCURRENT_TRANSACTIONS]
        assert bench.state() == "PrepareCommit"

    run(scenario)


def test_a_fenced_producer_does_not_wait() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = []
        bench.end()
        bench.txn().producer_epoch += 1  # as a timeout does
        answers: list[ErrorCode] = []
        fenced = bench.producer()._replace(producer_epoch=0)
        bench.transactions.add_partitions("id", fenced, {"t": frozenset({1})}, VERSION_0, answers.append)
        assert answers == [E.PRODUCER_FENCED]

    run(scenario)


def test_it_learns_of_the_next_coordinator_at_once() -> None:
    async def scenario(bench: TransactionBench) -> None:
        here = await begin(bench, 0)
        here.held = []
        bench.end()
        added = bench.add(1)
        await bench.lead(topic="__transaction_state", epoch=1, leader=1)
        await bench.take_turns()
        assert added == [E.NOT_COORDINATOR]

    run(scenario)
