"""Drives the coordinator over real logs: what is stored before what is sent, how it hands over, and what time does to transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.partitions.elections import Elections
from ottla.coordination.partitions.owned import absolute_hash
from ottla.coordination.transactions import coordinator
from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.metadata import VERSION_0, TransitMetadata
from ottla.protocol.errors import ErrorCode
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage.disk.clock import elapsed_ms
from tests.support.log_manager import Disks
from tests.support.transaction_bench import TIMEOUT_MS, TransactionBench, run

E = ErrorCode


def follower_has_all(bench: TransactionBench) -> None:
    partition = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0)
    partition.on_follower_fetch(1, partition.log.log_end_offset, 0, elapsed_ms(bench.clock))


def test_a_transaction_goes_through_its_states_in_the_log() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        assert bench.init() == [ProducerResult(E.NONE, 1_000, 0)]
        assert bench.add(0, 2) == [E.NONE]
        assert bench.end() == [E.NONE]
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert bench.stored() == [("id", state) for state in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit")]
        (asked,) = bench.leaders.asked
        (marker,) = asked[1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch) == (1_000, 0, True, 0)
        assert bench.leaders.partitions == [(0, "t", 0), (0, "t", 2)]

    run(scenario)


def test_no_marker_leaves_before_all_replicas_have_the_outcome() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        initialised = bench.init()
        follower_has_all(bench)
        assert initialised
        added = bench.add(0)
        assert added == []
        follower_has_all(bench)
        assert added == [E.NONE]
        ended = bench.end()
        await bench.take_turns()
        assert (ended, bench.leaders.asked, bench.state()) == ([], [], "Ongoing")
        follower_has_all(bench)
        assert (ended, bench.state()) == ([E.NONE], "PrepareCommit")
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert len(bench.leaders.asked) == 1

    run(scenario)


def test_an_outcome_that_is_not_replicated_in_time_is_none() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.init()
        follower_has_all(bench)
        bench.add(0)
        follower_has_all(bench)
        ended = bench.end()
        bench.pass_time(TIMEOUT_MS + 1_000)
        assert ended == [E.COORDINATOR_NOT_AVAILABLE]
        assert bench.state() == "Ongoing"

    run(scenario)


def test_the_replicas_get_the_next_transaction_together_with_the_end_of_the_last_one() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        for ask in (bench.init, lambda: bench.add(0), bench.end):
            ask()
            follower_has_all(bench)
        added = bench.add(1)
        await bench.until(lambda: len(bench.stored()) == 5)
        assert [state for _, state in bench.stored()[2:]] == ["PrepareCommit", "CompleteCommit", "Ongoing"]
        await bench.take_turns()
        assert (added, bench.state()) == ([], "CompleteCommit")
        follower_has_all(bench)
        assert (added, bench.state()) == ([E.NONE], "Ongoing")

    run(scenario)


def test_the_end_of_a_transaction_is_stored_once_however_long_the_replicas_take() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        for ask in (bench.init, lambda: bench.add(0), bench.end):
            ask()
            follower_has_all(bench)
        await bench.until(lambda: len(bench.stored()) == 4)
        bench.pass_time(TIMEOUT_MS + 1_000)
        assert (len(bench.stored()), bench.state()) == (4, "CompleteCommit")
        added = bench.add(1)
        bench.pass_time(TIMEOUT_MS + 1_000)
        assert (added, bench.state()) == ([E.COORDINATOR_NOT_AVAILABLE], "CompleteCommit")

    run(scenario)


def test_an_error_of_the_broker_leaves_no_transactional_id_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        with monkeypatch.context() as patch:
            patch.setattr(ReplicaManager, "partition_or_raise", fail)
            assert bench.end() == [E.UNKNOWN_SERVER_ERROR]
        assert (bench.state(), bench.txn().pending_state) == ("Ongoing", None)
        assert bench.end() == [E.NONE]
        await bench.until(lambda: bench.state() == "CompleteCommit")

    def fail(*_: object) -> NoReturn:
        raise ValueError("a fault")

    run(scenario)


def test_the_end_of_a_transaction_is_stored_when_a_coordinator_that_was_cut_off_is_back() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        bench.leaders.answering.clear()
        assert bench.end() == [E.NONE]
        partition = bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0)
        partition.set_cut_off(True)
        bench.leaders.answering.set()
        await bench.until(lambda: not bench.txn().partitions)
        bench.pass_time(1_000)
        assert bench.state() == "PrepareCommit"
        assert bench.transactions.log_append_retry_queue_size == 1
        partition.set_cut_off(False)
        bench.pass_time(1_000)
        assert bench.state() == "CompleteCommit"
        assert bench.transactions.log_append_retry_queue_size == 0
        assert bench.add(0) == [E.NONE]

    run(scenario)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_coordinator_sends_the_markers_with_its_own_epoch(is_commit: bool) -> None:
    disks = Disks()

    async def first(bench: TransactionBench) -> None:
        await bench.coordinate(epoch=3)
        bench.init()
        bench.add(1)
        bench.leaders.answering.clear()
        assert bench.end(is_commit) == [E.NONE]
        await bench.until(lambda: bool(bench.leaders.asked))

    async def second(bench: TransactionBench) -> None:
        await bench.coordinate(epoch=7)
        await bench.until(lambda: bench.state() == ("CompleteCommit" if is_commit else "CompleteAbort"))
        (marker,) = bench.leaders.asked[0][1].markers
        assert (marker.coordinator_epoch, marker.transaction_result) == (7, is_commit)

    run(first, disks)
    run(second, disks)


def test_a_transaction_is_finished_in_the_partition_that_it_has_since_before_the_topic_grew() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        bench.leaders.unreachable = {0}
        assert bench.end() == [E.NONE]
        await bench.until(lambda: bool(bench.leaders.asked))
        await bench.coordinate(epoch=1, leader=1)
        grown = next(count for count in range(2, 9) if absolute_hash("id") % count)
        bench.announce({TRANSACTION_STATE_TOPIC: grown})
        assert bench.transactions.partition_for("id") != 0
        await bench.lead(absolute_hash("id") % grown, topic=TRANSACTION_STATE_TOPIC)
        bench.leaders.unreachable = set()
        await bench.coordinate(epoch=2)
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert bench.stored()[-1] == ("id", "CompleteCommit")

    run(scenario)


def test_a_transaction_whose_id_another_broker_coordinates_since_the_topic_grew_is_finished_here() -> None:
    """Otherwise no consumer of committed records would get beyond it."""

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        ids = [f"id-{number}" for number in range(2)]
        for name in ids:
            bench.init(name)
            bench.add(0, name=name)
        bench.leaders.unreachable = {0}
        assert bench.end(name=ids[0]) == [E.NONE]
        await bench.until(lambda: bool(bench.leaders.asked))
        await bench.coordinate(epoch=1, leader=1)
        grown = next(count for count in range(2, 9) if all(absolute_hash(name) % count for name in ids))
        bench.announce({TRANSACTION_STATE_TOPIC: grown})
        bench.leaders.unreachable = set()
        await bench.coordinate(epoch=2)
        assert bench.init(ids[0]) == [ProducerResult(E.NOT_COORDINATOR)]
        await bench.until(lambda: (ids[0], "CompleteCommit") in bench.stored())
        bench.pass_time(TIMEOUT_MS + 20_000)
        await bench.until(lambda: (ids[1], "CompleteAbort") in bench.stored())
        bench.pass_time(20_000)
        await bench.until(lambda: {(name, "") for name in ids} <= set(bench.stored()))
        assert not bench.transactions.transactions.partitions[0].states

    run(
        scenario,
        transactional_id_expiration_ms=10_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
    )


def test_the_next_coordinator_waits_until_all_replicas_have_what_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks()
    polls = 0
    poll = Elections._poll

    async def counted(self: Elections[Any], owned: Any) -> None:
        nonlocal polls
        polls += 1
        await poll(self, owned)

    monkeypatch.setattr(Elections, "_poll", counted)

    async def first(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(1)
        bench.leaders.answering.clear()
        assert bench.end() == [E.NONE]

    async def second(bench: TransactionBench) -> None:
        await bench.lead(topic=TRANSACTION_STATE_TOPIC, epoch=1, leader=1, isr=(0, 1))
        bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).log.update_high_watermark(2)
        await bench.lead(topic=TRANSACTION_STATE_TOPIC, epoch=2, isr=(0, 1))
        await bench.until(lambda: polls > 3)
        assert bench.init() == [ProducerResult(E.COORDINATOR_LOAD_IN_PROGRESS)]
        assert bench.leaders.asked == []
        follower_has_all(bench)
        await bench.until(lambda: bool(bench.leaders.asked))

    run(first, disks)
    run(second, disks)


def test_a_coordinator_that_lost_its_partition_answers_and_sends_no_more() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        initialised = bench.init()
        follower_has_all(bench)
        bench.add(0)
        follower_has_all(bench)
        ended = bench.end()
        await bench.coordinate(epoch=1, leader=1)
        assert (len(initialised), ended) == (1, [E.NOT_COORDINATOR])
        assert bench.init() == [ProducerResult(E.NOT_COORDINATOR)]
        assert bench.leaders.asked == []

    run(scenario)


def test_markers_of_a_lost_partition_are_given_up() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        bench.leaders.answering.clear()
        bench.end()
        await bench.until(lambda: bool(bench.leaders.asked))
        await bench.coordinate(epoch=1, leader=1)
        assert bench.transactions.markers.transactions == 0
        bench.leaders.answering.set()
        await bench.coordinate(epoch=2)
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert [request.markers[0].coordinator_epoch for _, request in bench.leaders.asked] == [0, 2]

    run(scenario)


@pytest.mark.parametrize("end_at", range(1, 5))
def test_a_coordinator_killed_after_any_record_is_followed_by_one_that_finishes(end_at: int) -> None:
    """The log ends after each of Empty, Ongoing, PrepareCommit, CompleteCommit in turn."""
    disks = Disks()

    async def first(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.leaders.answering.clear()
        for step in (bench.init, lambda: bench.add(0), bench.end, bench.leaders.answering.set)[:end_at]:
            step()
        await bench.until(lambda: len(bench.stored()) == end_at)

    async def second(bench: TransactionBench) -> None:
        await bench.coordinate(epoch=1)
        await bench.until(lambda: bench.init()[0].error == E.NONE)
        (ends,) = {state for _, state in bench.stored() if state.startswith("Complete")} or {None}
        assert ends == (None, "CompleteAbort", "CompleteCommit", "CompleteCommit")[end_at - 1]
        assert [state for _, state in bench.stored()].count(str(ends)) <= 1

    run(first, disks)
    run(second, disks)


# -- time --------------------------------------------------------------------------------------------------------------------


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        old = bench.producer()
        bench.pass_time(TIMEOUT_MS - 1_000)
        await bench.take_turns()
        assert bench.state() == "Ongoing"
        bench.pass_time(12_000)
        await bench.until(lambda: bench.state() == "CompleteAbort")
        answers: list[ProducerResult] = []
        bench.transactions.end("id", old, True, VERSION_0, answers.append)
        assert answers == [ProducerResult(E.PRODUCER_FENCED)]
        assert bench.stored()[-2:] == [("id", "PrepareAbort"), ("id", "CompleteAbort")]

    run(scenario)


def test_an_id_whose_record_cannot_be_encoded_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: TransitMetadata, version: int) -> Iterator[None]:
        yield
        raise MemoryError

    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        with monkeypatch.context() as broken:
            broken.setattr(coordinator, "transaction_value", fail)
            assert bench.add(0) == [E.UNKNOWN_SERVER_ERROR]
        assert bench.add(0) == [E.NONE]
        assert bench.end() == [E.NONE]
        await bench.until(lambda: bench.state() == "CompleteCommit")

    run(scenario)
    assert "its record cannot be encoded" in caplog.text


def test_unused_ids_are_removed_with_tombstones_and_others_stay() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        for name in ("old", "used", "open"):
            bench.init(name)
        bench.add(0, name="open")
        bench.clock.move(50_000)
        bench.init("used")
        bench.clock.move(11_000)
        bench.wheel.advance()
        await bench.until(lambda: bench.stored()[-1] == ("old", ""))
        names = {txn.transactional_id for txn in bench.transactions.transactions}
        assert names == {"used", "open"}
        assert bench.init("old")[0].error == E.NONE

    run(
        scenario,
        transactional_id_expiration_ms=60_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=10_000_000,
    )


def test_unused_ids_are_removed_by_batches_that_the_topic_accepts() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        names = [f"id-{number}" for number in range(40)]
        for name in names:
            bench.init(name)
        bench.clock.move(61_000)
        bench.wheel.advance()
        await bench.until(lambda: not list(bench.transactions.transactions))
        assert bench.stored()[-40:] == [(name, "") for name in names]

    run(
        scenario,
        message_max_bytes=400,
        transactional_id_expiration_ms=60_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=10_000_000,
    )


def test_an_id_whose_tombstone_is_not_safe_stays() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate(isr=(0, 1))
        bench.init()
        follower_has_all(bench)
        bench.pass_time(3_601_000)
        await bench.until(lambda: bench.stored()[-1] == ("id", ""))
        assert bench.init() == [ProducerResult(E.CONCURRENT_TRANSACTIONS)]
        bench.pass_time(31_000)
        assert len(list(bench.transactions.transactions)) == 1
        initialised = bench.init()
        follower_has_all(bench)
        assert initialised == [ProducerResult(E.NONE, 1_000, 1)]

    run(scenario, transactional_id_expiration_ms=60_000)


def test_a_coordinator_that_is_not_active_or_loading_says_so() -> None:
    async def scenario(bench: TransactionBench) -> None:
        assert bench.init() == [ProducerResult(E.NOT_COORDINATOR)]
        assert bench.transactions.describe("id") == (E.NOT_COORDINATOR, None)
        await bench.coordinate()
        error, found = bench.transactions.list()
        assert (error, list(found)) == (E.NONE, [])
        bench.transactions.transactions.partitions[0].is_loading = True
        assert bench.init() == [ProducerResult(E.COORDINATOR_LOAD_IN_PROGRESS)]
        assert bench.transactions.list() == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
        bench.transactions.transactions.is_active = False
        assert bench.transactions.list() == (E.COORDINATOR_NOT_AVAILABLE, [])
        assert bench.transactions.describe("id") == (E.COORDINATOR_NOT_AVAILABLE, None)

    run(scenario)
