"""Produce of transactional batches: who is asked, what waits meanwhile, and what is told when they may not be appended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE
from ottla.coordination.supported_operation import SupportedOperation
from ottla.coordination.transactions.verification import OnVerified
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from tests.support.batches import a_batch, a_run
from tests.support.connections import ClientConnection
from tests.support.controlled_cluster import until
from tests.support.grants import Grants
from tests.support.handler_bench import Asking, HandlerBench, on_a_loop
from tests.support.pauses import a_turn, every_pause_waits
from tests.support.replicas import TOPIC, state
from tests.support.transactions import a_marker_batch

PRODUCER = 7
ID = "copier-1"
T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
WRITES = (Operation.WRITE, ResourceType.TOPIC)
TRANSACTS = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID)


class Verifier:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, Sequence[TopicPartition], SupportedOperation]] = []
        self._waiting: list[OnVerified] = []
        self.at_once = False
        self.confirmed_here: set[tuple[str, int, int, str, int]] = set()

    def is_confirmed_here(self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int) -> bool:
        return (transactional_id, producer_id, producer_epoch, topic, index) in self.confirmed_here

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: OnVerified,
        operation: SupportedOperation,
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, operation))
        self._waiting.append(then)
        if self.at_once:
            self.answer()

    def answer(self, **codes: ErrorCode) -> None:
        """The oldest question: `p0=...` is the error of partition 0."""
        self._waiting.pop(0)({TopicPartition(TOPIC, int(name[1:])): code for name, code in codes.items()})


class Bench(HandlerBench):
    """Broker 0 leads partitions 0 and 1."""

    def __init__(self, *, followed: bool = False, **topic_config: str) -> None:
        super().__init__(**topic_config)
        replicas = [0, 1, 2] if followed else [0]
        self.replicas.say(*(state(isr=replicas, replicas=replicas, index=index) for index in (0, 1)))
        self.know(p0=0, p1=0)
        self.verifier = self.services.coordinators.transaction_verifier = Verifier()  # type: ignore[assignment]  # all that Produce asks of one

    def write(self, *batches: bytearray | None, acks: int = -1, version: int = 11, transactional_id: str | None = ID) -> Asking:
        return self.produce(*batches, acks=acks, version=version, transactional_id=transactional_id)

    def end_transaction(self) -> None:
        partition = self.replicas.partition
        partition.append(a_run(a_marker_batch(PRODUCER)), -1, self.replicas.clock.now_ms(), 1)


def a_transactional_batch(
    sequence: int = 0, records: int = 1, epoch: int = 0, producer_id: int = PRODUCER, codec: str = "none"
) -> bytearray:
    return a_batch(records, codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)


def codes(asked: Asking) -> list[int]:
    return [each.error_code for each in asked.produced]


@on_a_loop
async def test_the_batches_that_open_a_transaction_wait_for_one_answer() -> None:
    bench = Bench()
    asked = bench.write(a_transactional_batch(), a_transactional_batch(records=2))
    assert asked.waits
    assert not asked.pending.occupies_slot
    assert bench.replicas.partition.log.log_end_offset == 0
    assert bench.verifier.asked == [(ID, PRODUCER, 0, [T0, T1], SupportedOperation.GENERIC_ERROR)]
    bench.verifier.answer()
    assert codes(asked) == [0, 0]
    assert [partition.log.log_end_offset for partition in bench.replicas.manager] == [1, 2]
    assert bench.replicas.partition.log.last_stable_offset == 0


@on_a_loop
async def test_nothing_is_asked_again_until_the_transaction_ends() -> None:
    bench = Bench()
    bench.verifier.at_once = True
    assert codes(bench.write(a_transactional_batch())) == [0]
    assert codes(bench.write(a_transactional_batch(1))) == [0]
    assert len(bench.verifier.asked) == 1
    bench.end_transaction()
    assert codes(bench.write(a_transactional_batch(2))) == [0]
    assert len(bench.verifier.asked) == 2


@on_a_loop
async def test_what_this_broker_coordinates_itself_is_appended_without_a_question() -> None:
    bench = Bench()
    bench.verifier.confirmed_here = {(ID, PRODUCER, 0, TOPIC, 0)}
    assert codes(bench.write(a_transactional_batch())) == [0]
    assert bench.verifier.asked == []
    bench.end_transaction()
    asked = bench.write(a_transactional_batch(1), a_transactional_batch())
    assert bench.verifier.asked == [(ID, PRODUCER, 0, [T1], SupportedOperation.GENERIC_ERROR)]
    bench.verifier.answer(p1=ErrorCode.TRANSACTION_ABORTABLE)
    assert codes(asked) == [0, ErrorCode.TRANSACTION_ABORTABLE]


@on_a_loop
async def test_only_the_partitions_that_are_new_to_the_transaction_are_asked_about() -> None:
    bench = Bench()
    bench.verifier.at_once = True
    assert codes(bench.write(a_transactional_batch())) == [0]
    asked = bench.write(a_transactional_batch(1), a_transactional_batch())
    assert codes(asked) == [0, 0]
    assert [each.base_offset for each in asked.produced] == [1, 0]
    assert bench.verifier.asked[1][3] == [T1]


@on_a_loop
async def test_a_transaction_that_ends_before_the_answer_is_not_opened_again() -> None:
    bench = Bench()
    asked = bench.write(a_transactional_batch())
    bench.end_transaction()
    bench.verifier.answer()
    assert codes(asked) == [ErrorCode.INVALID_TXN_STATE]
    log = bench.replicas.partition.log
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1)


@pytest.mark.parametrize(
    ("verified", "told", "message"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        *(
            (
                code,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
            )
            for code in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            )
        ),
    ],
)
def test_what_was_not_verified_is_not_appended(verified: ErrorCode, told: ErrorCode, message: str | None) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = Bench()
        asked = bench.write(a_transactional_batch(), a_transactional_batch())
        bench.verifier.answer(p0=verified)
        assert [(each.error_code, each.error_message, each.base_offset) for each in asked.produced] == [(told, message, -1), (0, None, 0)]
        assert bench.replicas.partition.log.log_end_offset == 0
        assert bench.services.error_counts == {told: 1, ErrorCode.NONE: 1}

    scenario()


@on_a_loop
async def test_old_clients_are_not_told_what_they_do_not_know() -> None:
    bench = Bench()
    bench.write(a_transactional_batch(), version=10)
    assert bench.verifier.asked[0][4] is SupportedOperation.DEFAULT_ERROR


@on_a_loop
async def test_a_verified_batch_waits_for_the_replicas_like_any_other() -> None:
    bench = Bench(followed=True)
    asked = bench.write(a_transactional_batch())
    bench.verifier.answer()
    assert asked.waits
    bench.replicas.follow(1, 1)
    bench.replicas.follow(2, 1)
    assert codes(asked) == [0]


@on_a_loop
async def test_a_leader_that_is_deposed_meanwhile_says_so() -> None:
    bench = Bench(followed=True)
    asked = bench.write(a_transactional_batch())
    bench.replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    bench.verifier.answer()
    assert codes(asked) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(bench.write(a_transactional_batch())) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert len(bench.verifier.asked) == 1


def test_a_fault_behind_the_verification_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        for at_once in (True, False):
            bench = Bench()
            bench.verifier.at_once = at_once
            bench.services.error_counts = None  # type: ignore[assignment]  # a fault
            asked = bench.write(a_transactional_batch())
            if not at_once:
                bench.verifier.answer()
            assert asked.control is CLOSE

    scenario()
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


@on_a_loop
async def test_a_verified_batch_that_a_worker_must_look_at_is_appended_afterwards() -> None:
    bench = Bench(compression_type="gzip")
    asked = bench.write(a_transactional_batch(records=3))
    bench.verifier.answer()
    await until(lambda: not asked.waits)
    assert codes(asked) == [0]
    assert bench.replicas.partition.log.log_end_offset == 3
    assert bench.replicas.partition.log.last_stable_offset == 0


@on_a_loop
async def test_the_receive_buffer_may_be_used_again_while_the_coordinator_is_asked() -> None:
    bench = Bench()
    first = bench.write(a_transactional_batch(records=2))
    bench.write(a_transactional_batch(records=2, producer_id=PRODUCER + 1), transactional_id="other")
    bench.verifier.answer()
    bench.verifier.answer()
    assert codes(first) == [0]
    assert [producer.producer_id for producer in bench.replicas.partition.log.active_producers()] == [PRODUCER, PRODUCER + 1]


@on_a_loop
async def test_a_large_request_is_verified_and_appended_in_turns() -> None:
    bench = Bench()
    every_pause_waits()
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(100)))
    bench.know(**{f"p{index}": 0 for index in range(100)})
    asked = bench.write(*(a_transactional_batch() for _ in range(100)))
    while not bench.verifier.asked:
        await a_turn()
    bench.verifier.answer()
    while asked.waits:
        await a_turn()
    assert codes(asked) == [0] * 100


@on_a_loop
async def test_acks_0_closes_the_connection_when_the_batch_was_not_verified() -> None:
    bench = Bench()
    asked = bench.write(a_transactional_batch(), acks=0)
    bench.verifier.answer()
    assert asked.control == NO_RESPONSE
    bench.end_transaction()
    asked = bench.write(a_transactional_batch(1), acks=0)
    bench.verifier.answer(p0=ErrorCode.INVALID_TXN_STATE)
    assert asked.control == CLOSE


@on_a_loop
async def test_without_verification_batches_are_appended_at_once() -> None:
    bench = Bench()
    bench.replicas.logs.context.verifies_transactions = lambda: False
    assert codes(bench.write(a_transactional_batch())) == [0]
    assert bench.verifier.asked == []


@on_a_loop
async def test_plain_batches_of_a_transactional_producer_are_appended_at_once() -> None:
    bench = Bench()
    assert codes(bench.write(a_batch(), a_batch(producer_id=PRODUCER))) == [0, 0]
    assert bench.verifier.asked == []


# -- requests that are refused as a whole ------------------------------------------------------------------------------------


@on_a_loop
async def test_a_client_that_may_not_use_the_transactional_id_writes_nothing() -> None:
    bench = Bench()
    bench.connection = ClientConnection(Grants(WRITES))
    assert codes(bench.write(a_batch(), a_transactional_batch())) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert codes(bench.write(a_batch(), a_batch())) == [0, 0]
    bench.connection = ClientConnection(Grants(WRITES, TRANSACTS))
    assert bench.write(a_batch(), a_transactional_batch()).waits


@pytest.mark.parametrize("other", [{"producer_id": PRODUCER + 1}, {"epoch": 1}])
def test_two_producers_in_one_request_are_refused(other: dict[str, int]) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench = Bench()
        asked = bench.write(a_transactional_batch(), a_transactional_batch(**other))
        assert codes(asked) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert bench.replicas.partition.log.log_end_offset == 0
        assert bench.verifier.asked == []

    scenario()


@on_a_loop
async def test_a_transactional_batch_without_a_transactional_id_is_refused() -> None:
    bench = Bench()
    assert codes(bench.write(a_transactional_batch(), transactional_id=None)) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert bench.replicas.partition.log.log_end_offset == 0


@on_a_loop
async def test_partitions_that_are_not_here_are_refused_before_anything_is_asked() -> None:
    bench = Bench()
    bench.know(p0=0, p1=0, p2=1)
    asked = bench.write(None, None, a_transactional_batch(), a_transactional_batch())
    assert codes(asked)[2:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert bench.verifier.asked == []
