"""Sends markers to leaders that are gone, move, refuse or answer late; every partition has its marker at last."""

from __future__ import annotations

import logging
from typing import NoReturn

import pytest

from ottla.controller.errors import StoreUnavailable
from ottla.coordination.transactions.markers import MARKER_WEIGHT, PARTITIONS_PER_REQUEST, PUT_OFF_PER_TURN, RETRIABLE, RETRY_BACKOFF_MS
from ottla.protocol.errors import ErrorCode
from tests.support.transaction_bench import TransactionBench, run

E = ErrorCode


async def commit(bench: TransactionBench, *indexes: int, topic: str = "t", name: str = "id") -> None:
    bench.init(name)
    assert bench.add(*indexes, topic=topic, name=name) == [E.NONE]
    assert bench.end(name=name) == [E.NONE]


async def ends(bench: TransactionBench, name: str = "id", state: str = "CompleteCommit") -> None:
    """Time passes until the transaction has ended."""

    def has_ended() -> bool:
        bench.pass_time(50)
        return bench.state(name) == state

    await bench.until(has_ended)


@pytest.mark.parametrize("code", [*sorted(RETRIABLE), E.UNKNOWN_SERVER_ERROR])
def test_a_marker_that_was_refused_for_now_is_sent_again_and_the_others_are_not(code: ErrorCode) -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 1] = [code, code]
        await commit(bench, 0, 1)
        await ends(bench)
        assert bench.leaders.partitions == [(0, "t", 0), (0, "t", 1), (0, "t", 1), (0, "t", 1)]

    run(scenario)


def test_a_marker_follows_a_leader_that_moved() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 1] = [E.NOT_LEADER_OR_FOLLOWER]
        bench.leaders.answering.clear()
        await commit(bench, 1)
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        bench.move({1: 1})
        bench.leaders.answering.set()
        await ends(bench)
        assert bench.leaders.partitions == [(0, "t", 1), (1, "t", 1)]

    run(scenario)


def test_a_marker_for_a_broker_that_is_gone_goes_to_the_next_leader() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.move({1: 1})
        bench.leaders.unreachable.add(1)
        await commit(bench, 0, 1)
        await bench.until(lambda: len(bench.leaders.asked) >= 2)
        assert bench.state() == "PrepareCommit"
        bench.move({1: 0})
        await ends(bench)
        assert set(bench.leaders.partitions) == {(0, "t", 0), (1, "t", 1), (0, "t", 1)}
        assert bench.leaders.partitions[-1] == (0, "t", 1)

    run(scenario)


def test_a_partition_without_a_leader_gets_its_marker_when_it_has_one() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0, 1)
        bench.move({1: -1})
        bench.end()
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        bench.pass_time(1_000)
        assert (bench.state(), bench.transactions.markers.unknown_destination_queue_size) == ("PrepareCommit", 1)
        bench.move({1: 1})
        await ends(bench)
        assert bench.leaders.partitions == [(0, "t", 0), (1, "t", 1)]
        assert bench.transactions.markers.unknown_destination_queue_size == 0

    run(scenario)


def test_of_many_transactions_without_a_leader_some_are_looked_at_in_each_turn() -> None:
    names = [f"id {number}" for number in range(2 * PUT_OFF_PER_TURN)]

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        for name in names:
            bench.init(name)
            bench.add(1, name=name)
        bench.move({1: -1})
        for name in names:
            assert bench.end(name=name) == [E.NONE]
        markers = bench.transactions.markers
        await bench.until(lambda: markers.unknown_destination_queue_size == len(names))
        bench.move({1: 1})
        bench.pass_time(RETRY_BACKOFF_MS + 1)
        assert markers.unknown_destination_queue_size == len(names) - PUT_OFF_PER_TURN
        for name in names:
            await ends(bench, name)

    run(scenario)


def test_a_deleted_topic_gets_no_marker_and_one_that_is_only_unknown_here_does() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        bench.add(0, topic="new")
        bench.add(0, topic="gone")
        bench.partitions_in_store["new"] = 1
        bench.end()
        await bench.until(lambda: len(bench.leaders.asked) == 1)

        def only_new_is_left() -> bool:
            bench.pass_time(50)
            return bench.txn().partitions == {"new": frozenset({0})}

        await bench.until(only_new_is_left)
        bench.move({0: 1}, topic="new")
        await ends(bench)
        assert bench.leaders.partitions == [(0, "t", 0), (1, "new", 0)]

    run(scenario)


class NoAnswers(dict[str, int]):
    """A metadata store out of reach, in place of the numbers of partitions in it."""

    asked = 0

    def get(self, key: str, default: object = None) -> NoReturn:
        self.asked += 1
        raise StoreUnavailable("zk:2181", "no answer")


def test_a_metadata_store_that_does_not_answer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0, topic="gone")
        answering, silent = bench.partitions_in_store, NoAnswers()
        bench.partitions_in_store = silent
        bench.end()

        def was_asked_often() -> bool:
            bench.pass_time(RETRY_BACKOFF_MS)
            return silent.asked >= 3

        await bench.until(was_asked_often)
        assert [record.exc_info for record in caplog.records if "the partitions of topic gone" in record.getMessage()] == [None]
        bench.partitions_in_store = answering
        await ends(bench)

    run(scenario)


def test_a_topic_that_was_created_again_with_fewer_partitions_holds_no_transaction_back() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.partitions_in_store["v"] = 1
        bench.announce({"v": 1})
        bench.add(0, 2, topic="v")
        bench.end()
        await ends(bench)
        assert bench.leaders.partitions == [(0, "v", 0)]

    run(scenario)


def test_a_coordinator_that_another_one_fenced_goes_on_with_its_next_epoch() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(epoch=3)
        bench.leaders.codes["t", 0] = [E.TRANSACTION_COORDINATOR_FENCED] * 2
        await commit(bench, 0)
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        assert bench.state() == "PrepareCommit"
        await bench.coordinate(epoch=5)
        await ends(bench)
        assert [request.markers[0].coordinator_epoch for _, request in bench.leaders.asked] == [3, 5, 5]

    run(scenario)


def test_a_fenced_coordinator_that_is_replaced_sends_no_more() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 0] = [E.TRANSACTION_COORDINATOR_FENCED]
        await commit(bench, 0)
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        await bench.coordinate(epoch=1, leader=1)
        bench.pass_time(1_000)
        await bench.take_turns()
        assert len(bench.leaders.asked) == 1
        assert bench.transactions.markers.transactions == 0

    run(scenario)


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION, E.INVALID_PRODUCER_EPOCH])
def test_a_partition_that_never_takes_the_marker_needs_none(code: ErrorCode) -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 0] = [code] * 100
        await commit(bench, 0, 1)
        await ends(bench)
        assert bench.leaders.partitions == [(0, "t", 0), (0, "t", 1)]

    run(scenario)


def test_each_refusal_of_a_partition_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 0] = [E.NOT_ENOUGH_REPLICAS] * 5 + [E.NOT_LEADER_OR_FOLLOWER] * 5
        await commit(bench, 0)
        await ends(bench)
        assert len(bench.leaders.asked) == 11

    run(scenario)
    refusals = [record.message for record in caplog.records if "did not write its marker" in record.message]
    assert [text.rsplit("(")[-1] for text in refusals] == ["NOT_ENOUGH_REPLICAS)", "NOT_LEADER_OR_FOLLOWER)"]


def test_a_broker_that_may_write_no_markers_says_so_once_until_it_may(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        for _ in range(2):
            for index in (0, 1):
                bench.leaders.codes["t", index] = [E.CLUSTER_AUTHORIZATION_FAILED] * 3
            await commit(bench, 0, 1)
            await ends(bench)

    run(scenario)
    denials = [record.getMessage() for record in caplog.records if "CLUSTER_AUTHORIZATION_FAILED" in record.getMessage()]
    assert len(denials) == 2
    assert "give the principal of this broker ClusterAction on the cluster" in denials[0]


def test_after_an_answer_that_makes_no_sense_the_markers_are_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.codes["t", 0] = [[1]]  # type: ignore[list-item]  # no error code at all
        await commit(bench, 0, 1)
        await ends(bench)
        assert "about 1 markers could not be applied" in caplog.text
        await commit(bench, 0, 1, name="later")
        await ends(bench, "later")

    run(scenario)


def test_markers_that_come_up_while_a_request_is_in_flight_share_the_next_one() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.answering.clear()
        await commit(bench, 0, name="a")
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        for name in ("b", "c", "d"):
            await commit(bench, 0, 1, name=name)
        bench.leaders.answering.set()
        for name in ("a", "b", "c", "d"):
            await ends(bench, name)
        assert [len(request.markers) for _, request in bench.leaders.asked] == [1, 3]

    run(scenario)


def test_the_markers_of_many_small_transactions_take_some_requests() -> None:
    most = PARTITIONS_PER_REQUEST // MARKER_WEIGHT
    names = [f"id {number}" for number in range(most + 100)]

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.answering.clear()
        for name in names:
            await commit(bench, 1, name=name)
        bench.leaders.answering.set()
        await bench.until(lambda: not bench.transactions.markers.transactions)
        sizes = [len(request.markers) for _, request in bench.leaders.asked]
        assert max(sizes) <= most
        assert sum(sizes) == len(names)

    run(scenario)


def test_the_markers_of_a_large_transaction_take_some_turns_and_requests() -> None:
    count = 2 * PARTITIONS_PER_REQUEST + 1

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.announce({"large": count, "other": 1})
        bench.init()
        bench.add(*range(count), topic="large")
        bench.add(0, topic="other")
        bench.leaders.codes["large", count - 1] = [E.NOT_LEADER_OR_FOLLOWER]
        bench.end()
        await ends(bench)
        sizes = [sum(len(topic.partition_indexes) for topic in request.markers[0].topics) for _, request in bench.leaders.asked]
        assert max(sizes) <= PARTITIONS_PER_REQUEST
        assert sum(sizes) == count + 2
        marked = {(topic, index) for _, topic, index in bench.leaders.partitions}
        assert marked == {("other", 0), *(("large", index) for index in range(count))}

    run(scenario)


@pytest.mark.slow
def test_a_transaction_waits_for_a_broker_that_is_gone_without_more_in_memory_at_each_attempt() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.unreachable.add(0)
        await commit(bench, 0)
        await bench.until(lambda: len(bench.leaders.asked) == 4)
        assert bench.transactions.markers.queue_sizes == {0: 0}
        bench.leaders.unreachable.clear()
        await ends(bench)

    run(scenario)


def test_a_slow_broker_delays_no_other() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.move({1: 1})
        bench.leaders.answering.clear()
        await commit(bench, 1, name="slow")
        await bench.until(lambda: len(bench.leaders.asked) == 1)
        held = bench.leaders.answer_at_once_from_now_on()
        await commit(bench, 0, name="quick")
        await ends(bench, "quick")
        assert bench.state("slow") == "PrepareCommit"
        held.set()
        await ends(bench, "slow")

    run(scenario)
