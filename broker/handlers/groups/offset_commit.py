"""Serves OffsetCommit (api 8), versions 0-10.

Offsets go to the group's log from 1 on; a retention time in 2-4, the leader epoch from 6 (KIP-320), static members from 7 (KIP-345),
topic ids from 10.

Version 0 commits to the metadata store, where old consumers kept their offsets. The answer is sent when all in-sync replicas have the
offsets.

The same functions serve any number of partitions, and TxnOffsetCommit. `OffsetCommit` reads the request in the receive buffer, and builds
the value of a record for each offset. The coordinator writes the records, and the answer is written when they are replicated. A large
request is copied, and continues in turns.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar, final

from ottla.broker.handlers.groups.group_topics import partitions_of
from ottla.broker.handlers.groups.offsets_in_store import commit_to_store
from ottla.broker.network.request_channel import Answer, Pending
from ottla.broker.quotas.quota_type import REQUEST
from ottla.broker.request.large_requests import LARGE_BYTES
from ottla.broker.request.malformed import answer_in_turn
from ottla.coordination.groups.commits import Commit, TopicCommit, Transaction
from ottla.coordination.groups.group import Committer
from ottla.coordination.groups.offset_records import NO_EXPIRY, encode_value
from ottla.coordination.supported_operation import operation_of
from ottla.pauses import discard, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.offset_commit import (
    FIRST_WITH_TOPIC_IDS,
    TXN_LAYOUTS,
    OffsetCommitAnswer,
    OffsetCommitReader,
    TxnOffsetCommitReader,
)
from ottla.protocol.cursors.request_reader import END, PARTITION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.request.services import Services
    from ottla.broker.security.access import Access

logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")

DEFAULT_TIMESTAMP: Final = -1
DEFAULT_RETENTION_MS: Final = -1
MAX_TIMESTAMP: Final = 2**63 - 1
"""Unix time, ms; a retention time that leads beyond it is one without end."""
AT_ONCE: Final = 64
"""Elements between two checks of the clock."""
TXN_OFFSET_COMMIT: Final = int(ApiKey.TXN_OFFSET_COMMIT)
_WRITTEN: Final[list[tuple[int, int]]] = []
"""The answers of a topic that has been written."""
FIRST_TXN_THAT_KNOWS_LOADING: Final = 2
"""The version of TxnOffsetCommit from which on producers take COORDINATOR_LOAD_IN_PROGRESS for a reason to try again (KAFKA-7296)."""


def handle_offset_commit_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Store offsets of a group, and answer, now or when they are safe.

    Raises ProtocolError for a frame that is no such request; nothing was done then.
    """
    return commit_offsets(ApiKey.OFFSET_COMMIT, frame, offset, version, correlation_id, connection, services)


def commit_offsets(
    key: int, frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, services: Services
) -> Answer:
    """Handle an OffsetCommit or TxnOffsetCommit; `key` distinguishes them. Raises ProtocolError."""
    if len(frame) < LARGE_BYTES:
        commit = OffsetCommit(key, frame, offset, version, correlation_id, connection, services)
        commit.read(len(frame))
        if commit.is_for_store:
            return services.running.begin(commit.commit_to_store())
        pending = Pending()
        commit.answer(pending)
        return pending.answer if pending.completed else pending
    return answer_in_turn(frame, connection, services, _commit, key, offset, version, correlation_id, connection, services)


async def _commit(
    frame: memoryview,
    pending: Pending,
    key: int,
    offset: int,
    version: int,
    correlation_id: int,
    connection: Connection,
    services: Services,
) -> Answer:
    commit = OffsetCommit(key, frame, offset, version, correlation_id, connection, services)
    malformed: ProtocolError | None = None
    try:
        while not commit.read(AT_ONCE):
            await pause()
    except ProtocolError as error:
        malformed = error
    if malformed is not None:
        # Compiled code must not wait in an except block: the functions that it calls there would refer to the error.
        await commit.discard()
        raise malformed
    if commit.is_for_store:
        return await commit.commit_to_store()
    commit.answer(pending)
    return pending


@final
class OffsetCommit:
    """One OffsetCommit or TxnOffsetCommit in progress: `read` it, then `answer`."""

    __slots__ = (
        "_answer",
        "_code",
        "_commits",
        "_connection",
        "_decided",
        "_errors",
        "_expire_timestamp",
        "_for_store",
        "_known",
        "_now_ms",
        "_pending",
        "_reader",
        "_refusal",
        "_services",
        "_store_answers",
        "_too_large",
        "_topic",
        "_topic_bytes",
        "_topic_error",
        "_values",
        "is_for_store",
    )

    def __init__(
        self,
        key: int,
        frame: memoryview,
        offset: int,
        version: int,
        correlation_id: int,
        connection: Connection,
        services: Services,
    ) -> None:
        """Raises ProtocolError."""
        self._errors = key << 16
        if key == TXN_OFFSET_COMMIT:
            reader: OffsetCommitReader = TxnOffsetCommitReader(frame, offset, version, TXN_LAYOUTS[version])
        else:
            reader = OffsetCommitReader(frame, offset, version, version)
        self._reader = reader
        self.is_for_store = reader.layout == 0
        """Whether the offsets go to the metadata store."""
        self._answer = OffsetCommitAnswer(reader.layout, correlation_id)
        self._connection = connection
        self._services = services
        self._refusal = _refusal(reader, connection.access)
        now_ms: int = services.clock.now_ms()
        self._now_ms = now_ms
        retention_ms = reader.retention_time_ms
        self._expire_timestamp: int = NO_EXPIRY if retention_ms == DEFAULT_RETENTION_MS else min(now_ms + retention_ms, MAX_TIMESTAMP)
        self._decided: dict[bytes, list[tuple[int, int]]] = {}
        """By topic, the partitions whose answer is known before anything is committed, with the error code."""
        self._commits: dict[bytes, TopicCommit] = {}
        self._for_store: dict[TopicPartition, int] = {}
        """The offset to store for each partition, in version 0. A partition that is named again is written once, with its last offset."""
        self._store_answers: list[tuple[bytes, TopicPartition, bool]] = []
        """(topic, partition, whether its metadata may be committed) for each partition in the answer of version 0."""
        self._topic_bytes: bytes | None = None
        self._topic = ""
        self._known: Collection[int] = ()
        self._topic_error = ErrorCode.NONE
        self._values: dict[int, bytes | None] | None = None
        self._code = self._too_large = ErrorCode.NONE
        self._pending = Pending()

    # -- reading -----------------------------------------------------------------------------------------------------------

    def read(self, limit: int) -> bool:
        """Collect the offsets to commit in up to `limit` elements, and decide the errors of the others. True when all are read.

        Nothing is done for the request yet. Raises ProtocolError.
        """
        reader = self._reader
        for _ in range(limit):
            kind = reader.advance()
            if kind == END:
                return True
            if reader.topic is not self._topic_bytes:
                self._begin_topic(reader.topic)
            if kind == PARTITION:
                self._take(reader)
        return False

    def _begin_topic(self, topic: bytes) -> None:
        self._topic_bytes = topic
        by_id = self._reader.layout >= FIRST_WITH_TOPIC_IDS
        name = self._services.metadata.names_by_id.get(topic, "") if by_id else topic.decode()
        self._topic = name
        self._values = None
        self._known = ()
        self._topic_error = self._refusal
        if by_id and not name:
            self._topic_error = self._refusal or ErrorCode.UNKNOWN_TOPIC_ID
        elif not self._refusal:
            self._known, self._topic_error = partitions_of(name, self._connection.access, self._services.metadata)
        if not self._known:
            # Named in the answer even without a partition: so does Apache Kafka with topics that it does not know.
            self._decided.setdefault(topic, [])

    def _take(self, reader: OffsetCommitReader) -> None:
        """One partition. A partition that is named twice counts once, with its last offset; version 0 answers each time."""
        index = reader.index
        if index not in self._known:
            self._decided.setdefault(reader.topic, []).append((index, self._topic_error))
            return
        metadata = reader.committed_metadata or b""
        fits = not metadata or self._services.coordinators.groups.offsets.fits(metadata)
        if self.is_for_store:
            partition = TopicPartition(self._topic, index)
            self._store_answers.append((reader.topic, partition, fits))
            if fits:
                self._for_store[partition] = reader.committed_offset
            return
        values = self._values
        if values is None:
            topic = self._commits.get(reader.topic)
            if topic is None:
                self._commits[reader.topic] = topic = TopicCommit(self._topic)
            self._values = values = topic.values
        if not fits:
            values[index] = None
            return
        timestamp = reader.commit_timestamp
        values[index] = encode_value(
            reader.committed_offset,
            reader.committed_leader_epoch,
            metadata,
            self._now_ms if timestamp == DEFAULT_TIMESTAMP else timestamp,
            self._expire_timestamp,
        )

    # -- answering -----------------------------------------------------------------------------------------------------------

    def answer(self, pending: Pending) -> None:
        """Commit the offsets that were read, and complete `pending` when this is done, at once or later."""
        self._pending = pending
        pending.in_turns = False
        if self._commits:
            reader = self._reader
            instance_id = reader.group_instance_id
            self._services.coordinators.groups.offsets.commit(
                reader.group_id.decode(),
                Committer(
                    reader.member_id.decode(),
                    None if instance_id is None else instance_id.decode(),
                    reader.generation_id,
                    reader.transactional_id is not None,
                    reader.version,
                ),
                _transaction(reader),
                Commit(self._commits.values()),
                self._on_committed,
            )
        else:
            self._complete()

    def _on_committed(self, code: ErrorCode, too_large: ErrorCode) -> None:
        """Answer with the code of the offsets, and that of those whose metadata is too large."""
        if self._reader.transactional_id is not None and code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = too_large = _code_while_loading(self._reader.version)
        self._code = code
        self._too_large = too_large
        self._complete()

    async def commit_to_store(self) -> Answer:
        """Commit the offsets of version 0 that were read, and answer."""
        group_id = self._reader.group_id.decode()
        codes: dict[TopicPartition, ErrorCode] = {}
        for partition, offset in self._for_store.items():
            codes[partition] = await commit_to_store(group_id, partition, offset, self._services)
        answers = self._store_answers
        answers.reverse()
        while answers:
            topic, partition, fits = answers.pop()
            code = codes[partition] if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
            self._decided.setdefault(topic, []).append((partition.partition, code))
            await pause()
        return await self._write()

    def _complete(self) -> None:
        """Answer."""
        self._services.running.begin(self._write(), self._pending)

    async def _write(self) -> bytes:
        """The response, by topic: the errors that were decided first, then the other results."""
        answer = self._answer
        for topic, decided in self._decided.items():
            answer.name_topic(topic)
            self._decided[topic] = _WRITTEN
            await self._write_decided(decided)
            await self._write_committed(topic)
            await pause()
        for topic in self._commits:
            if topic not in self._decided:
                answer.begin_topic(topic)
                await self._write_committed(topic)
        await discard(self._decided)
        return answer.finish(self._connection.throttle(REQUEST, 0))

    async def _write_decided(self, decided: list[tuple[int, int]]) -> None:
        """Write the partitions of a topic with their codes, and free them: half a million at once would take 30 ms."""
        decided.reverse()
        while decided:
            some = decided[-AT_ONCE:]
            del decided[-AT_ONCE:]
            for index, code in reversed(some):
                self._answer.put(index, code)
                self._count(code, 1)
            await pause()

    async def discard(self) -> None:
        """Free what was read of a malformed request."""
        for topic, decided in self._decided.items():
            self._decided[topic] = _WRITTEN
            await discard(decided)
            await pause()
        await discard(self._decided)
        await discard(self._store_answers)

    async def _write_committed(self, topic: bytes) -> None:
        commit = self._commits.get(topic)
        if commit is None:
            return
        answer = self._answer
        code, too_large = self._code, self._too_large
        refused = 0
        for some in _batched(commit.values.items(), AT_ONCE):
            for index, value in some:
                if value is None:
                    refused += 1
                    answer.put(index, too_large)
                else:
                    answer.put(index, code)
            await pause()
        self._count(code, len(commit.values) - refused)
        self._count(too_large, refused)

    def _count(self, code: int, times: int) -> None:
        if times:
            counts = self._services.error_counts
            key = self._errors | code & 0xFFFF
            counts[key] = counts.get(key, 0) + times


def _refusal(reader: OffsetCommitReader, access: Access) -> ErrorCode:
    """Why the sender may not commit to the group at all; NONE if it may."""
    transactional_id = reader.transactional_id
    if transactional_id is not None and not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id.decode()):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not access.may(Operation.READ, ResourceType.GROUP, reader.group_id.decode()):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _transaction(reader: OffsetCommitReader) -> Transaction | None:
    """The transaction that the offsets are part of."""
    transactional_id = reader.transactional_id
    if transactional_id is None:
        return None
    operation = operation_of(ApiKey.TXN_OFFSET_COMMIT, reader.version)
    return Transaction(transactional_id.decode(), reader.producer_id, reader.producer_epoch, operation)


def _code_while_loading(version: int) -> ErrorCode:
    """How a TxnOffsetCommit of a version is asked to try again while the group loads."""
    if version < FIRST_TXN_THAT_KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """The items, so many at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
