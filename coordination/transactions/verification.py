"""Asks transaction coordinators whether partitions belong to open transactions (KIP-890). Kafka's AddPartitionsToTxnManager.

A leader asks before a transactional batch opens a transaction in one of its partitions. A question about a transaction of version 2 adds
the partitions to it; an earlier question only verifies that its producer has added them. If this broker also coordinates the transaction,
the question needs no request (`here`). Otherwise it is sent in an AddPartitionsToTxn. One request is in flight for each coordinator.
Questions that arrive meanwhile go into the next request, at most one of each transactional id. A request of a client waits for each
question, so the number of connections bounds the questions.

A coordinator that still writes the markers of the previous transaction, or the record of other partitions of this one, adds none. Then the
question is repeated for MOST_MS. Apache Kafka does so every 20 ms (`add.partitions.to.txn.retry.backoff.ms`) for as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.supported_operation import SupportedOperation
from ottla.coordination.transactions.between import MOST_MS
from ottla.coordination.transactions.metadata import VERSION_2, ProducerIdAndEpoch
from ottla.coordination.transactions.partitions import Partitions, of_pairs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.schema.wire import UnsupportedField, UnsupportedVersion
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache

logger = logging.getLogger(__name__)

VERIFICATION_VERSION: Final = 5
"""The first version of AddPartitionsToTxn between brokers with TRANSACTION_ABORTABLE."""

FIRST_BACKOFF_MS: Final = 5
"""The pause before a question is repeated; each further one is twice as long."""

OnVerified: TypeAlias = Callable[[dict[TopicPartition, ErrorCode]], None]
"""Called once, with the partitions that do not belong to the transaction, or for which the result is unknown."""


class Here(Protocol):
    """This broker's own coordinator: a `TransactionCoordinator`."""

    def verify_partitions(self, transactional_id: str, producer: ProducerIdAndEpoch) -> tuple[ErrorCode, Partitions]:
        """An error for all partitions, or those that are in the transaction."""

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Partitions,
        client_version: int,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions to the transaction, now or later."""


AskCoordinator: TypeAlias = Callable[[int, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]
"""Sends the question to a broker by its id. Raises OSError if it does not answer, UnsupportedVersion or UnsupportedField if it does not
support the question."""


class TransactionVerifier:
    """See the module. `failures` counts partitions that were not verified; `on_answered` is called with the duration of each question,
    ms."""

    __slots__ = ("_ask", "_coordinators", "_metadata", "_monotonic", "_partition_for", "_troubles", "failures", "here", "on_answered")

    def __init__(
        self,
        metadata: MetadataCache,
        partition_for: Callable[[str], int],
        ask: AskCoordinator,
        monotonic: Callable[[], float],
        here: tuple[int, Here] | None = None,
    ) -> None:
        """`partition_for` gives the partition of `__transaction_state` that has a transactional id; `monotonic` counts seconds."""
        self._metadata = metadata
        self._partition_for = partition_for
        self._ask = ask
        self._monotonic = monotonic
        self._coordinators: dict[int, _Coordinator] = {}
        self._troubles: dict[int, str] = {}
        """Why a broker verifies nothing, so that each reason is logged once: producers try again many times a second."""
        self.failures = 0
        self.on_answered: Callable[[float], None] | None = None
        self.here = here
        """The id and the coordinator of this broker. Without it this broker gets requests like the others."""

    def is_confirmed_here(self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int) -> bool:
        """Whether this broker coordinates the id, and the partition belongs to the open transaction of the producer. Sends no request."""
        if self.here is None:
            return False
        error, partitions = self.here[1].verify_partitions(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch))
        return not error and index in partitions.get(topic, ())

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: OnVerified,
        operation: SupportedOperation,
    ) -> None:
        """Verify that the partitions belong to the open transaction of the producer, or add them, as the operation says.

        `then` may be called at once.
        """
        if all(self.is_confirmed_here(transactional_id, producer_id, producer_epoch, *each) for each in partitions):
            then({})
            return
        self._ask_coordinator(_Question(transactional_id, producer_id, producer_epoch, partitions, then, operation, self._monotonic()))

    def _ask_coordinator(self, question: _Question) -> None:
        transactional_id, producer_epoch = question.transactional_id, question.producer.producer_epoch
        broker_id, _ = self._metadata.leader_of(TRANSACTION_STATE_TOPIC, self._partition_for(transactional_id))
        if broker_id not in self._metadata.brokers:
            question.then(dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        if question.adds and self.here is not None and broker_id == self.here[0]:
            self.here[1].add_partitions(
                transactional_id, question.producer, question.by_topic(), VERSION_2, partial(self._on_added_here, question)
            )
            return
        coordinator = self._coordinators.get(broker_id)
        if coordinator is None:
            coordinator = self._coordinators[broker_id] = _Coordinator()
        former = coordinator.waiting.get(transactional_id)
        if former is not None:
            if producer_epoch < former.producer.producer_epoch:
                self._refuse(question, ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            # The same epoch retries because its client did not wait longer. The older request gets an error that its client may retry.
            is_fenced = former.producer.producer_epoch < producer_epoch
            del coordinator.waiting[transactional_id]
            self._refuse(former, ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)
        coordinator.waiting[transactional_id] = question
        if coordinator.task is None:
            coordinator.task = asyncio.get_running_loop().create_task(self._run(broker_id, coordinator), name=f"verification-{broker_id}")

    def _on_added_here(self, question: _Question, error: ErrorCode) -> None:
        self._take_errors(question, dict.fromkeys(question.partitions, question.client_error(error)) if error else {})

    async def close(self) -> None:
        """Stop; pending questions get no answer."""
        tasks = [each.task for each in self._coordinators.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, broker_id: int, coordinator: _Coordinator) -> None:
        while coordinator.waiting:
            asked, coordinator.waiting = coordinator.waiting, {}
            try:
                await self._ask_together(broker_id, asked)
            except Exception:  # later questions would wait for this task
                logger.exception("transactions could not be verified with broker %d", broker_id)
                self._refuse_all(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
        del self._coordinators[broker_id]

    async def _ask_together(self, broker_id: int, asked: dict[str, _Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[each.transaction() for each in asked.values()])
        try:
            response = await self._ask(broker_id, request)
        except (UnsupportedVersion, UnsupportedField) as error:
            self._report(broker_id, logging.WARNING, f"cannot verify transactions ({error}); the producers go on without")
            for question in asked.values():
                if question.adds:
                    self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # no marker would ever end the transaction
                else:
                    self._answer(question, {})
        except OSError as error:
            self._report(broker_id, logging.WARNING, f"does not verify transactions: {error}; the producers try again")
            self._refuse_all(asked, ErrorCode.NETWORK_EXCEPTION)
        else:
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                advice = "; give the principal of this broker ClusterAction on the cluster, or name it in super.users" if is_denied else ""
                self._report(broker_id, logging.ERROR, f"refuses to verify transactions: {code.name}{advice}")
                # A missing right of the brokers is not the client's fault.
                self._refuse_all(asked, ErrorCode.INVALID_TXN_STATE if is_denied else code)
            else:
                self._troubles.pop(broker_id, None)
                self._take_results(asked, response)

    def _report(self, broker_id: int, level: int, what: str) -> None:
        if self._troubles.get(broker_id) != what:
            self._troubles[broker_id] = what
            logger.log(level, "broker %d %s", broker_id, what)

    def _take_results(self, asked: dict[str, _Question], response: AddPartitionsToTxnResponse) -> None:
        for result in response.results_by_transaction:
            question = asked.pop(result.transactional_id, None)
            if question is None:
                continue
            errors = {}
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    if each.partition_error_code:
                        errors[TopicPartition(topic.name, each.partition_index)] = question.client_error(each.partition_error_code)
            self._take_errors(question, errors)
        self._refuse_all(asked, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _take_errors(self, question: _Question, errors: dict[TopicPartition, ErrorCode]) -> None:
        """Answer with the errors of a coordinator, or ask it again if it may soon add the partitions."""
        if question.adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values():
            left_ms = MOST_MS - (self._monotonic() - question.asked_at) * 1000
            if left_ms > 0:
                backoff_ms = min(question.take_backoff_ms(), left_ms)
                asyncio.get_running_loop().call_later(backoff_ms / 1000, self._ask_coordinator, question)
                return
        self.failures += len(errors)
        self._answer(question, errors)

    def _refuse_all(self, asked: dict[str, _Question], code: ErrorCode) -> None:
        for question in asked.values():
            self._refuse(question, code)

    def _refuse(self, question: _Question, code: ErrorCode) -> None:
        self.failures += len(question.partitions)
        self._answer(question, dict.fromkeys(question.partitions, code))

    def _answer(self, question: _Question, errors: dict[TopicPartition, ErrorCode]) -> None:
        if self.on_answered is not None:
            self.on_answered((self._monotonic() - question.asked_at) * 1000)
        try:
            question.then(errors)
        except Exception:
            logger.exception("the answer about %r could not be passed on", question.transactional_id)


class _Coordinator:
    """The questions that wait for a broker, by transactional id, and the task that sends them."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiting: dict[str, _Question] = {}


class _Question:
    __slots__ = ("_backoff_ms", "_operation", "asked_at", "partitions", "producer", "then", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: OnVerified,
        operation: SupportedOperation,
        asked_at: float,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        self.partitions = partitions
        self.then = then
        self.asked_at = asked_at
        self._operation = operation
        self._backoff_ms = FIRST_BACKOFF_MS

    @property
    def adds(self) -> bool:
        """Whether it adds the partitions to the transaction."""
        return self._operation is SupportedOperation.ADD_PARTITION

    def take_backoff_ms(self) -> int:
        """The next pause before it is asked again."""
        backoff_ms = self._backoff_ms
        self._backoff_ms = 2 * backoff_ms
        return backoff_ms

    def by_topic(self) -> Partitions:
        """The partitions by their topics."""
        return of_pairs((topic, (index,)) for topic, index in self.partitions)

    def transaction(self) -> AddPartitionsToTxnTransaction:
        """The question as it is sent."""
        indexes: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            indexes.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            verify_only=not self.adds,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=found) for topic, found in indexes.items()],
        )

    def client_error(self, error_code: int) -> ErrorCode:
        """An error of the coordinator, mapped to one that producers support."""
        if error_code == ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error_code == ErrorCode.TRANSACTION_ABORTABLE and self._operation is SupportedOperation.DEFAULT_ERROR:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.of(error_code)
