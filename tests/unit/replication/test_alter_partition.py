"""Proposals on their way to the controller: what is asked together, what is asked again, and who is told (AlterPartition, KIP-497)."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.alter_partition import AlterPartition, put_proposals
from ottla.replication.ports.isr_proposals import IsrDecision, IsrProposal
from ottla.replication.ports.peer import PeerUnavailable
from tests.support.pauses import at_once, every_pause_waits

IDS = {"orders": b"id of the orders", "bills": b"id of the bills.", "old": ZERO_UUID}
TURNS = 50


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Controller:
    """Answers what the test says, when it says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, AlterPartitionRequest]] = []
        self.answers: list[asyncio.Future[Message]] = []
        self.slept: list[float] = []
        self.broker_epoch = 7
        self.decided: dict[str, list[IsrDecision]] = {}
        self.proposals = AlterPartition(1, lambda: self.broker_epoch, self._ask, sleep=self._sleep)

    async def _ask(self, api_key: ApiKey, version: int, request: Message) -> Message:
        assert api_key == ApiKey.ALTER_PARTITION
        assert isinstance(request, AlterPartitionRequest)
        request.encode(version)  # what goes over the wire has only fields of its version
        self.asked.append((version, request))
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def propose(self, topic: str = "orders", index: int = 0, isr: tuple[int, ...] = (1, 2)) -> bool:
        """A leader's proposal."""
        proposal = IsrProposal(TopicPartition(topic, index), IDS[topic], 3, 5, isr, 0)
        return self.proposals.propose(proposal, self.decided.setdefault(f"{topic}-{index}", []).append)

    async def answer(self, *partitions: AlterPartitionResponseTopicData, error: ErrorCode = ErrorCode.NONE) -> None:
        """The answer to the request that is under way."""
        self.answers[-1].set_result(AlterPartitionResponse(error_code=error, topics=list(partitions)))
        await turns()

    def partitions_asked(self) -> list[tuple[str, int]]:
        """Those of the last request."""
        _, request = self.asked[-1]
        return [(topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions]


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def topic(name: str, *partitions: AlterPartitionResponsePartitionData, by_name: bool = False) -> AlterPartitionResponseTopicData:
    """Answers about one topic."""
    if by_name:
        return AlterPartitionResponseTopicData(topic_name=name, partitions=list(partitions))
    return AlterPartitionResponseTopicData(topic_id=IDS[name], partitions=list(partitions))


def done(index: int = 0, isr: tuple[int, ...] = (1, 2), recovery: int = 0) -> AlterPartitionResponsePartitionData:
    """The controller did it."""
    return AlterPartitionResponsePartitionData(
        partition_index=index, leader_id=1, leader_epoch=3, isr=list(isr), partition_epoch=6, leader_recovery_state=recovery
    )


def refused(code: ErrorCode, index: int = 0) -> AlterPartitionResponsePartitionData:
    """The controller did not do it."""
    return AlterPartitionResponsePartitionData(partition_index=index, error_code=code)


@on_a_loop
async def test_what_is_proposed_in_one_turn_goes_in_one_request_with_names_as_ids_and_without_broker_epochs() -> None:
    controller = Controller()
    assert controller.propose("orders", 0)
    assert controller.propose("bills", 2)
    assert controller.propose("orders", 1)
    await turns()
    ((version, request),) = controller.asked
    assert version == 3
    assert (request.broker_id, request.broker_epoch) == (1, 7)
    assert [(each.topic_id, len(each.partitions)) for each in request.topics] == [(IDS["orders"], 2), (IDS["bills"], 1)]
    asked = request.topics[0].partitions[0]
    assert [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs] == [(1, -1), (2, -1)]
    assert (asked.leader_epoch, asked.partition_epoch, asked.leader_recovery_state) == (3, 5, 0)


@on_a_loop
async def test_while_a_request_is_under_way_others_wait_and_go_together_with_the_next() -> None:
    controller = Controller()
    controller.propose("orders", 0)
    await turns()
    controller.propose("orders", 1)
    controller.propose("bills", 0)
    await turns()
    assert len(controller.asked) == 1
    await controller.answer(topic("orders", done(0)))
    assert controller.partitions_asked() == [("orders", 1), ("bills", 0)]
    assert not controller.slept


@on_a_loop
async def test_very_many_go_in_one_request_that_is_made_and_carried_out_in_several_turns() -> None:
    controller = Controller()
    every_pause_waits()
    many = range(20)
    for index in many:
        controller.propose("orders", index)
    await asyncio.sleep(0)
    assert not controller.asked
    await turns()
    assert controller.partitions_asked() == [("orders", index) for index in many]
    controller.answers[-1].set_result(AlterPartitionResponse(topics=[topic("orders", *map(done, many))]))
    seen = set()
    while controller.proposals.undecided:
        seen.add(controller.proposals.undecided)
        await asyncio.sleep(0)
    assert seen == set(range(1, len(many) + 1))
    await turns()
    assert len(controller.asked) == 1
    assert all(len(controller.decided[f"orders-{index}"]) == 1 for index in many)


@on_a_loop
async def test_only_one_proposal_of_a_partition_is_under_way() -> None:
    controller = Controller()
    assert controller.propose()
    assert not controller.propose(isr=(1,))
    await turns()
    assert not controller.propose(isr=(1,))
    await controller.answer(topic("orders", done()))
    assert controller.propose(isr=(1,))
    await controller.proposals.close()


@on_a_loop
async def test_the_leader_is_told_what_the_controller_decided() -> None:
    controller = Controller()
    controller.propose(index=0)
    controller.propose(index=1)
    await turns()
    await controller.answer(topic("orders", done(0, isr=(1,)), refused(ErrorCode.INELIGIBLE_REPLICA, 1)))
    assert controller.decided["orders-0"] == [IsrDecision(ErrorCode.NONE, 1, 3, (1,), 0, 6)]
    assert controller.decided["orders-1"] == [IsrDecision(ErrorCode.INELIGIBLE_REPLICA, -1, 3, (1, 2), 0, 5)]
    assert controller.proposals.undecided == 0


@on_a_loop
async def test_a_leader_that_is_told_may_propose_something_else_at_once() -> None:
    controller = Controller()
    again: list[bool] = []
    first = IsrProposal(TopicPartition("orders", 0), IDS["orders"], 3, 5, (1, 2), 0)
    controller.proposals.propose(first, lambda decision: again.append(controller.propose(isr=(1,))))
    await turns()
    await controller.answer(topic("orders", done()))
    assert again == [True]
    assert len(controller.asked) == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR]
)
@on_a_loop
async def test_an_error_of_the_whole_request_is_followed_by_another_50_ms_later_in_the_broker_epoch_of_then(code: ErrorCode) -> None:
    controller = Controller()
    controller.propose()
    await turns()
    controller.broker_epoch = 9
    controller.propose("bills")
    await controller.answer(error=code)
    assert controller.slept == [0.05]
    assert controller.partitions_asked() == [("orders", 0), ("bills", 0)]
    assert controller.asked[-1][1].broker_epoch == 9
    assert not controller.decided["orders-0"]
    await controller.answer(topic("orders", done()), topic("bills", done()))
    assert controller.decided["orders-0"][0].error_code == ErrorCode.NONE


@on_a_loop
async def test_a_controller_that_cannot_be_reached_is_asked_again() -> None:
    controller = Controller()
    controller.propose()
    await turns()
    controller.answers[-1].set_exception(PeerUnavailable("connection lost"))
    await turns()
    assert controller.slept == [0.05]
    await controller.answer(topic("orders", done()))
    assert controller.decided["orders-0"][0].partition_epoch == 6


@on_a_loop
async def test_a_partition_that_the_answer_leaves_out_is_asked_about_again() -> None:
    controller = Controller()
    controller.propose(index=0)
    controller.propose(index=1)
    await turns()
    await controller.answer(topic("orders", done(0)), AlterPartitionResponseTopicData(topic_id=b"nobody knows it.", partitions=[done(1)]))
    assert controller.partitions_asked() == [("orders", 1)]
    assert len(controller.decided["orders-0"]) == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
@on_a_loop
async def test_after_an_error_that_its_leader_answers_with_the_same_proposal_the_next_request_waits(code: ErrorCode) -> None:
    controller = Controller()

    def again(decision: IsrDecision) -> None:
        controller.propose()

    controller.proposals.propose(IsrProposal(TopicPartition("orders", 0), IDS["orders"], 3, 5, (1, 2), 0), again)
    await turns()
    await controller.answer(topic("orders", refused(code)))
    assert controller.slept == [0.05]
    assert len(controller.asked) == 2


@on_a_loop
async def test_a_partition_that_is_refused_again_and_again_is_asked_about_less_and_less_often() -> None:
    controller = Controller()
    proposal = IsrProposal(TopicPartition("orders", 0), IDS["orders"], 3, 5, (1, 2), 0)

    def again(_: IsrDecision) -> None:
        controller.proposals.propose(proposal, again)

    controller.proposals.propose(proposal, again)
    await turns()
    for _ in range(4):
        await controller.answer(topic("orders", refused(ErrorCode.UNKNOWN_SERVER_ERROR)))
    assert controller.slept == [0.05, 0.1, 0.2, 0.4]
    await controller.proposals.close()


@on_a_loop
async def test_what_a_deleted_topic_left_undecided_is_not_asked_of_the_next_topic_of_its_name() -> None:
    controller = Controller()
    controller.propose("orders", 0)
    await turns()
    another = b"id of new orders"
    told: list[IsrDecision] = []
    controller.proposals.propose(IsrProposal(TopicPartition("orders", 1), another, 3, 5, (1, 2), 0), told.append)
    await controller.answer(error=ErrorCode.NOT_CONTROLLER)
    (_, request) = controller.asked[-1]
    assert [(each.topic_id, [of.partition_index for of in each.partitions]) for each in request.topics] == [
        (IDS["orders"], [0]),
        (another, [1]),
    ]
    gone = topic("orders", refused(ErrorCode.UNKNOWN_TOPIC_ID))
    await controller.answer(gone, AlterPartitionResponseTopicData(topic_id=another, partitions=[done(1)]))
    assert controller.decided["orders-0"][0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert [decision.error_code for decision in told] == [ErrorCode.NONE]


@on_a_loop
async def test_one_topic_without_an_id_makes_the_whole_request_speak_names() -> None:
    controller = Controller()
    controller.propose("orders")
    controller.propose("old")
    await turns()
    ((version, request),) = controller.asked
    assert version == 1
    assert [each.partitions[0].new_isr for each in request.topics] == [[1, 2], [1, 2]]
    await controller.answer(topic("orders", done(), by_name=True), topic("old", done(), by_name=True))
    assert controller.proposals.undecided == 0


@on_a_loop
async def test_an_old_inter_broker_protocol_speaks_names() -> None:
    controller = Controller()
    controller.proposals = AlterPartition(1, lambda: 7, controller._ask, uses_topic_ids=False)
    controller.propose()
    await turns()
    assert controller.asked[0][0] == 1
    await controller.answer(topic("orders", done(), by_name=True))
    assert controller.decided["orders-0"][0].isr == (1, 2)


@on_a_loop
async def test_an_answer_that_makes_no_sense_is_an_error() -> None:
    controller = Controller()
    controller.propose()
    await turns()
    await controller.answer(topic("orders", done(recovery=9)))
    assert controller.decided["orders-0"][0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@on_a_loop
async def test_a_leader_that_fails_over_its_decision_takes_the_others_not_with_it() -> None:
    controller = Controller()

    def fail(decision: IsrDecision) -> None:
        raise RuntimeError("a fault")

    controller.proposals.propose(IsrProposal(TopicPartition("bills", 0), IDS["bills"], 3, 5, (1, 2), 0), fail)
    controller.propose("orders")
    await turns()
    await controller.answer(topic("bills", done()), topic("orders", done()))
    assert controller.decided["orders-0"][0].error_code == ErrorCode.NONE
    controller.propose("orders")
    await turns()
    assert len(controller.asked) == 2
    await controller.proposals.close()


@on_a_loop
async def test_after_close_nothing_is_asked_and_nobody_is_told() -> None:
    controller = Controller()
    controller.propose()
    await turns()
    await controller.proposals.close()
    assert controller.answers[-1].cancelled()
    assert not controller.decided["orders-0"]
    assert controller.proposals.undecided == 0


@on_a_loop
async def test_a_fault_of_the_way_to_the_controller_does_not_end_the_asking() -> None:
    controller = Controller()
    controller.propose()
    await turns()
    controller.answers[-1].set_exception(RuntimeError("a fault"))
    await turns()
    controller.answers[-1].set_result(cast("Any", "no answer"))
    await turns()
    await controller.answer(topic("orders", done()))
    assert len(controller.decided["orders-0"]) == 1


def recorded_requests() -> list[tuple[int, bytes]]:
    """(version, body) of what Apache Kafka's brokers asked their controller."""
    found = []
    for line in (Path(__file__).parents[2] / "golden" / "wire" / "interbroker.jsonl").read_text().splitlines():
        each = json.loads(line)
        if each["api_key"] == ApiKey.ALTER_PARTITION:
            frame = bytes.fromhex(each["request_hex"])
            header_bytes = 11 + len(each["client_id"])  # api key, version, correlation id, client id, tags
            found.append((each["version"], frame[header_bytes:]))
    return found


def test_the_requests_are_byte_by_byte_those_of_apache_kafka() -> None:
    recorded = recorded_requests()
    assert recorded
    for version, body in recorded:
        request, _ = AlterPartitionRequest.decode(body, version)
        proposals = [
            IsrProposal(
                TopicPartition(each.topic_id.hex(), partition.partition_index),
                each.topic_id,
                partition.leader_epoch,
                partition.partition_epoch,
                tuple(member.broker_id for member in partition.new_isr_with_epochs),
                partition.leader_recovery_state,
            )
            for each in request.topics
            for partition in each.partitions
        ]
        ours = AlterPartitionRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch)
        for proposal in proposals:
            at_once(put_proposals(ours, [proposal], version))
        assert bytes(ours.encode(version)) == body


@on_a_loop
async def test_trouble_is_said_once_and_asked_about_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    caplog.set_level(logging.INFO, logger="ottla.replication.control.alter_partition")
    controller.propose()
    await turns()
    for _ in range(6):
        await controller.answer(error=ErrorCode.STALE_BROKER_EPOCH)
    for _ in range(2):
        controller.answers[-1].set_exception(PeerUnavailable("connection lost"))
        await turns()
    assert controller.slept == [0.05, 0.1, 0.2, *[0.4] * 5]
    await controller.answer(topic("orders", done()))
    assert [record.getMessage() for record in caplog.records] == [
        "AlterPartition of 1 partitions: the controller knows a later broker epoch than 7; asking again until it is decided",
        "AlterPartition of 1 partitions: the controller cannot be reached (connection lost); asking again until it is decided",
        "AlterPartition: the controller answers again",
    ]
    controller.propose(isr=(1,))
    await turns()
    await controller.answer(error=ErrorCode.NOT_CONTROLLER)
    assert controller.slept[-1] == 0.05
