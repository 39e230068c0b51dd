"""Counts transactions, and measures the time in each state and of loading."""

from __future__ import annotations

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.partitions.load_times import LoadTimes
from ottla.coordination.transactions.metadata import TransactionState
from ottla.protocol.errors import ErrorCode
from tests.support.transaction_bench import TIMEOUT_MS, TransactionBench, run

E = ErrorCode
S = TransactionState


async def transaction(bench: TransactionBench, *, is_commit: bool, open_ms: int) -> None:
    bench.init()
    bench.add(0)
    bench.pass_time(open_ms)
    bench.end(is_commit=is_commit)
    await bench.until(lambda: bench.txn().state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT))


def test_commits_and_aborts_are_counted() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        for is_commit in (True, False, True):
            await transaction(bench, is_commit=is_commit, open_ms=1)
        stats = bench.transactions.stats
        assert (stats.commits, stats.aborts, bench.transactions.expiration.timeouts) == (2, 1, 0)
        assert (bench.transactions.markers.requests, bench.transactions.markers.responses) == (3, 3)

    run(scenario)


def test_a_timeout_is_an_abort_as_well() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        bench.pass_time(TIMEOUT_MS + 20_000)
        await bench.until(lambda: bench.state() == "CompleteAbort")
        stats = bench.transactions.stats
        assert (stats.commits, stats.aborts, bench.transactions.expiration.timeouts) == (0, 1, 1)

    run(scenario)


def test_the_time_in_a_state_lasts_from_its_beginning_to_the_next_state() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        left: list[tuple[S, int]] = []
        bench.transactions.stats.on_left = lambda state, time_ms: left.append((state, time_ms))
        bench.init()
        bench.add(0)
        bench.pass_time(40)
        bench.add(1)  # the state was Ongoing before
        bench.pass_time(50)
        bench.leaders.answering.clear()
        bench.end()
        await bench.until(lambda: bench.state() == "PrepareCommit")
        bench.pass_time(70)
        bench.leaders.answering.set()
        await bench.until(lambda: bench.state() == "CompleteCommit")
        assert left[1:] == [(S.ONGOING, 90), (S.PREPARE_COMMIT, 70)]

    run(scenario)


def test_loading_a_partition_is_timed_and_electing_a_coordinator_of_nothing_is_not() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        assert bench.transactions.load_times.recent() == []
        bench.init()
        await bench.coordinate(epoch=1, leader=1)
        await bench.coordinate(epoch=2)
        assert bench.txn().transactional_id == "id"
        assert len(bench.transactions.load_times.recent()) == 1
        assert bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).leader_epoch == 2

    run(scenario)


def test_load_times_are_forgotten_after_a_minute() -> None:
    now = 0.0
    times = LoadTimes(lambda: now)
    times.add(1.5)
    now = 59.0
    times.add(0.5)
    assert times.recent() == [1.5, 0.5]
    now = 61.0
    assert times.recent() == [0.5]
    now = 120.0
    assert times.recent() == []
