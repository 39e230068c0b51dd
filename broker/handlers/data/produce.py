"""Handles Produce (api 0), versions 0-13.

Record batches from 3 (KIP-98), zstd from 7, errors of single records from 8 (KIP-467), the current leader in errors from 10 (KIP-951),
topic ids from 13 (KIP-516).

Partitions are independent: a refused batch does not affect the others of the request. With acks=0 there is no answer. An error then closes
the connection, because the producer cannot learn of it otherwise.

Requests of any number of partitions use the same functions: `Produce` reads the request in the receive buffer, appends each batch from
there, and writes the answer meanwhile. It can pause after any partition: a request that takes longer than a slice is copied, and continues
in turns. A batch that needs a worker thread first (recompression, long checks) is copied, too, and is appended when the thread is done. A
batch for a log that begins segment after segment is copied, and appended in a later turn. A batch that opens a transaction is copied, and
appended when the transaction coordinator has verified it, or has added the partition to the transaction (KIP-890, `produce_verification`).

Versions 0 to 2 may have messages of format 0 or 1, which a worker thread converts to a batch. If the topic keeps such a format
(`message.format.version`), a worker converts all batches to it.

Deviations: null records are refused with INVALID_RECORD; Apache Kafka sends no answer. Transactional batches without a transactional id are
refused one by one; Apache Kafka refuses the whole request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from ottla.broker.handlers.data.leader_hints import current_leader, leader_nodes
from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.handlers.data.produce_conversion import append_in_worker
from ottla.broker.handlers.data.produce_verification import unverified
from ottla.broker.handlers.data.topic_counters import count_refused_produce
from ottla.broker.network.buffer_supplier import is_reused
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Completion, Pending
from ottla.broker.quotas.quota_type import PRODUCE
from ottla.broker.request.malformed import name_of, refused_if_malformed
from ottla.broker.request.refused_records import MALFORMED
from ottla.coordination.appends.delayed_produce import AppendedPartition, DelayedProduce
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.coordination.supported_operation import operation_of
from ottla.pauses import is_over, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.produce import ProduceAnswer, ProduceReader
from ottla.protocol.cursors.request_reader import END, NO_RECORDS, PARTITION
from ottla.protocol.cursors.response_writer import NodeEndpoints
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE, TRANSACTIONAL_MASK
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID, to_text
from ottla.replication.errors import InconsistentTopicId, ReplicationError, UnknownTopicOrPartition
from ottla.replication.leader.partition import Partition
from ottla.storage.errors import InvalidRecord, StorageError
from ottla.storage.log.origins import CLIENT
from ottla.storage.validation.batch import FIRST_VERSION_WITHOUT_MESSAGE_SETS, attributes_of_first, read_only_batch
from ottla.storage.validation.record_errors import WITHOUT_LOG_START_OFFSET, error_message
from ottla.storage.validation.records import MOST_RECORD_ERRORS
from ottla.storage.validation.run import BatchRun

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.services import Services

logger = logging.getLogger(__name__)

ADMIN_CLIENT_ID: Final = "__admin_client"
"""The client id that may write into internal topics (AdminUtils.ADMIN_CLIENT_ID)."""

FIRST_WITH_LEADER_HINTS: Final = 10
"""First version whose answers name the current leader."""
FIRST_THAT_ADDS: Final = 12
"""First version that adds its partitions to the transaction (KIP-890)."""
FIRST_WITH_TOPIC_IDS: Final = 13
"""The first version of Produce that has topic ids in place of names."""
AT_ONCE: Final = 32
"""Work between two readings of the clock, in partitions without records: about 0.05 ms compiled, 0.5 ms in Python."""
BYTES_SHIFT: Final = 12
"""4 KiB of records are as much work as a partition without records."""
RECORDS_SHIFT: Final = 7
"""128 records that are checked are as much work as a partition without records."""

PRODUCE_ERRORS: Final = 0 << 16
"""The API key in the keys of `Services.error_counts`, which marks errors of Produce."""

WRITE: Final = int(Operation.WRITE)
TRANSACTIONAL_ID: Final = int(ResourceType.TRANSACTIONAL_ID)
TOPIC: Final = int(ResourceType.TOPIC)

NONE: Final = int(ErrorCode.NONE)
INVALID_PRODUCER_ID_MAPPING: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
INVALID_REQUIRED_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
INVALID_TOPIC_EXCEPTION: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
NOT_LEADER_OR_FOLLOWER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
TOPIC_AUTHORIZATION_FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
UNKNOWN_TOPIC_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle_produce_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Append every batch that can be appended now, and answer at once, or when the records are safe.

    Raises ProtocolError, before anything is done, for a frame that is no valid Produce.
    """
    produce = Produce(frame, offset, version, correlation_id, connection, services)
    while not produce.run(AT_ONCE):
        if is_over():
            return produce.go_on(frame)
    return produce.finish()


@final
class LeftBatch:
    """The copied batch of one partition that waits for a turn, for a worker or for a transaction coordinator before it can be appended."""

    __slots__ = ("index", "partition", "place", "run", "topic")

    def __init__(self, topic: str, index: int, partition: Partition, run: BatchRun, place: int) -> None:
        """`place` is reserved for the result in the answer."""
        self.topic = topic
        self.index = index
        self.partition = partition
        self.run = run
        self.place = place


@final
class Refusal:
    """The result for a partition whose batch was refused."""

    __slots__ = ("code", "leader_epoch", "leader_id", "log_start_offset", "message", "record_errors")

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code
        self.log_start_offset = -1
        self.record_errors: Sequence[tuple[int, str]] = ()
        self.message = message
        self.leader_id = self.leader_epoch = -1


@final
class Produce:
    """One Produce request. Call `run` until it is done; then `finish` answers."""

    __slots__ = (
        "_accepted",
        "_acks",
        "_answer",
        "_connection",
        "_errors_left",
        "_has_valid_acks",
        "_in_work",
        "_is_closed",
        "_is_looked_through",
        "_leaders",
        "_may_write",
        "_now_ms",
        "_partitions",
        "_pending",
        "_refused_with",
        "_run",
        "_services",
        "_size",
        "_throttle_time_ms",
        "_topic",
        "_topic_bytes",
        "_topic_refusal",
        "_transaction",
        "_transactional_id",
        "_unverified",
        "_version",
        "_waiting",
        "failed",
        "reader",
    )

    def __init__(
        self, frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
    ) -> None:
        """Raises ProtocolError."""
        self.reader = ProduceReader(frame, offset, version)
        self.failed: tuple[str, int, int] | None = None
        """The first partition that was refused: topic, index, error code."""
        self._answer = ProduceAnswer(version, correlation_id)
        self._run = BatchRun(frame)
        self._version = version
        self._connection = connection
        self._services = services
        self._size = len(frame)
        self._acks = self.reader.acks
        self._has_valid_acks = -1 <= self._acks <= 1
        self._now_ms = 0
        self._throttle_time_ms = 0
        self._errors_left = MOST_RECORD_ERRORS
        self._accepted = 0
        self._topic = ""
        self._topic_bytes: bytes | None = None
        self._partitions: dict[int, Partition] | None = None
        self._may_write = False
        self._topic_refusal = self._refused_with = TOPIC_AUTHORIZATION_FAILED
        self._is_looked_through = self.reader.transactional_id is None
        self._transaction: tuple[int, int] | None = None
        """The producer id and epoch of the transactional batches."""
        self._transactional_id: str | None = None
        self._unverified: list[LeftBatch] | None = None
        self._is_closed = False  # whether only administrators write to the topic: it is internal
        self._waiting: list[AppendedPartition] | None = None
        self._in_work: list[LeftBatch] | None = None
        self._leaders: set[int] | None = None
        self._pending: Pending | None = None

    # -- turns -----------------------------------------------------------------------------------------------------------

    def run(self, limit: int) -> bool:
        """Read up to `limit` elements of the request, or, once all are read, serve up to `limit` partitions. True when all are served.

        A partition with much work counts as several. Raises ProtocolError while elements are read, before anything is done.
        """
        reader = self.reader
        if not reader.is_verified and not reader.verify(limit):
            return False
        if not self._is_looked_through and not self._look_through(reader, limit):
            return False
        self._now_ms = self._services.clock.now_ms()
        while limit > 0:
            limit -= 1
            kind = reader.advance()
            if kind == PARTITION:
                self._serve(reader)
                run = self._run
                limit -= (run.size >> BYTES_SHIFT) + (run.records_checked >> RECORDS_SHIFT)
            elif kind == END:
                return True
        return False

    def go_on(self, frame: memoryview) -> Answer:
        """Continue later, with a copy of the request if its buffer is about to be reused."""
        if is_reused(frame):
            self.reader.detach()
            self._run = BatchRun(self.reader.frame)
        # As long as nothing has been done, it waits for its turn among the large requests.
        waits = not self.reader.is_verified
        pending = Pending(in_turns=True, waiting_bytes=self._size if waits else 0)
        work = refused_if_malformed(name_of(frame), self._connection, self._work, pending)
        running = self._services.running
        if not waits:
            pending.keep(self._size)
            return running.begin(work, pending, holds_slot=False)
        running.large.wait(work, pending)
        return pending

    async def _work(self, pending: Pending) -> Answer:
        """Continue with pauses. Returns the answer, or `pending`."""
        while not self.run(AT_ONCE):
            await pause()
        self._take_throttle_time()
        self._keep_copies(pending)
        if self._unverified is None:
            return await self._end(pending)
        self._verify(pending)
        return pending

    # -- one partition ---------------------------------------------------------------------------------------------------

    def _serve(self, reader: ProduceReader) -> None:
        """Append the batch of the reader's current partition, or refuse it, or leave it to a worker."""
        if reader.topic is not self._topic_bytes:
            self._begin_topic(reader.topic)
        index = reader.index
        if not self._may_write:
            self._refuse(index, None, self._refused_with)
            return
        partitions = self._partitions
        partition = None if partitions is None else partitions.get(index)
        if not self._has_valid_acks:
            self._refuse_acks(index, partition)
            return
        run = self._run
        try:
            # The order of the checks is Apache Kafka's: any broker refuses a batch that is invalid in itself.
            if partition is None and self._services.metadata.partition(self._topic, index) is None:
                raise UnknownTopicOrPartition(self._topic, index)
            if reader.start == NO_RECORDS:
                raise InvalidRecord(TopicPartition(self._topic, index), "a Produce request without records")
            run.point_at(reader.start, reader.end)
            read_only_batch(run, self._version)
            if run.attributes & TRANSACTIONAL_MASK and self._is_kept_back(index, partition):
                return
            if self._is_closed:
                self._put_refusal(index, Refusal(INVALID_TOPIC_EXCEPTION))
                return
            if partition is None:
                partition = self._services.data.replica_manager.partition_or_raise(self._topic, index)
            if self._version >= FIRST_WITH_TOPIC_IDS and partition.log.topic_id not in (reader.topic, ZERO_UUID):
                raise InconsistentTopicId(f"{partition.topic_partition} belongs to another topic of that name")
            if partition.log.rolls.unfinished and is_over():
                self._leave(index, partition)  # the log rolls often, and a roll takes a millisecond
                return
            partition.append(run, self._acks, self._now_ms, CLIENT)
        except (StorageError, ReplicationError) as error:
            self._refuse(index, partition, error)
            return
        if run.needs_worker:
            self._leave(index, partition)
            return
        self._accepted += 1
        place = self._answer.put(index, NONE, run.first_offset, run.log_append_time_ms, run.log_start_offset)
        self._wait_if_unsafe(partition, run, place)

    def _begin_topic(self, topic: bytes) -> None:
        services = self._services
        self._topic_bytes = topic
        by_id = self._version >= FIRST_WITH_TOPIC_IDS
        name = services.metadata.names_by_id.get(topic) if by_id else topic.decode()
        self._answer.begin_topic(topic)
        if name is None:
            self._topic = to_text(topic)
            self._may_write = False
            self._refused_with = UNKNOWN_TOPIC_ID
            return
        self._topic = name
        self._refused_with = self._topic_refusal
        self._partitions = services.data.replica_manager.partitions.get(name)
        self._is_closed = name in INTERNAL_TOPICS and self._connection.client.client_id != ADMIN_CLIENT_ID
        self._may_write = self._topic_refusal == TOPIC_AUTHORIZATION_FAILED and self._connection.access.may(WRITE, TOPIC, name)

    def _refuse_acks(self, index: int, partition: Partition | None) -> None:
        """Refuse a batch because of unknown acks. Errors that the request itself shows come first."""
        reader = self.reader
        code = INVALID_REQUIRED_ACKS
        if partition is None and self._services.metadata.partition(self._topic, index) is None:
            code = UNKNOWN_TOPIC_OR_PARTITION
        elif reader.start != NO_RECORDS:
            try:
                self._run.point_at(reader.start, reader.end)
                read_only_batch(self._run, self._version)
            except StorageError as error:
                code = partition_error(error, self._services.data)
        self._refuse(index, partition, code)

    def _wait_if_unsafe(self, partition: Partition, run: BatchRun, place: int) -> None:
        """Let the answer wait if the records are not yet as safe as the producer wants."""
        end_offset = run.last_offset + 1
        if not partition.is_acknowledged(end_offset, self._acks):
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(AppendedPartition(partition, run.first_offset, end_offset, place))

    # -- refusals --------------------------------------------------------------------------------------------------------

    def _refusal(
        self, topic: str, index: int, partition: Partition | None, error: StorageError | ReplicationError, size_bytes: int
    ) -> Refusal:
        services = self._services
        count_refused_produce(services.data.replica_manager, topic, error, size_bytes)
        refusal = Refusal(partition_error(error, services.data))
        if isinstance(error, StorageError):
            refusal.message = error_message(error)
            has_no_reason = self._version < FIRST_VERSION_WITHOUT_MESSAGE_SETS or (refusal.message is None and isinstance(error, MALFORMED))
            if has_no_reason and self._acks:
                client = self._connection.client
                services.data.refused_records.report(client, topic, index, error, services.clock.monotonic())
            if partition is not None and not isinstance(error, WITHOUT_LOG_START_OFFSET):
                refusal.log_start_offset = partition.log.log_start_offset
        if isinstance(error, InvalidRecord):
            self._list_records(refusal, error.record_errors)
        if refusal.code == NOT_LEADER_OR_FOLLOWER and self._version >= FIRST_WITH_LEADER_HINTS:
            refusal.leader_id, refusal.leader_epoch = current_leader(services.data.replica_manager, topic, index)
            if refusal.leader_id >= 0:
                if self._leaders is None:
                    self._leaders = set()
                self._leaders.add(refusal.leader_id)
        return refusal

    def _list_records(self, refusal: Refusal, errors: Sequence[tuple[int, str]]) -> None:
        """Name refused records, as long as the answer names few. Each takes a hundred bytes, and a small request may have millions."""
        left = self._errors_left
        if len(errors) > left:
            errors = errors[:left]
            if not left:
                refusal.message = None  # it repeats some of them
        refusal.record_errors = errors
        self._errors_left = left - len(errors)

    def _refuse(self, index: int, partition: Partition | None, fault: StorageError | ReplicationError | int) -> None:
        """Refuse the batch of the reader's partition, for an error or with a code. Two faults of the batch itself come before the one that
        was found: Apache Kafka looks through all batches for transactional ones first."""
        reader = self.reader
        size = 0
        if reader.start != NO_RECORDS:
            size = reader.end - reader.start
            try:
                attributes = attributes_of_first(reader.frame[reader.start : reader.end])
            except StorageError as error:
                self._put_refusal(index, self._refusal(self._topic, index, partition, error, size))
                return
            if attributes & TRANSACTIONAL_MASK and reader.transactional_id is None:
                fault = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        refusal = Refusal(fault) if isinstance(fault, int) else self._refusal(self._topic, index, partition, fault, size)
        self._put_refusal(index, refusal)

    def _put_refusal(self, index: int, refusal: Refusal) -> None:
        self._note_failure(self._topic, index, refusal.code)
        self._answer.put_failed(
            index,
            refusal.code,
            -1,
            -1,
            refusal.log_start_offset,
            refusal.record_errors,
            refusal.message,
            refusal.leader_id,
            refusal.leader_epoch,
        )

    def _note_failure(self, topic: str, index: int, code: int) -> None:
        if self.failed is None:
            self.failed = topic, index, code
        self._count_code(code, 1)

    def _count_code(self, code: int, times: int) -> None:
        counts = self._services.error_counts
        key = PRODUCE_ERRORS | code & 0xFFFF
        counts[key] = counts.get(key, 0) + times

    # -- later -----------------------------------------------------------------------------------------------------------

    def _leave(self, index: int, partition: Partition) -> None:
        if self._in_work is None:
            self._in_work = []
        place = self._answer.put_later(index)
        self._in_work.append(LeftBatch(self._topic, index, partition, self._run.detached(), place))

    async def _end(self, pending: Pending) -> Answer:
        """Append what was left, in turns; worker threads validate and recompress it first where that is necessary. Answer."""
        for left in self._in_work or ():
            await self._complete(left)
        self._in_work = None
        return self._answer_or_wait(pending)

    def _keep_copies(self, pending: Pending) -> None:
        """Let go of the request, of which all batches are appended, refused or copied. The copies count while they wait."""
        self._forget_frame()
        pending.end_keeping()
        for copies in (self._in_work, self._unverified):
            pending.keep(sum([left.run.size for left in copies or ()]))

    def _forget_frame(self) -> None:
        self.reader.forget_frame()
        self._run.forget_frame()

    async def _complete(self, left: LeftBatch) -> None:
        """Append or refuse one batch."""
        services = self._services
        partition, run = left.partition, left.run
        try:
            if not run.needs_worker:
                await pause()
                partition.append(run, self._acks, services.clock.now_ms(), CLIENT)
            if run.needs_worker:
                run = await append_in_worker(run, partition, self._acks, services)
            if run.conversion is not None:
                services.data.replica_manager.topic_stats.on_produce_conversion(left.topic, *run.conversion)
        except (StorageError, ReplicationError) as error:
            refusal = self._refusal(left.topic, left.index, partition, error, left.run.size)
        except Exception:
            refusal = self._unexpected(partition)
        else:
            self._fill(left, run)
            return
        self._fill_refusal(left, refusal)

    def _unexpected(self, partition: Partition) -> Refusal:
        """The result after a bug of the broker: the client must be answered all the same. Called in an except block."""
        logger.exception("a batch for %s from %s failed", partition.topic_partition, self._connection.client.connection_id)
        return Refusal(UNKNOWN_SERVER_ERROR)

    def _fill(self, left: LeftBatch, run: BatchRun) -> None:
        """Fill in the result of a batch that was left and is appended now."""
        self._accepted += 1
        self._answer.fill(left.place, NONE, run.first_offset, run.log_append_time_ms, run.log_start_offset, (), None, -1, -1)
        self._wait_if_unsafe(left.partition, run, left.place)

    def _fill_refusal(self, left: LeftBatch, refusal: Refusal) -> None:
        self._note_failure(left.topic, left.index, refusal.code)
        self._answer.fill(
            left.place,
            refusal.code,
            -1,
            -1,
            refusal.log_start_offset,
            refusal.record_errors,
            refusal.message,
            refusal.leader_id,
            refusal.leader_epoch,
        )

    # -- transactions ----------------------------------------------------------------------------------------------------

    def _look_through(self, reader: ProduceReader, limit: int) -> bool:
        """Check up to `limit` elements of a transactional request before any batch is appended. True when all are checked.

        As in Apache Kafka all partitions are refused when the client may not use the transactional id, or has several producers in it.
        """
        run = self._run
        producers = self._transaction
        for _ in range(limit):
            kind = reader.advance()
            if kind == END:
                reader.begin_again()
                self._is_looked_through = True
                return True
            if kind != PARTITION or reader.start == NO_RECORDS or reader.end - reader.start < HEADER_SIZE:
                continue
            run.read(reader.start)
            if run.magic != CURRENT_MAGIC or not run.attributes & TRANSACTIONAL_MASK:
                continue
            if producers is None:
                assert reader.transactional_id is not None
                if not self._connection.access.may(WRITE, TRANSACTIONAL_ID, reader.transactional_id.decode()):
                    self._topic_refusal = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if run.producer_id >= 0:
                producer = run.producer_id, run.producer_epoch
                if producers is None:
                    self._transaction = producers = producer
                elif producer != producers and self._topic_refusal == TOPIC_AUTHORIZATION_FAILED:
                    self._topic_refusal = INVALID_PRODUCER_ID_MAPPING
        return False

    def _is_kept_back(self, index: int, partition: Partition | None) -> bool:
        """Refuse a transactional batch without a transactional id; leave one that opens a transaction until it is verified.

        False if the batch is handled like any other. Raises NotLeaderOrFollower, LogBeingTruncated, InvalidProducerEpoch.
        """
        run = self._run
        if self.reader.transactional_id is None:
            self._put_refusal(index, Refusal(TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return True
        if partition is None or self._is_closed or run.producer_id < 0:
            return False
        run.guard = partition.begin_verification(run.producer_id, run.base_sequence, run.producer_epoch, self._version >= FIRST_THAT_ADDS)
        if run.guard is None or self._is_confirmed_here(index):
            return False
        self._leave_unverified(index, partition)
        return True

    def _is_confirmed_here(self, index: int) -> bool:
        """Whether this broker coordinates the transaction, and the partition belongs to it."""
        if self._transactional_id is None:
            assert self.reader.transactional_id is not None
            self._transactional_id = self.reader.transactional_id.decode()
        run = self._run
        verifier = self._services.coordinators.transaction_verifier
        return verifier.is_confirmed_here(self._transactional_id, run.producer_id, run.producer_epoch, self._topic, index)

    def _leave_unverified(self, index: int, partition: Partition) -> None:
        if self._unverified is None:
            self._unverified = []
        place = self._answer.put_later(index)
        self._unverified.append(LeftBatch(self._topic, index, partition, self._run.detached(), place))

    def _verify(self, pending: Pending) -> None:
        """Ask the transaction coordinator which batches that open a transaction may be appended; its answer completes `pending`.

        From version 12 on it adds their partitions to the transaction.
        """
        assert self._unverified is not None
        assert self._transaction is not None
        assert self.reader.transactional_id is not None
        producer_id, producer_epoch = self._transaction
        partitions = [left.partition.topic_partition for left in self._unverified]

        def on_verified(errors: dict[TopicPartition, ErrorCode]) -> None:
            self._services.running.begin(self._append_verified(errors, pending), pending, holds_slot=False)

        self._services.coordinators.transaction_verifier.verify(
            self.reader.transactional_id.decode(),
            producer_id,
            producer_epoch,
            partitions,
            on_verified,
            operation_of(ApiKey.PRODUCE, self._version),
        )

    async def _append_verified(self, errors: dict[TopicPartition, ErrorCode], pending: Pending) -> Answer:
        now_ms = self._services.clock.now_ms()
        batches, self._unverified = self._unverified or (), None
        for left in batches:
            partition, run = left.partition, left.run
            code = errors.get(partition.topic_partition)
            if code is not None:
                self._fill_refusal(left, Refusal(*unverified(code, operation_of(ApiKey.PRODUCE, self._version))))
                await pause()
                continue
            try:
                partition.append(run, self._acks, now_ms, CLIENT)
            except (StorageError, ReplicationError) as error:
                self._fill_refusal(left, self._refusal(left.topic, left.index, partition, error, run.size))
            except Exception:
                self._fill_refusal(left, self._unexpected(partition))
            else:
                if not run.needs_worker:
                    self._fill(left, run)
                elif self._in_work is None:
                    self._in_work = [left]
                else:
                    self._in_work.append(left)
            await pause()
        return await self._end(pending)

    # -- answers ---------------------------------------------------------------------------------------------------------

    def finish(self) -> Answer:
        """The answer, once `run` is done."""
        self._take_throttle_time()
        if self._unverified is None and self._in_work is None:
            return self._answer_or_wait(None)
        pending = Pending(in_turns=True)
        self._keep_copies(pending)
        if self._unverified is None:
            return self._services.running.begin(self._end(pending), pending, holds_slot=False)
        self._verify(pending)
        return pending

    def _take_throttle_time(self) -> None:
        connection = self._connection
        if self._acks == 0:
            connection.exempt()  # only its bytes are limited, since the producer does not learn of a throttle time
        self._throttle_time_ms = connection.throttle(PRODUCE, self._size)

    def _answer_or_wait(self, pending: Pending | None) -> Answer:
        """The answer; or `pending`, or a new Pending, if partitions have to wait."""
        if self._accepted:
            self._count_code(NONE, self._accepted)
        if self._acks == 0:
            return self._end_without_answer()
        if self._waiting is None:
            return self._encoded()
        if pending is None:
            pending = Pending()
        self._forget_frame()  # the replicas may take long
        pending.end_keeping()
        pending.in_turns, pending.appended = False, True
        self._pending = pending
        delayed = DelayedProduce(self._waiting, self._acks, self._answer_to)
        delayed.begin(self._services.data.produce_purgatory, self.reader.timeout_ms)
        return pending

    def _end_without_answer(self) -> Completion:
        if self.failed is None:
            return NO_RESPONSE
        topic, index, code = self.failed
        client_id = self._connection.client.client_id
        self._connection.offend(f"Produce with acks=0 to {topic}-{index} failed with {ErrorCode.of(code).name} (client id {client_id})")
        return CLOSE

    def _answer_to(self, decided: Sequence[AppendedPartition]) -> None:
        """Complete the answer, once the outcome of the waiting partitions is known."""
        for each in decided:
            code = each.error_code
            if code != NONE:
                self._count_code(NONE, -1)
                self._count_code(code, 1)
                self._answer.correct(each.place, code, each.base_offset)
        assert self._pending is not None
        self._pending.complete(self._encoded())

    def _encoded(self) -> bytes:
        nodes: NodeEndpoints = ()
        if self._leaders is not None:
            nodes = leader_nodes(self._services.data.replica_manager, self._leaders, self._connection.client.listener_name)
        return self._answer.finish(self._throttle_time_ms, nodes)
