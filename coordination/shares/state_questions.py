"""Declares what the coordinators of share partitions can be asked, and how many questions become one request to another broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state import coordinator as results
from ottla.coordination.shares.state.coordinator import Reply, ShareCoordinator, StateResult, StateWrite
from ottla.coordination.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import delete_share_group_state as deleting
from ottla.protocol.messages import initialize_share_group_state as initializing
from ottla.protocol.messages import read_share_group_state as reading
from ottla.protocol.messages import read_share_group_state_summary as summarizing
from ottla.protocol.messages import write_share_group_state as writing
from ottla.protocol.schema.message import Message

NO_ANSWER: Final = results.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
"""The result of a share partition that a response leaves out."""


class Question:
    """Something to ask the coordinator of a share partition. A subclass stands for one API."""

    api_key: ClassVar[ApiKey]
    version: ClassVar[int] = 0
    request_type: ClassVar[Any]
    topic_type: ClassVar[Any]

    def __init__(self, key: SharePartitionKey) -> None:
        self.key = key

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """Ask this broker's coordinator."""
        raise NotImplementedError

    def asked(self) -> Any:
        """The share partition in the request."""
        raise NotImplementedError

    @staticmethod
    def answered(found: Any) -> StateResult:
        """The result of a share partition in the response."""
        return StateResult(ErrorCode.of(found.error_code), found.error_message)


def request_of(kind: type[Question], group_id: str, questions: Iterable[Question]) -> Message:
    """The request of questions of one kind about one group, each about another share partition."""
    topics: dict[bytes, list[Any]] = {}
    for question in questions:
        topics.setdefault(question.key.topic_id, []).append(question.asked())
    request: Message = kind.request_type(
        group_id=group_id, topics=[kind.topic_type(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
    )
    return request


def results_of(kind: type[Question], group_id: str, response: Any) -> dict[SharePartitionKey, StateResult]:
    """The results in the response, by share partition."""
    return {
        SharePartitionKey(group_id, topic.topic_id, found.partition): kind.answered(found)
        for topic in response.results
        for found in topic.partitions
    }


class ReadState(Question):
    """The leader of this epoch reads the state of a share partition."""

    api_key = ApiKey.READ_SHARE_GROUP_STATE
    request_type = reading.ReadShareGroupStateRequest
    topic_type = reading.ReadStateData

    def __init__(self, key: SharePartitionKey, leader_epoch: int) -> None:
        super().__init__(key)
        self._leader_epoch = leader_epoch

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.read(self.key, self._leader_epoch, reply)

    def asked(self) -> reading.PartitionData:
        """See Question."""
        return reading.PartitionData(partition=self.key.partition, leader_epoch=self._leader_epoch)

    @staticmethod
    def answered(found: reading.PartitionResult) -> StateResult:
        """See Question."""
        return StateResult(
            ErrorCode.of(found.error_code),
            found.error_message,
            state_epoch=found.state_epoch,
            start_offset=found.start_offset,
            batches=tuple(
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found.state_batches
            ),
        )


class WriteState(Question):
    """The leader writes a change of a share partition."""

    api_key = ApiKey.WRITE_SHARE_GROUP_STATE
    version = 1
    request_type = writing.WriteShareGroupStateRequest
    topic_type = writing.WriteStateData

    def __init__(self, key: SharePartitionKey, write: StateWrite) -> None:
        super().__init__(key)
        self._write = write

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.write(self.key, self._write, reply)

    def asked(self) -> writing.PartitionData:
        """See Question."""
        state_epoch, leader_epoch, start_offset, complete_count, batches = self._write
        return writing.PartitionData(
            partition=self.key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=[
                writing.StateBatch(
                    first_offset=each.first, last_offset=each.last, delivery_state=each.state, delivery_count=each.delivery_count
                )
                for each in batches
            ],
        )


class InitializeState(Question):
    """A group coordinator begins the state of a share partition anew; the first leader decides where it starts."""

    api_key = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    request_type = initializing.InitializeShareGroupStateRequest
    topic_type = initializing.InitializeStateData

    def __init__(self, key: SharePartitionKey, state_epoch: int, start_offset: int = NO_OFFSET) -> None:
        super().__init__(key)
        self._state_epoch = state_epoch
        self._start_offset = start_offset

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.initialize(self.key, self._state_epoch, self._start_offset, reply)

    def asked(self) -> initializing.PartitionData:
        """See Question."""
        return initializing.PartitionData(partition=self.key.partition, state_epoch=self._state_epoch, start_offset=self._start_offset)


class DeleteState(Question):
    """A group coordinator deletes the state of a share partition."""

    api_key = ApiKey.DELETE_SHARE_GROUP_STATE
    request_type = deleting.DeleteShareGroupStateRequest
    topic_type = deleting.DeleteStateData

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.delete(self.key, reply)

    def asked(self) -> deleting.PartitionData:
        """See Question."""
        return deleting.PartitionData(partition=self.key.partition)


class SummarizeState(Question):
    """A group coordinator asks where a share partition starts, and how many records after that are complete."""

    api_key = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    version = 1
    request_type = summarizing.ReadShareGroupStateSummaryRequest
    topic_type = summarizing.ReadStateSummaryData

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.summarize(self.key, reply)

    def asked(self) -> summarizing.PartitionData:
        """See Question."""
        return summarizing.PartitionData(partition=self.key.partition)

    @staticmethod
    def answered(found: summarizing.PartitionResult) -> StateResult:
        """See Question."""
        return StateResult(
            ErrorCode.of(found.error_code),
            found.error_message,
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset,
            complete_count=found.delivery_complete_count,
        )
