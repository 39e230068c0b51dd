"""How coordinators are asked whether partitions belong to transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.supported_operation import SupportedOperation
from ottla.coordination.transactions.between import MOST_MS
from ottla.coordination.transactions.metadata import VERSION_2, ProducerIdAndEpoch
from ottla.coordination.transactions.partitions import Partitions
from ottla.coordination.transactions.verification import TransactionVerifier
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.schema.wire import UnsupportedField
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.replicas import brokers, metadata
from tests.support.transaction_bench import TransactionBench, run

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Coordinators:
    """Brokers that answer when the test says so. Ids ending in an even digit are coordinated by broker 0, the others by broker 1."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self._answers: list[asyncio.Future[AddPartitionsToTxnResponse]] = []
        self.cluster = MetadataCache()
        self.knows((0, 1), p0=0, p1=1)
        self.now = 0.0
        self.verifier = TransactionVerifier(
            self.cluster, lambda transactional_id: int(transactional_id[-1]) % 2, self._ask, lambda: self.now
        )
        self.answered: dict[str, dict[TopicPartition, ErrorCode]] = {}

    def knows(self, live: tuple[int, ...], **leaders: int) -> None:
        self.cluster.update(
            UpdateMetadataRequest(
                live_brokers=brokers(*live), topic_states=[metadata(TRANSACTION_STATE_TOPIC, b"id of the topic.", **leaders)]
            )
        )

    async def _ask(self, broker_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.asked.append((broker_id, request))
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def verify(
        self,
        transactional_id: str,
        *partitions: TopicPartition,
        epoch: int = 0,
        name: str | None = None,
        operation: SupportedOperation = SupportedOperation.GENERIC_ERROR,
    ) -> None:
        """Ask; what is told goes to `answered`."""

        def then(errors: dict[TopicPartition, ErrorCode]) -> None:
            assert (name or transactional_id) not in self.answered
            self.answered[name or transactional_id] = errors

        self.verifier.verify(transactional_id, 7, epoch, partitions or (T0,), then, operation)

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for its answer."""
        return bool(self._answers)

    async def answer(self, *results: AddPartitionsToTxnResult, error: Exception | None = None, code: int = 0) -> None:
        """The oldest request is answered."""
        await turn()
        if error is None:
            self._answers.pop(0).set_result(AddPartitionsToTxnResponse(error_code=code, results_by_transaction=list(results)))
        else:
            self._answers.pop(0).set_exception(error)
        await turn()


class Own:
    """The coordinator of the broker itself, which knows these transactions of producer 7 with epoch 0."""

    def __init__(self, known: dict[str, Partitions]) -> None:
        self.known = known
        self.refusals: list[ErrorCode] = []
        """The answers to the next requests to add partitions."""
        self.added: list[tuple[str, ProducerIdAndEpoch, Partitions, int]] = []

    def verify_partitions(self, transactional_id: str, producer: ProducerIdAndEpoch) -> tuple[ErrorCode, Partitions]:
        known = self.known.get(transactional_id)
        if known is None:
            return ErrorCode.NOT_COORDINATOR, {}
        return (ErrorCode.NONE if producer == (7, 0) else ErrorCode.PRODUCER_FENCED), known

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Partitions,
        client_version: int,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        self.added.append((transactional_id, producer, partitions, client_version))
        reply(self.refusals.pop(0) if self.refusals else ErrorCode.NONE)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def result(transactional_id: str, **codes: int) -> AddPartitionsToTxnResult:
    """`p0=48`: the error code of partition 0."""
    found = [AddPartitionsToTxnPartitionResult(partition_index=int(name[1:]), partition_error_code=code) for name, code in codes.items()]
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id, topic_results=[AddPartitionsToTxnTopicResult(name="orders", results_by_partition=found)]
    )


def scenario(of: Callable[[Coordinators], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        coordinators = Coordinators()
        await of(coordinators)
        await coordinators.verifier.close()

    def test() -> None:
        asyncio.run(asyncio.wait_for(run(), 10))

    test.__name__ = of.__name__  # type: ignore[attr-defined]  # it is a function
    return test


@scenario
async def test_the_leader_of_the_partition_of_the_id_is_asked(coordinators: Coordinators) -> None:
    coordinators.verify("id-1", T0, T1)
    await coordinators.answer(result("id-1", p0=0, p1=0))
    ((broker_id, request),) = coordinators.asked
    (transaction,) = request.transactions
    assert broker_id == 1
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("id-1", 7, 0)
    assert transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("orders", [0, 1])]
    assert coordinators.answered == {"id-1": {}}
    assert coordinators.verifier.failures == 0


@scenario
async def test_questions_that_come_meanwhile_go_together_in_the_next_request(coordinators: Coordinators) -> None:
    coordinators.verify("id-0")
    await turn()
    coordinators.verify("id-2")
    coordinators.verify("id-4")
    coordinators.verify("id-1")
    await turn()
    assert [broker_id for broker_id, _ in coordinators.asked] == [0, 1]
    await coordinators.answer(result("id-0", p0=0))
    assert [[each.transactional_id for each in request.transactions] for _, request in coordinators.asked[2:]] == [["id-2", "id-4"]]
    await coordinators.answer(result("id-1", p0=0))
    await coordinators.answer(result("id-4", p0=0), result("id-2", p0=0))
    assert sorted(coordinators.answered) == ["id-0", "id-1", "id-2", "id-4"]


@scenario
async def test_a_broker_that_was_answered_may_be_asked_again(coordinators: Coordinators) -> None:
    for name in ("first", "second"):
        coordinators.verify("id-0", name=name)
        await coordinators.answer(result("id-0", p0=0))
    assert coordinators.answered == {"first": {}, "second": {}}


@pytest.mark.parametrize(
    ("former", "later", "told"),
    [
        pytest.param(0, 0, {"former": ErrorCode.NETWORK_EXCEPTION}, id="the same epoch asks again"),
        pytest.param(0, 1, {"former": ErrorCode.INVALID_PRODUCER_EPOCH}, id="a newer epoch fences"),
        pytest.param(1, 0, {"later": ErrorCode.INVALID_PRODUCER_EPOCH}, id="an older epoch is fenced"),
    ],
)
def test_one_question_of_an_id_waits_at_a_time(former: int, later: int, told: dict[str, ErrorCode]) -> None:
    @scenario
    async def test(coordinators: Coordinators) -> None:
        coordinators.verify("id-2", name="under way")
        await turn()
        coordinators.verify("id-0", epoch=former, name="former")
        coordinators.verify("id-0", epoch=later, name="later")
        assert coordinators.answered == {name: {T0: code} for name, code in told.items()}
        await coordinators.answer(result("id-2", p0=0))
        await coordinators.answer(result("id-0", p0=0))
        assert [transaction.producer_epoch for transaction in coordinators.asked[1][1].transactions] == [max(former, later)]
        assert sorted(coordinators.answered) == ["former", "later", "under way"]
        assert coordinators.verifier.failures == 1

    test()


@scenario
async def test_without_a_coordinator_the_producer_is_told_at_once(coordinators: Coordinators) -> None:
    coordinators.knows((0,), p0=0, p1=1)
    coordinators.verify("id-1", T0, T1)
    coordinators.knows((0,), p0=-1)
    coordinators.verify("id-0")
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinators.answered == {"id-1": {T0: missing, T1: missing}, "id-0": {T0: missing}}
    assert coordinators.asked == []


def test_each_reason_that_a_broker_verifies_nothing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @scenario
    async def test(coordinators: Coordinators) -> None:
        asked = 0
        answers: list[dict[str, Any]] = [{"code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, {"error": PeerUnavailable("gone")}, {}]
        for answer in answers:
            for _ in range(3):
                asked += 1
                coordinators.verify("id-0", name=f"{asked}")
                await coordinators.answer(result("id-0", p0=0), **answer)
        coordinators.verify("id-0")
        await coordinators.answer(error=PeerUnavailable("gone"))

    test()
    denied = (
        "broker 0 refuses to verify transactions: CLUSTER_AUTHORIZATION_FAILED; give the principal of this broker ClusterAction on the "
        "cluster, or name it in super.users"
    )
    gone = "broker 0 does not verify transactions: gone; the producers try again"
    assert [record.getMessage() for record in caplog.records] == [denied, gone, gone]


@pytest.mark.parametrize(
    ("code", "operation", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, SupportedOperation.GENERIC_ERROR, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, SupportedOperation.GENERIC_ERROR, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, SupportedOperation.GENERIC_ERROR, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, SupportedOperation.DEFAULT_ERROR, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, SupportedOperation.DEFAULT_ERROR, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, SupportedOperation.GENERIC_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_the_coordinator_s_errors_are_told_in_words_that_producers_know(
    code: ErrorCode, operation: SupportedOperation, told: ErrorCode
) -> None:
    @scenario
    async def test(coordinators: Coordinators) -> None:
        coordinators.verify("id-0", T0, T1, operation=operation)
        await coordinators.answer(result("id-0", p0=0, p1=code))
        assert coordinators.answered == {"id-0": {T1: told}}
        assert coordinators.verifier.failures == 1

    test()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_error_of_the_whole_request_is_told_to_all(code: ErrorCode, told: ErrorCode) -> None:
    @scenario
    async def test(coordinators: Coordinators) -> None:
        coordinators.verify("id-0", T0)
        coordinators.verify("id-2", T1)
        await coordinators.answer(code=code)
        assert coordinators.answered == {"id-0": {T0: told}, "id-2": {T1: told}}

    test()


@scenario
async def test_a_coordinator_that_does_not_answer_is_a_network_error(coordinators: Coordinators) -> None:
    coordinators.verify("id-0", T0, T1)
    await coordinators.answer(error=PeerUnavailable("gone"))
    assert coordinators.answered == {"id-0": dict.fromkeys((T0, T1), ErrorCode.NETWORK_EXCEPTION)}


@scenario
async def test_a_coordinator_of_an_old_release_is_not_asked_in_vain(coordinators: Coordinators) -> None:
    coordinators.verify("id-0")
    await coordinators.answer(error=UnsupportedField("transactions"))
    assert coordinators.answered == {"id-0": {}}


@scenario
async def test_a_transaction_that_the_answer_leaves_out_is_not_verified(coordinators: Coordinators) -> None:
    coordinators.verify("id-0")
    coordinators.verify("id-2")
    await coordinators.answer(result("id-2", p0=0), result("id-4", p0=0))
    assert coordinators.answered == {"id-2": {}, "id-0": {T0: ErrorCode.UNKNOWN_SERVER_ERROR}}


@scenario
async def test_after_an_answer_that_makes_no_sense_the_next_questions_are_asked(coordinators: Coordinators) -> None:
    coordinators.verify("id-0")
    await coordinators.answer(cast("AddPartitionsToTxnResult", None))
    assert coordinators.answered == {"id-0": {T0: ErrorCode.UNKNOWN_SERVER_ERROR}}
    coordinators.verify("id-2")
    await coordinators.answer(result("id-2", p0=0))
    assert coordinators.answered["id-2"] == {}


@scenario
async def test_one_that_cannot_take_its_answer_does_not_harm_the_others(coordinators: Coordinators) -> None:
    def fail(errors: dict[TopicPartition, ErrorCode]) -> None:
        raise RuntimeError("planted")

    coordinators.verifier.verify("id-0", 7, 0, [T0], fail, SupportedOperation.GENERIC_ERROR)
    coordinators.verify("id-2")
    await coordinators.answer(result("id-0", p0=0), result("id-2", p0=0))
    assert coordinators.answered == {"id-2": {}}


@scenario
async def test_the_time_of_each_question_is_measured(coordinators: Coordinators) -> None:
    took: list[float] = []
    coordinators.verifier.on_answered = took.append
    coordinators.verify("id-0")
    coordinators.now = 0.25
    coordinators.verify("id-2")
    coordinators.now = 1.0
    await coordinators.answer(result("id-0", p0=0), result("id-2", p0=0))
    assert took == [1000.0, 750.0]


@scenario
async def test_a_transaction_of_this_broker_is_confirmed_without_a_question(coordinators: Coordinators) -> None:
    coordinators.verifier.here = 0, Own({"id-0": {"orders": frozenset({0})}})
    coordinators.verify("id-0", T0)
    assert coordinators.answered == {"id-0": {}}
    await turn()
    assert coordinators.asked == []
    # What this broker does not confirm gets its error on the way of all others.
    coordinators.verify("id-0", T0, T1, name="a partition too many")
    coordinators.verify("id-1", T0, epoch=1)
    await turn()
    assert [broker_id for broker_id, _ in coordinators.asked] == [0, 1]


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "topic", "index", "confirmed"),
    [
        ("id", 7, 0, "orders", 0, True),
        ("id", 7, 0, "orders", 1, False),
        ("id", 7, 0, "others", 0, False),
        ("id", 7, 1, "orders", 0, False),
        ("id", 8, 0, "orders", 0, False),
        ("di", 7, 0, "orders", 0, False),
    ],
)
def test_this_broker_confirms_only_what_its_coordinator_knows(
    transactional_id: str, producer_id: int, epoch: int, topic: str, index: int, confirmed: bool
) -> None:
    async def scenario(bench: TransactionBench) -> None:
        verifier = Coordinators().verifier
        assert not verifier.is_confirmed_here("id", 7, 0, "orders", 0)
        bench.new_producer_id = lambda: 7
        await bench.coordinate()
        bench.init()
        bench.add(0, topic="orders")
        verifier.here = 0, bench.transactions
        assert verifier.is_confirmed_here(transactional_id, producer_id, epoch, topic, index) is confirmed
        bench.end()
        assert not verifier.is_confirmed_here("id", 7, 0, "orders", 0)

    run(scenario)


ADDS = SupportedOperation.ADD_PARTITION


@scenario
async def test_a_question_of_version_2_adds_the_partitions(coordinators: Coordinators) -> None:
    coordinators.verify("id-1", T0, T1, operation=ADDS)
    await coordinators.answer(result("id-1", p0=0, p1=0))
    ((_, request),) = coordinators.asked
    assert not request.transactions[0].verify_only
    assert coordinators.answered == {"id-1": {}}


@scenario
async def test_one_request_has_questions_of_both_versions(coordinators: Coordinators) -> None:
    coordinators.verify("id-0", T0)
    await turn()
    coordinators.verify("id-2", T0)
    coordinators.verify("id-4", T0, operation=ADDS)
    await coordinators.answer(result("id-0", p0=0))
    await turn()
    assert [(each.transactional_id, each.verify_only) for each in coordinators.asked[1][1].transactions] == [
        ("id-2", True),
        ("id-4", False),
    ]


@scenario
async def test_this_broker_adds_partitions_to_its_own_transactions_without_a_request(coordinators: Coordinators) -> None:
    own = Own({})
    coordinators.verifier.here = 0, own
    coordinators.verify("id-0", T0, T1, operation=ADDS)
    assert own.added == [("id-0", (7, 0), {"orders": frozenset({0, 1})}, VERSION_2)]
    assert coordinators.answered == {"id-0": {}}
    own.refusals = [ErrorCode.PRODUCER_FENCED]
    coordinators.verify("id-0", T0, operation=ADDS, name="fenced")
    assert coordinators.answered["fenced"] == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
    await turn()
    assert coordinators.asked == []


@pytest.mark.parametrize("is_here", [True, False])
def test_while_the_coordinator_cannot_add_partitions_it_is_asked_again(is_here: bool) -> None:
    @scenario
    async def test(coordinators: Coordinators) -> None:
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        own = Own({})
        own.refusals = [busy, busy]
        if is_here:
            coordinators.verifier.here = 0, own
        coordinators.verify("id-0", T0, operation=ADDS)
        for _ in range(0 if is_here else 2):
            await until(lambda: coordinators.is_asked)
            await coordinators.answer(result("id-0", p0=busy))
        assert coordinators.answered == {}
        if is_here:
            await until(lambda: bool(coordinators.answered))
            assert len(own.added) == 3
        else:
            await until(lambda: coordinators.is_asked)
            await coordinators.answer(result("id-0", p0=0))
        assert coordinators.answered == {"id-0": {}}
        assert coordinators.verifier.failures == 0

    test()


@scenario
async def test_after_some_time_the_client_is_told_that_the_coordinator_is_busy(coordinators: Coordinators) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    coordinators.verify("id-0", T0, operation=ADDS)
    await coordinators.answer(result("id-0", p0=busy))
    await until(lambda: coordinators.is_asked)
    coordinators.now += MOST_MS / 1000
    await coordinators.answer(result("id-0", p0=busy))
    assert coordinators.answered == {"id-0": {T0: busy}}
    assert coordinators.verifier.failures == 1


@scenario
async def test_a_broker_that_cannot_be_asked_adds_nothing(coordinators: Coordinators) -> None:
    coordinators.verify("id-0", T0, operation=ADDS)
    await coordinators.answer(error=UnsupportedField("verify_only"))
    assert coordinators.answered == {"id-0": {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}}


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")
