"""AlterPartition that reaches a controller while it takes over, or while topics come and go."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace

from ottla.broker.handlers.control.alter_partition import handle_alter_partition
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.controller.errors import StoreUnavailable
from ottla.controller.events.isr_changes import IsrChange, IsrResult
from ottla.controller.state.context import Leadership
from ottla.controller.znodes.layout import PartitionState
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.pauses import every_pause_waits
from tests.support.replicas import TOPIC, TOPIC_ID
from tests.support.services import services_with


class TakingOver:
    """A controller whose queue holds what it is asked behind the reading of the topics."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(topic_names={})

    async def alter_isr(self, _: int, __: int, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
        self.context.topic_names[TOPIC_ID] = TOPIC
        return {partition: Leadership(PartitionState(0, change.new_isr, 0, 1), 1) for partition, change in changes.items()}


def context_of(controller: TakingOver) -> RequestContext:
    broker = services_with(controller=controller)
    return RequestContext(ApiKey.ALTER_PARTITION, 3, 0, None, ClientConnection(), broker, lambda _, __: CLOSE)


def a_proposal(index: int = 0) -> AlterPartitionRequestPartitionData:
    return AlterPartitionRequestPartitionData(partition_index=index, new_isr_with_epochs=[BrokerState(broker_id=each) for each in (0, 1)])


def ask(topic_id: bytes, controller: TakingOver | None = None) -> tuple[int, list[int]]:
    request = AlterPartitionRequest(topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[a_proposal()])])
    (topic,) = asyncio.run(handle_alter_partition(request, context_of(controller or TakingOver()))).topics
    return topic.partitions[0].error_code, topic.partitions[0].isr


def test_the_leader_of_a_topic_that_is_not_read_yet_is_not_told_that_there_is_none() -> None:
    assert ask(TOPIC_ID) == (ErrorCode.NONE, [0, 1])


def test_a_topic_that_nobody_made_is_unknown() -> None:
    assert ask(b"nobody made this")[0] == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_the_store_refuses_is_an_error_of_the_partition_or_of_all() -> None:
    class Refusing(TakingOver):
        async def alter_isr(self, _: int, __: int, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
            await super().alter_isr(_, __, changes)
            return dict.fromkeys(changes, StoreUnavailable("metadata.db", "disk full"))

    class Full(TakingOver):
        async def alter_isr(self, _: int, __: int, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
            raise StoreUnavailable("metadata.db", "disk full")

    assert ask(TOPIC_ID, Refusing()) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    response = asyncio.run(handle_alter_partition(AlterPartitionRequest(), context_of(Full())))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_proposal_is_about_the_topic_that_its_leader_has_and_no_later_one_of_that_name() -> None:
    given: list[IsrChange] = []

    class Busy(TakingOver):
        async def alter_isr(self, _: int, __: int, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
            given.extend(changes.values())
            return await super().alter_isr(_, __, changes)

    assert ask(TOPIC_ID, Busy()) == (ErrorCode.NONE, [0, 1])
    assert [change.topic_id for change in given] == [TOPIC_ID]


def test_many_proposals_are_read_and_answered_in_many_turns() -> None:
    async def scenario() -> None:
        proposals = [a_proposal(index) for index in range(100)]
        request = AlterPartitionRequest(topics=[AlterPartitionRequestTopicData(topic_id=TOPIC_ID, partitions=proposals)])
        every_pause_waits()
        answering = asyncio.ensure_future(handle_alter_partition(request, context_of(TakingOver())))
        turns = 0
        while not answering.done():
            await asyncio.sleep(0)
            turns += 1
        assert [answered.partition_index for answered in answering.result().topics[0].partitions] == list(range(100))
        assert turns >= 200

    asyncio.run(scenario())
