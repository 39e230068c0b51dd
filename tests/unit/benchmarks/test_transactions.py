"""Transactional loads: their frames, the places of error codes, what the generator does with refusals, and the lines of the part."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest

from benchmarks.comparisons.transaction_state import a_bench
from benchmarks.loadgen.runner import LoadFailedError
from benchmarks.loadgen.transactional import Asked, To, Transaction, TransactionLoad, run_transactions
from benchmarks.loads import frames, transaction_frames
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.loads.transaction_frames import Identity
from benchmarks.loads.transactions import AT_LEAST
from benchmarks.parts.transactions import KEYS, PART
from benchmarks.turns.sizes import NORMAL
from ottla.pauses import is_over
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api

WHO = Identity("payments", producer_id=7, epoch=3, coordinator_port=1)
BATCH = batch_of_values(values_like_text(10, 100), 1_700_000_000_000)
Request = TypeVar("Request", bound=Message)
Reply = Callable[[int], Sequence[int]]
"""The number of a request on the broker -> the error codes of its answer."""


def request_in(frame: bytes, kind: type[Request]) -> Request:
    """The request of a frame that holds nothing else."""
    key, version = struct.unpack_from(">hh", frame, 4)
    _, at = RequestHeader.decode(frame, api(ApiKey(key)).request_header_version(version), 4)
    request, end = kind.decode(frame, version, at)
    assert end == len(frame) == int.from_bytes(frame[:4], "big") + 4
    return request


def codes_at(asked: Asked, key: ApiKey, answer: Message) -> list[int]:
    encoded = frames.answer_frame(key, answer)
    return [int.from_bytes(encoded[at : at + 2], "big") for at in asked.error_offsets]


# -- frames ----------------------------------------------------------------------------------------------------------------


def test_partitions_are_added_by_the_producer_and_the_codes_of_all_are_looked_at() -> None:
    (asked,) = transaction_frames.add_partitions(WHO, "orders", [4, 5, 6])

    request = request_in(asked.frame(0), AddPartitionsToTxnRequest)
    assert request.v3_and_below_transactional_id == "payments"
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (7, 3)
    assert [(topic.name, list(topic.partitions)) for topic in request.v3_and_below_topics] == [("orders", [4, 5, 6])]
    assert asked.to == To(1, is_coordinator=True)
    results = [AddPartitionsToTxnPartitionResult(partition_index=at, partition_error_code=at * 11) for at in (4, 5, 6)]
    topics = [AddPartitionsToTxnTopicResult(name="orders", results_by_partition=results)]
    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    assert codes_at(asked, ApiKey.ADD_PARTITIONS_TO_TXN, answer) == [44, 55, 66]


def test_every_leader_gets_one_produce_with_the_batches_of_its_partitions() -> None:
    step = transaction_frames.produce(WHO, "orders", dict.fromkeys(range(3), BATCH), 10, {0: 91, 1: 92, 2: 91})

    sent = {asked.to.port: request_in(asked.frame(0), ProduceRequest) for asked in step}
    assert {port: [each.index for each in request.topic_data[0].partition_data] for port, request in sent.items()} == {91: [0, 2], 92: [1]}
    assert {request.transactional_id for request in sent.values()} == {"payments"}
    answered = [PartitionProduceResponse(index=at, error_code=code, base_offset=0) for at, code in ((0, 21), (2, 22))]
    answer = ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=answered)])
    assert codes_at(step[0], ApiKey.PRODUCE, answer) == [21, 22]


@pytest.mark.parametrize("number", [0, 1, 70_000])
def test_sequence_numbers_go_on_from_one_transaction_to_the_next_with_valid_checksums(number: int) -> None:
    (asked,) = transaction_frames.produce(WHO, "orders", dict.fromkeys(range(2), BATCH), 10, {0: 91, 1: 91})

    (topic,) = request_in(asked.frame(number), ProduceRequest).topic_data
    for partition in topic.partition_data:
        records = bytes(partition.records or b"")
        header = parse_header(records)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, number * 10)
        assert header.is_transactional
        assert crc_is_valid(records)


def test_the_end_commits_or_aborts_by_the_number_of_the_transaction() -> None:
    (asked,) = transaction_frames.end(WHO, lambda number: number % 2 == 0)

    assert [request_in(asked.frame(number), EndTxnRequest).committed for number in range(4)] == [True, False, True, False]
    assert codes_at(asked, ApiKey.END_TXN, EndTxnResponse(error_code=51)) == [51]


def test_the_end_of_an_unknown_id_is_for_a_coordinator_that_stores_nothing() -> None:
    (asked,) = transaction_frames.end_nothing(9)

    request = request_in(asked.frame(0), EndTxnRequest)
    assert (request.transactional_id, request.committed) == ("unknown", True)
    assert (asked.to, asked.error_offsets) == (To(9, is_coordinator=True), ())


# -- the generator ---------------------------------------------------------------------------------------------------------

_REQUEST = struct.pack(">i4xi", 8, 0)
_ANSWER = struct.Struct(">iih")


@contextmanager
def a_broker(code: Reply) -> Iterator[tuple[int, list[int]]]:
    """Answers each request with a correlation id and a code. Yields its port, and the numbers of the requests that it got."""
    got: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while len(connection.recv(len(_REQUEST), socket.MSG_WAITALL)) == len(_REQUEST):
                got.append(len(got))
                connection.sendall(_ANSWER.pack(6, 0, code(got[-1])[0]))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], got
    finally:
        thread.join()
        listener.close()


def a_transaction(port: int, steps: int) -> Transaction:
    return [[Asked(To(port), lambda _: _REQUEST, [4])] for _ in range(steps)]


def test_a_producer_makes_its_transactions_one_after_the_other() -> None:
    with a_broker(lambda _: [0]) as (port, got):
        measured = run_transactions(TransactionLoad([a_transaction(port, 3)], 0, 0, 0, total=5))

    assert measured.window.responses == measured.window.latency_ns.count == 5
    assert len(got) == 15
    assert measured.refused == 0


def test_a_refused_step_is_sent_again_and_counted() -> None:
    refusals = {3, 4}
    with a_broker(lambda number: [ErrorCode.CONCURRENT_TRANSACTIONS if number in refusals else 0]) as (port, got):
        measured = run_transactions(TransactionLoad([a_transaction(port, 3)], 0, 0, 0.001, total=2))

    assert measured.window.responses == 2
    assert len(got) == 8
    assert measured.refused == 1


def test_an_error_ends_the_load_and_says_at_which_step() -> None:
    with (
        a_broker(lambda number: [ErrorCode.PRODUCER_FENCED if number == 1 else 0]) as (port, _),
        pytest.raises(LoadFailedError, match="step 2 of a transaction was answered with PRODUCER_FENCED"),
    ):
        run_transactions(TransactionLoad([a_transaction(port, 3)], 0, 0, 0, total=5))


def test_the_transaction_that_is_under_way_at_the_end_of_the_window_is_finished_and_not_counted() -> None:
    with a_broker(lambda _: [0]) as (port, got):
        measured = run_transactions(TransactionLoad([a_transaction(port, 3)], 0.05, 0.1, 0))

    assert measured.window.responses > 0
    assert len(got) % 3 == 0
    assert measured.window.responses < len(got) // 3


# -- the part --------------------------------------------------------------------------------------------------------------


def test_every_load_of_one_broker_and_of_three_has_its_targets() -> None:
    lines = {line.key: line for line in PART.lines(NORMAL)}

    loads = [key for key in KEYS if key.startswith("txn-")]
    assert len(loads) == 18
    assert sum(key.endswith("-rf3") for key in loads) == 9
    assert {lines[f"{key}{what}"].ratio_at_least for key in loads for what in ("", "-p99")} == {AT_LEAST}
    assert {lines[key].at_most for key in ("others-open-cost", "others-held-cost", "read-committed-cost")} == {1.1}
    assert {key for key, _ in PART.details(NORMAL)} == set(KEYS) == set(PART.choices)


def test_the_coordinator_that_is_measured_pauses_as_in_a_broker() -> None:
    async def play() -> bool:
        async with a_bench():
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                if is_over():
                    return True
        return False

    assert asyncio.run(play())
