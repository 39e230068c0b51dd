"""Stores and describes transactions of very many topics, and lists very many ids, without holding the event loop."""

from __future__ import annotations

import asyncio

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.transactions.log_records import read_value
from ottla.coordination.transactions.metadata import VERSION_0, TransactionMetadata
from ottla.pauses import begin_slices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from tests.support.logs import read_all
from tests.support.transaction_bench import TransactionBench, run

E = ErrorCode

TOPICS = {f"topic-{number}": frozenset({number % 3, 7}) for number in range(12_000)}


def add_all(bench: TransactionBench) -> list[ErrorCode]:
    answers: list[ErrorCode] = []
    bench.transactions.add_partitions("id", bench.producer(), TOPICS, VERSION_0, answers.append)
    return answers


def last_stored(bench: TransactionBench) -> TransactionMetadata:
    data = read_all(bench.replica_manager.partition_or_raise(TRANSACTION_STATE_TOPIC, 0).log)
    values = [record.value for at, header in iter_batches(data) for record in iter_records(data, at, header)]
    return read_value("id", values[-1] or b"")


def test_the_record_of_many_topics_is_encoded_in_some_turns_and_others_are_served_meanwhile() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        begin_slices(asyncio.get_running_loop(), slice_ns=10_000)
        answers = add_all(bench)
        assert answers == []
        assert bench.end() == [E.CONCURRENT_TRANSACTIONS]
        assert bench.init("other")[0].error == E.NONE
        assert bench.add(0, name="other") == [E.NONE]
        assert [name for name, _ in bench.stored()] == ["id", "other", "other"]
        await bench.until(lambda: bool(answers))
        assert answers == [E.NONE]
        assert bench.txn().partitions == last_stored(bench).partitions == TOPICS

    run(scenario, message_max_bytes=10_000_000)


def test_a_partition_that_is_lost_while_the_record_is_encoded_takes_no_record() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        begin_slices(asyncio.get_running_loop(), slice_ns=10_000)
        answers = add_all(bench)
        await bench.coordinate(epoch=1, leader=1)
        await bench.coordinate(epoch=2)
        await bench.until(lambda: bool(answers))
        assert answers == [E.NOT_COORDINATOR]
        assert (bench.state(), bench.stored()) == ("Empty", [("id", "Empty")])

    run(scenario, message_max_bytes=10_000_000)


def test_a_record_that_is_too_large_for_the_log_leaves_the_transaction_as_it_was() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        bench.add(0)
        answers = add_all(bench)
        await bench.until(lambda: bool(answers))
        assert answers == [E.UNKNOWN_SERVER_ERROR]
        assert bench.txn().partitions == {"t": frozenset({0})}
        assert bench.end() == [E.NONE]

    run(scenario, message_max_bytes=100_000)
