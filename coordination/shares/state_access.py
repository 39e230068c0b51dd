"""Asks the coordinators of share partitions to read and change the stored state, wherever they are. Kafka's PersisterStateManager.

If this broker is the coordinator, it is asked directly. Otherwise a request goes to the broker that leads the partition of
`__share_group_state`. A coordinator may be moving or loading, so the question is repeated for some seconds.

One request to a broker is in flight at a time. Questions that arrive meanwhile wait; those of one API about one group are then one request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.shares.state import coordinator as results
from ottla.coordination.shares.state.coordinator import Reply, ShareCoordinator, StateResult
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.coordination.shares.state_questions import NO_ANSWER, Question, request_of, results_of
from ottla.pauses import pause
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import UnsupportedField, UnsupportedVersion
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.waiting.timing_wheel import TimingWheel

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 10
FIRST_PAUSE_MS: Final = 20
LONGEST_PAUSE_MS: Final = 1_000
MOST_PARTITIONS: Final = 500
"""Share partitions in one request, as others may wait for the broker."""

RETRIABLE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}
)

AskBroker: TypeAlias = Callable[[int, ApiKey, int, Message], Awaitable[Any]]
"""Sends a request to a broker by its id. Raises OSError if it does not answer."""

Waiting: TypeAlias = dict[SharePartitionKey, tuple[Question, Reply]]


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
        self._others: dict[int, OtherBroker] = {}

    def ask(self, question: Question, reply: Reply) -> None:
        """Ask until there is an answer, for some seconds. `reply` is called once, maybe at once."""
        self._attempt(question, reply, ATTEMPTS, FIRST_PAUSE_MS)

    async def close(self) -> None:
        """Give up the questions that others have not answered."""
        tasks = [other.task for other in self._others.values()] + [self._creating]
        ended = [task for task in tasks if task is not None]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

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
            other = self._others.get(leader_id)
            if other is None:
                other = self._others[leader_id] = OtherBroker(leader_id, self._ask_broker)
            other.ask(question, then)

    def _on_result(self, question: Question, reply: Reply, left: int, pause_ms: int, result: StateResult) -> None:
        if result.error in RETRIABLE and left:
            next_pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            self._timing_wheel.add(pause_ms, partial(self._attempt, question, reply, left, next_pause_ms))
        else:
            reply(result)

    def _begin_topic(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create(), name="share-state-topic")

    async def _create(self) -> None:
        try:
            await self._create_topic()
        except Exception:  # it is tried again with the next attempt
            logger.exception("topic %s could not be created", SHARE_STATE_TOPIC)


class OtherBroker:
    """Asks another broker; combines the questions that wait for it. `task` does so while there are some."""

    __slots__ = ("_ask", "_broker_id", "_waiting", "task")

    def __init__(self, broker_id: int, ask: AskBroker) -> None:
        self.task: asyncio.Task[None] | None = None
        self._broker_id = broker_id
        self._ask = ask
        self._waiting: dict[tuple[type[Question], str], list[tuple[Question, Reply]]] = {}
        """The questions by kind and group. The group that has waited longest comes first."""

    def ask(self, question: Question, then: Reply) -> None:
        """Send the question with the next request of its kind about its group."""
        self._waiting.setdefault((type(question), question.key.group_id), []).append((question, then))
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._send(), name="share-state")

    async def _send(self) -> None:
        while self._waiting:
            kind, group_id = next(iter(self._waiting))
            asked = self._next(kind, group_id)
            found = await self._request(kind, group_id, [question for question, _ in asked.values()])
            for key, (_, then) in asked.items():
                self._tell(then, found.get(key, NO_ANSWER))
                await pause()
        self.task = None

    def _next(self, kind: type[Question], group_id: str) -> Waiting:
        """Those of one kind about one group, as many as fit, each about another share partition. The rest waits behind other groups."""
        waiting = self._waiting.pop((kind, group_id))
        asked: Waiting = {}
        rest: list[tuple[Question, Reply]] = []
        for question, then in islice(waiting, MOST_PARTITIONS):
            if question.key in asked:
                rest.append((question, then))
            else:
                asked[question.key] = question, then
        rest += waiting[MOST_PARTITIONS:]
        if rest:
            self._waiting[kind, group_id] = rest
        return asked

    async def _request(self, kind: type[Question], group_id: str, questions: list[Question]) -> dict[SharePartitionKey, StateResult]:
        """The results. If the request fails, all share partitions have the same one."""
        broker_id = self._broker_id
        try:
            response = await self._ask(broker_id, kind.api_key, kind.version, request_of(kind, group_id, questions))
            return results_of(kind, group_id, response)
        except (UnsupportedVersion, UnsupportedField) as error:
            logger.warning("broker %d does not coordinate share partitions: %s", broker_id, error)
            result = results.refused(ErrorCode.UNSUPPORTED_VERSION)
        except OSError as error:
            logger.info("broker %d does not answer about share partitions of group %s: %s", broker_id, group_id, error)
            result = results.refused(ErrorCode.NETWORK_EXCEPTION)
        except Exception:  # a fault of this broker: the members would wait forever
            logger.exception("broker %d could not be asked about share partitions of group %s", broker_id, group_id)
            result = NO_ANSWER
        return {question.key: result for question in questions}

    def _tell(self, then: Reply, result: StateResult) -> None:
        try:
            then(result)
        except Exception:  # the other questions to the broker would wait forever
            logger.exception("an answer of broker %d about a share partition could not be used", self._broker_id)
