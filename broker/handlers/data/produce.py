"""Produce (api 0), versions 0-11.

KIP-98 record batches from 3, zstd from 7, errors of single records from 8 (KIP-467), the leader to ask instead from 10 (KIP-951).

Every partition is answered for itself: one refused batch does not hold up the others of the request. With acks=0 nothing is
answered, and an error closes the connection, because the producer has no other way to learn of it.

Deviations: records in message format 0 or 1 are refused with INVALID_RECORD, as Apache Kafka 4 does; null records are refused with
INVALID_RECORD where Apache Kafka leaves the client without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker.handlers.data.delayed_produce import ACKS_ALL, DelayedAppend, DelayedProduce, wait_ms
from broker.handlers.data.leader_hints import current_leader, leader_nodes
from broker.handlers.data.partition_errors import partition_error
from broker.handlers.data.topic_counters import count_refused_produce
from broker.network.connection import Connection
from broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Pending, Several
from broker.request.context import RequestContext
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.request.services import Services
from broker.request.turns import Steps
from protocol.compiled import compiled
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.produce_fast_path import ProduceHead, encode_produce_response, encode_produce_responses, read_one_batch, read_several
from protocol.records.batch import NO_TIMESTAMP, TRANSACTIONAL_MASK
from replication.errors import ReplicationError, UnknownTopicOrPartition
from replication.leader.partition import Partition
from storage.disk.topic_partition import TopicPartition
from storage.errors import InvalidRecord, StorageError
from storage.log.appended import Appended
from storage.log.plain_append import NOT_PLAIN
from storage.validation.batch import ValidatedBatch, check_request, complete_validation, validate_produce
from storage.validation.record_errors import WITHOUT_LOG_START_OFFSET, error_message

logger = logging.getLogger(__name__)

VALID_ACKS = (ACKS_ALL, 0, 1)
FIRST_VERSION_WITH_LEADER_HINTS = 10

ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write into internal topics (AdminUtils.ADMIN_CLIENT_ID)."""


def handle_produce(request: ProduceRequest, context: RequestContext) -> Answer | Steps[Answer | ProduceResponse]:
    """Append every batch that can be appended now; what needs a worker thread (recompression, long checks) makes the request wait."""
    if context.is_large:
        return _produce_large(request, context)
    produce = Produce(request, context)
    # A partition named twice is appended to once, with what was named last, as in Apache Kafka.
    wanted = {(topic.name, data.index): data.records for topic in request.topic_data for data in topic.partition_data}
    append = produce.append if request.acks in VALID_ACKS else produce.refuse_acks
    for (name, index), records in wanted.items():
        append(name, index, records)
    return produce.begin_work() if produce.in_work else produce.answer()


def _produce_large(request: ProduceRequest, context: RequestContext) -> Steps[Answer | ProduceResponse]:
    """`handle_produce` in steps."""
    produce = Produce(request, context)
    wanted = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            wanted[topic.name, data.index] = data.records
            yield
    append = produce.append if request.acks in VALID_ACKS else produce.refuse_acks
    for (name, index), records in wanted.items():
        append(name, index, records)
        yield
    if produce.in_work:
        return produce.begin_work()
    return produce.answer() if produce.appended or not request.acks else (yield from produce.response_steps())


def handle_produce_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, broker: Services
) -> Answer | None:
    """The hot path: one plain batch for one partition that this broker leads. None: take the ordinary way, nothing was appended.

    An error is not answered here either. The ordinary way finds it again, and says it with everything a client wants to know.
    """
    found = read_one_batch(frame, offset, version)
    if found is None:
        return None
    (acks, timeout_ms, topic, index), records = found
    of_topic = broker.replica_manager.partitions.get(topic)
    if of_topic is None or acks not in VALID_ACKS or topic in INTERNAL_TOPICS:
        return None
    partition = of_topic.get(index)
    if partition is None:
        return None
    now_ms = broker.clock.now_ms()
    log = partition.log
    log_append_time_ms = NO_TIMESTAMP
    try:
        first_offset = partition.append_plain(records, acks, now_ms, version)
        end_offset = log.log_end_offset
        if first_offset == NOT_PLAIN:
            appended = _append_validated(partition, records, acks, now_ms, version)
            if appended is None:
                return None
            first_offset = appended.first_offset
            end_offset = appended.last_offset + 1
            log_append_time_ms = appended.log_append_time_ms
    except (StorageError, ReplicationError) as error:
        # A disk that failed goes offline here: the batch is stamped by now, so the ordinary way would find fault with it instead.
        partition_error(error, broker)
        return None
    if acks == 0:
        return NO_RESPONSE
    if (acks == ACKS_ALL and log.high_watermark < end_offset) or (end_offset <= log.flush_due_offset and end_offset > log.recovery_point):
        result = first_offset, log_append_time_ms, log.log_start_offset
        return _delayed(broker, partition, version, correlation_id, end_offset, result, acks, timeout_ms)
    return encode_produce_response(version, correlation_id, topic, index, 0, first_offset, log_append_time_ms, log.log_start_offset, 0)


def handle_produce_frames(
    view: memoryview, position: int, end: int, version: int, connection: Connection, broker: Services
) -> Several | None:
    """The hot path of requests that came together: from `position` on, a plain batch each, for the same partition with the same acks.

    None when there are not two such requests, or something is wrong with one; nothing was done then, and each is handled by itself.
    """
    found = read_several(view, position, end)
    if found is None:
        return None
    head, batches, correlation_ids, following = found
    acks, _, topic, index = head
    of_topic = broker.replica_manager.partitions.get(topic)  # as above, without a call that every single batch would pay for
    if of_topic is None or acks not in VALID_ACKS or topic in INTERNAL_TOPICS:
        return None
    partition = of_topic.get(index)
    if partition is None:
        return None
    try:
        first_offsets = partition.append_several_plain(batches, acks, broker.clock.now_ms(), version)
    except (StorageError, ReplicationError) as error:
        partition_error(error, broker)  # as above
        return None
    if not first_offsets:
        return None
    log = partition.log
    if acks == 1 or (acks == ACKS_ALL and log.high_watermark >= log.log_end_offset):
        answered = encode_produce_responses(version, correlation_ids, topic, index, first_offsets, log.log_start_offset)
        return [answered], len(batches), following, len(answered)
    return answer_each(broker, partition, version, head, correlation_ids, first_offsets, following)


def answer_each(
    broker: Services,
    partition: Partition,
    version: int,
    head: ProduceHead,
    correlation_ids: list[int],
    first_offsets: list[int],
    following: int,
) -> Several:
    """The answers to requests that came together, when there are none or each waits for replicas."""
    acks, timeout_ms, _, _ = head
    if acks == 0:
        return [NO_RESPONSE] * len(correlation_ids), len(correlation_ids), following, 0
    log = partition.log
    log_start_offset = log.log_start_offset
    answers: list[Answer] = []
    end_offsets = (*first_offsets[1:], log.log_end_offset)
    for correlation_id, first_offset, end_offset in zip(correlation_ids, first_offsets, end_offsets, strict=True):
        result = first_offset, NO_TIMESTAMP, log_start_offset
        answers.append(_delayed(broker, partition, version, correlation_id, end_offset, result, acks, timeout_ms))
    return answers, len(answers), following, 0


def _delayed(
    broker: Services,
    partition: Partition,
    version: int,
    correlation_id: int,
    end_offset: int,
    result: tuple[int, int, int],
    acks: int,
    timeout_ms: int,
) -> Pending:
    """The answer to one batch that is in the log and waits for replicas or the disk; arguments as `DelayedAppend` has them."""
    pending = Pending(appended=True)
    topic = partition.topic_partition.topic
    delayed = DelayedAppend(version, correlation_id, topic, partition, end_offset, result, acks, pending)
    broker.produce_purgatory.watch(delayed, partition.waiters, wait_ms(acks, timeout_ms))
    return pending


def _append_validated(partition: Partition, records: memoryview, acks: int, now_ms: int, version: int) -> Appended | None:
    """A batch that is not plain, but can be appended at once; None when it is transactional or needs a worker."""
    header = check_request(records, version)
    if header.attributes & TRANSACTIONAL_MASK:
        return None
    batch = validate_produce(records, partition.log.rules, now_ms, header)
    return None if batch.needs_worker else partition.append_as_leader(batch, acks, now_ms)


class Produce:
    """One Produce request on its way: what was appended, what was refused, what is still in work."""

    __slots__ = ("appended", "context", "in_work", "request", "results", "task")

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self.request = request
        self.context = context
        self.results: list[tuple[str, PartitionProduceResponse]] = []
        self.appended: list[tuple[Partition, int, PartitionProduceResponse]] = []
        """(partition, offset behind its last record, result) of what is waited for."""
        self.in_work: list[tuple[str, Partition, ValidatedBatch, PartitionProduceResponse]] = []
        self.task: asyncio.Task[None] | None = None

    def append(self, topic: str, index: int, records: memoryview | bytes | None) -> None:
        """Validate one batch and append it, or note why not, or leave it for a worker."""
        context = self.context
        broker = context.broker
        now_ms = broker.clock.now_ms()
        result = PartitionProduceResponse(index=index, base_offset=-1)
        self.results.append((topic, result))
        partition = broker.replica_manager.partition(topic, index)
        try:
            # The order of the checks is Apache Kafka's: a batch that is wrong in itself is told so by any broker.
            if partition is None and broker.cluster.partition(topic, index) is None:
                raise UnknownTopicOrPartition(topic, index)
            if records is None:
                raise InvalidRecord(TopicPartition(topic, index), "a Produce request without records")
            header = check_request(records, context.api_version)
            if header.attributes & TRANSACTIONAL_MASK:
                result.error_code = self._no_transaction()
                return
            if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                return
            if partition is None:
                partition = broker.replica_manager.partition_or_raise(topic, index)
            partition.check_may_append(self.request.acks)
            batch = validate_produce(records, partition.log.rules, now_ms, header)
            if batch.needs_worker:
                self.in_work.append((topic, partition, batch, result))
                return
            self._appended(partition, partition.append_as_leader(batch, self.request.acks, now_ms), result)
        except (StorageError, ReplicationError) as error:
            count_refused_produce(broker.replica_manager, topic, error, 0 if records is None else len(records))
            self._refused(topic, partition, result, error)

    def _no_transaction(self) -> ErrorCode:
        """Why a transactional batch is refused: no transaction is open here, as long as there is no transaction coordinator."""
        if self.request.transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _appended(self, partition: Partition, appended: Appended, result: PartitionProduceResponse) -> None:
        result.base_offset = appended.first_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = appended.log_start_offset
        end_offset = appended.last_offset + 1
        if (self.request.acks == ACKS_ALL and partition.log.high_watermark < end_offset) or not partition.is_flushed(end_offset):
            self.appended.append((partition, end_offset, result))

    def _refused(
        self, topic: str, partition: Partition | None, result: PartitionProduceResponse, error: StorageError | ReplicationError
    ) -> None:
        broker = self.context.broker
        result.error_code = code = partition_error(error, broker)
        result.error_message = error_message(error) if isinstance(error, StorageError) else None
        if isinstance(error, InvalidRecord):
            result.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message) for index, message in error.record_errors
            ]
        if partition is not None and isinstance(error, StorageError) and not isinstance(error, WITHOUT_LOG_START_OFFSET):
            result.log_start_offset = partition.log.log_start_offset
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.context.api_version >= FIRST_VERSION_WITH_LEADER_HINTS:
            leader_id, leader_epoch = current_leader(broker.replica_manager, topic, result.index)
            result.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def refuse_acks(self, topic: str, index: int, records: memoryview | bytes | None) -> None:
        """There are no such acks, so nothing is appended; what the request itself shows to be wrong is said first."""
        result = PartitionProduceResponse(index=index, base_offset=-1, error_code=ErrorCode.INVALID_REQUIRED_ACKS)
        self.results.append((topic, result))
        if self.context.broker.cluster.partition(topic, index) is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif records is not None:
            try:
                check_request(records, self.context.api_version)
            except StorageError as error:
                result.error_code = partition_error(error, self.context.broker)

    # -- what needs a worker ---------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Copy what is still in work: the receive buffer is used again as soon as the handler returns."""
        self.in_work = [(topic, partition, batch.detached(), result) for topic, partition, batch, result in self.in_work]

    def begin_work(self) -> Pending:
        """Have workers do what is still in work; the answer comes then."""
        self.detach()
        pending = Pending()
        self.task = asyncio.get_running_loop().create_task(self.work(pending))  # a task that nobody refers to may vanish
        return pending

    async def work(self, pending: Pending) -> None:
        """Validate and recompress in worker threads, append on the loop, answer."""
        loop = asyncio.get_running_loop()
        broker = self.context.broker
        for topic, partition, batch, result in self.in_work:
            try:
                now_ms = broker.clock.now_ms()
                done = await loop.run_in_executor(broker.workers, complete_validation, batch, partition.log.rules, now_ms)
                # leadership may have moved meanwhile: append_as_leader looks again
                self._appended(partition, partition.append_as_leader(done, self.request.acks, now_ms), result)
            except (StorageError, ReplicationError) as error:
                count_refused_produce(broker.replica_manager, topic, error, len(batch.records))
                self._refused(topic, partition, result, error)
            except Exception:
                # A fault of ours, in a task that nobody awaits: the client is answered all the same.
                logger.exception("a batch for %s from %s failed in a worker", partition.topic_partition, self.context.client.connection_id)
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        answer = self.answer(pending)
        if not isinstance(answer, Pending):
            pending.complete(answer)

    # -- answers ---------------------------------------------------------------------------------------------------------

    def answer(self, pending: Pending | None = None) -> Answer:
        """The response, or `pending` (one of its own when not given) while replicas are waited for."""
        if self.request.acks == 0:
            return self._answer_to_nobody()
        if not self.appended:
            return self.context.encode(self.response())
        if pending is None:
            pending = Pending(appended=True)
        delayed = DelayedProduce(self.appended, lambda: self.context.encode(self.response()), pending, self.request.acks)
        waiters = [partition.waiters for partition, _, _ in self.appended]
        timeout_ms = wait_ms(self.request.acks, self.request.timeout_ms)
        self.context.broker.produce_purgatory.try_complete_else_watch(delayed, waiters, timeout_ms)
        return pending

    def _answer_to_nobody(self) -> Answer:
        failed = [(topic, result) for topic, result in self.results if result.error_code]
        if not failed:
            return NO_RESPONSE
        topic, result = failed[0]
        error = ErrorCode.of(result.error_code)
        self.context.offend(f"Produce with acks=0 to {topic}-{result.index} failed with {error.name} (client id {self.context.client_id})")
        return CLOSE

    def response(self) -> ProduceResponse:
        """All results, grouped by topic as the request was."""
        response = ProduceResponse()
        for name, result in self.results:
            _put(response.responses, name, result)
        self._say_where_leaders_are(response)
        return response

    def response_steps(self) -> Steps[ProduceResponse]:
        """The same in steps."""
        response = ProduceResponse()
        for name, result in self.results:
            _put(response.responses, name, result)
            yield
        self._say_where_leaders_are(response)
        return response

    def _say_where_leaders_are(self, response: ProduceResponse) -> None:
        leaders = {result.current_leader.leader_id for _, result in self.results} - {-1}
        if leaders:
            nodes = leader_nodes(self.context.broker.replica_manager, leaders, self.context.client.listener_name)
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack) for node_id, endpoint, rack in nodes
            ]


def _put(topics: list[TopicProduceResponse], name: str, result: PartitionProduceResponse) -> None:
    if not topics or topics[-1].name != name:
        topics.append(TopicProduceResponse(name=name))
    topics[-1].partition_responses.append(result)


if not TYPE_CHECKING and (_native := compiled("broker.handlers.native")) is not None:
    _native.answer_with(answer_each)
    handle_produce_frames = _native.handle_produce_frames
