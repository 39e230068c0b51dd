"""Asks the coordinators of share partitions to read and change the stored state, wherever they are. Kafka's PersisterStateManager.

If this broker is the coordinator, it is asked directly. Otherwise a request goes to the broker that leads the partition of
`__share_group_state`. A coordinator may be moving or loading, so the question is repeated for some seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from ottla.broker.loop.timing_wheel import TimingWheel
from ottla.broker.request.internal_topics import SHARE_STATE_TOPIC
from ottla.broker.shares.record_states import StateBatch
from ottla.broker.shares.state import coordinator as results
from ottla.broker.shares.state.coordinator import Reply, ShareCoordinator, StateResult, StateWrite
from ottla.broker.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import delete_share_group_state as deleting
from ottla.protocol.messages import initialize_share_group_state as initializing
from ottla.protocol.messages import read_share_group_state as reading
from ottla.protocol.messages import read_share_group_state_summary as summarizing
from ottla.protocol.messages import write_share_group_state as writing
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import UnsupportedField, UnsupportedVersion
from ottla.replication.ports.cluster import MetadataCache

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 10
FIRST_PAUSE_MS: Final = 20
LONGEST_PAUSE_MS: Final = 1_000

RETRIABLE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}
)

READ_VERSION: Final = 0
WRITE_VERSION: Final = 1
SUMMARY_VERSION: Final = 1

AskBroker: TypeAlias = Callable[[int, ApiKey, int, Message], Awaitable[Any]]
"""Sends a request to a broker by its id. Raises OSError if it does not answer."""


class Question(Protocol):
    """Something to ask the coordinator of a share partition."""

    @property
    def key(self) -> SharePartitionKey:
        """The share partition."""

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """Ask this broker's coordinator."""

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """Ask another broker's coordinator. Raises OSError, UnsupportedVersion."""


class ReadState:
    """The leader of this epoch reads the state of a share partition."""

    def __init__(self, key: SharePartitionKey, leader_epoch: int) -> None:
        self.key = key
        self._leader_epoch = leader_epoch

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.read(self.key, self._leader_epoch, reply)

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """See Question."""
        group_id, topic_id, index = self.key
        partitions = [reading.PartitionData(partition=index, leader_epoch=self._leader_epoch)]
        topics = [reading.ReadStateData(topic_id=topic_id, partitions=partitions)]
        request = reading.ReadShareGroupStateRequest(group_id=group_id, topics=topics)
        response = await ask(broker_id, ApiKey.READ_SHARE_GROUP_STATE, READ_VERSION, request)
        found = _only(response)
        return StateResult(
            ErrorCode.of(found.error_code),
            found.error_message,
            state_epoch=found.state_epoch,
            start_offset=found.start_offset,
            batches=tuple(
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in found.state_batches
            ),
        )


class WriteState:
    """The leader writes a change of a share partition."""

    def __init__(self, key: SharePartitionKey, write: StateWrite) -> None:
        self.key = key
        self._write = write

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.write(self.key, self._write, reply)

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """See Question."""
        group_id, topic_id, index = self.key
        state_epoch, leader_epoch, start_offset, complete_count, batches = self._write
        partition = writing.PartitionData(
            partition=index,
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
        topics = [writing.WriteStateData(topic_id=topic_id, partitions=[partition])]
        request = writing.WriteShareGroupStateRequest(group_id=group_id, topics=topics)
        found = _only(await ask(broker_id, ApiKey.WRITE_SHARE_GROUP_STATE, WRITE_VERSION, request))
        return StateResult(ErrorCode.of(found.error_code), found.error_message)


class InitializeState:
    """A group coordinator begins the state of a share partition anew; the first leader decides where it starts."""

    def __init__(self, key: SharePartitionKey, state_epoch: int, start_offset: int = NO_OFFSET) -> None:
        self.key = key
        self._state_epoch = state_epoch
        self._start_offset = start_offset

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.initialize(self.key, self._state_epoch, self._start_offset, reply)

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """See Question."""
        group_id, topic_id, index = self.key
        partitions = [initializing.PartitionData(partition=index, state_epoch=self._state_epoch, start_offset=self._start_offset)]
        topics = [initializing.InitializeStateData(topic_id=topic_id, partitions=partitions)]
        request = initializing.InitializeShareGroupStateRequest(group_id=group_id, topics=topics)
        found = _only(await ask(broker_id, ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request))
        return StateResult(ErrorCode.of(found.error_code), found.error_message)


class DeleteState:
    """A group coordinator deletes the state of a share partition."""

    def __init__(self, key: SharePartitionKey) -> None:
        self.key = key

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.delete(self.key, reply)

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """See Question."""
        group_id, topic_id, index = self.key
        topics = [deleting.DeleteStateData(topic_id=topic_id, partitions=[deleting.PartitionData(partition=index)])]
        request = deleting.DeleteShareGroupStateRequest(group_id=group_id, topics=topics)
        found = _only(await ask(broker_id, ApiKey.DELETE_SHARE_GROUP_STATE, 0, request))
        return StateResult(ErrorCode.of(found.error_code), found.error_message)


class SummarizeState:
    """A group coordinator asks where a share partition starts, and how many records after that are complete."""

    def __init__(self, key: SharePartitionKey) -> None:
        self.key = key

    def ask_here(self, coordinator: ShareCoordinator, reply: Reply) -> None:
        """See Question."""
        coordinator.summarize(self.key, reply)

    async def ask_there(self, ask: AskBroker, broker_id: int) -> StateResult:
        """See Question."""
        group_id, topic_id, index = self.key
        topics = [summarizing.ReadStateSummaryData(topic_id=topic_id, partitions=[summarizing.PartitionData(partition=index)])]
        request = summarizing.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)
        found = _only(await ask(broker_id, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, SUMMARY_VERSION, request))
        return StateResult(
            ErrorCode.of(found.error_code),
            found.error_message,
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset,
            complete_count=found.delivery_complete_count,
        )


class StateAccess:
    """See the module."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        broker_id: int,
        cluster: MetadataCache,
        timing_wheel: TimingWheel,
        ask: AskBroker,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """`create_topic` creates `__share_group_state`."""
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._cluster = cluster
        self._timing_wheel = timing_wheel
        self._ask_broker = ask
        self._create_topic = create_topic
        self._creating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[int, asyncio.Lock] = {}
        """By broker: one request to it is in flight at a time."""

    def ask(self, question: Question, reply: Reply) -> None:
        """Ask until there is an answer, for some seconds. `reply` is called once, maybe at once."""
        self._attempt(question, reply, ATTEMPTS, FIRST_PAUSE_MS)

    async def close(self) -> None:
        """Give up the questions that others have not answered."""
        tasks = [*self._tasks, *([self._creating] if self._creating is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _attempt(self, question: Question, reply: Reply, left: int, pause_ms: int) -> None:
        then = partial(self._on_result, question, reply, left - 1, pause_ms)
        if SHARE_STATE_TOPIC not in self._cluster.topics:
            self._begin_topic()
            then(results.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        leader_id, _ = self._cluster.leader_of(SHARE_STATE_TOPIC, self._coordinator.partition_for(question.key))
        if leader_id == self._broker_id:
            question.ask_here(self._coordinator, then)
        elif leader_id not in self._cluster.brokers:
            then(results.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            task = asyncio.get_running_loop().create_task(self._ask_there(question, leader_id, then), name="share-state")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_result(self, question: Question, reply: Reply, left: int, pause_ms: int, result: StateResult) -> None:
        if result.error in RETRIABLE and left:
            next_pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            self._timing_wheel.add(pause_ms, partial(self._attempt, question, reply, left, next_pause_ms))
        else:
            reply(result)

    async def _ask_there(self, question: Question, leader_id: int, then: Reply) -> None:
        try:
            async with self._turns.setdefault(leader_id, asyncio.Lock()):
                result = await question.ask_there(self._ask_broker, leader_id)
        except (UnsupportedVersion, UnsupportedField) as error:
            logger.warning("broker %d does not coordinate share partitions: %s", leader_id, error)
            result = results.refused(ErrorCode.UNSUPPORTED_VERSION)
        except OSError as error:
            logger.info("broker %d does not answer about share partition %s: %s", leader_id, question.key, error)
            result = results.refused(ErrorCode.NETWORK_EXCEPTION)
        except Exception:  # a fault of this broker: the members would wait forever
            logger.exception("broker %d could not be asked about share partition %s", leader_id, question.key)
            result = results.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        then(result)

    def _begin_topic(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create(), name="share-state-topic")

    async def _create(self) -> None:
        try:
            await self._create_topic()
        except Exception:  # it is tried again with the next attempt
            logger.exception("topic %s could not be created", SHARE_STATE_TOPIC)


def _only(response: Any) -> Any:
    (topic,) = response.results
    (partition,) = topic.partitions
    return partition
