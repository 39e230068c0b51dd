"""Fetch (api 1), versions 0-17.

KIP-227 sessions from 7, zstd topics only from 10, leader epochs from 9, diverging epochs from 12, topic ids from 13 (KIP-516), the
leader to ask instead from 16 (KIP-951). A fetch that finds less than `min_bytes` waits in the purgatory up to `max_wait_ms`.

Deviation: versions 0-3 would need the records in message format 0 or 1. Ottla stores and serves format 2 only and answers
UNSUPPORTED_VERSION for a partition that has records, as Apache Kafka does with `log.message.downconversion.enable=false`.
"""

from __future__ import annotations

from broker.error_map import error_code
from broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    Partitions,
    SessionPartition,
    key_of,
)
from broker.handlers.leader_hints import current_leader
from broker.network.request_channel import Pending
from broker.purgatory import DelayedOperation
from broker.request_context import RequestContext
from config.topic import COMPRESSION_TYPE
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from replication.errors import ReplicationError, UnknownTopicId, UnknownTopicOrPartition
from replication.fetch_read import end_offset_for, read_partition
from replication.partition import Partition
from storage.errors import StorageError

FIRST_VERSION_WITHOUT_OLD_FORMATS = 4
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADER_HINTS = 16


def handle_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | Pending:
    """Read what the session (or the request alone) asks for; wait when it is less than the client wants."""
    now_ms = context.broker.clock.now_ms()
    uses_topic_ids = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = context.broker.cluster.names_by_id
    asked = [
        (names.get(topic.topic_id) if uses_topic_ids else topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    session: FetchSession | None = None
    create_session = False
    cache = context.broker.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        cache.remove(request.session_id)
        create_session = request.session_epoch == INITIAL_EPOCH
        partitions: Partitions = {key_of(name, topic_id, p.partition): SessionPartition(name, topic_id, p) for name, topic_id, p in asked}
    else:
        try:
            session = cache.get(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        except FetchSessionIdNotFound:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        except InvalidFetchSessionEpoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        except FetchSessionTopicIdError:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        forgotten = [
            (names.get(topic.topic_id) if uses_topic_ids else topic.topic, topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        session.update(asked, forgotten)
        partitions = session.partitions
    fetch = Fetch(request, context, partitions, session, create_session=create_session)
    fetch.read(now_ms)
    if fetch.must_answer_now():
        return fetch.response(now_ms)
    return wait_for_more(fetch)


class Fetch:
    """One Fetch request on its way: what it asks for, and the last reading of it."""

    __slots__ = (
        "answers",
        "context",
        "create_session",
        "failed",
        "isolation",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "replica_id",
        "session",
        "size",
    )

    def __init__(
        self, request: FetchRequest, context: RequestContext, partitions: Partitions, session: FetchSession | None, *, create_session: bool
    ) -> None:
        self.context = context
        self.partitions = partitions
        self.session = session
        self.create_session = create_session
        self.replica_id = request.replica_id if context.api_version < 15 else request.replica_state.replica_id
        self.isolation = request.isolation_level
        self.max_wait_ms = request.max_wait_ms
        limit = context.broker.fetch_max_bytes
        self.max_bytes = min(request.max_bytes, limit) if self.replica_id < 0 else request.max_bytes
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.answers: list[tuple[SessionPartition, PartitionData]] = []
        self.size = 0
        self.failed = False

    def read(self, now_ms: int) -> None:
        """Read every partition, in order, until max_bytes are found. The first batch is returned whole even when it is larger."""
        replicas = self.context.broker.replica_manager
        version = self.context.api_version
        left = self.max_bytes
        min_one_batch = version >= 3
        self.answers = answers = []
        self.size = 0
        self.failed = False
        for asked in self.partitions.values():
            try:
                name = asked.name
                if name is None:
                    name = self._resolve(asked)
                max_bytes = asked.max_bytes if asked.max_bytes < left else left
                answer = read_partition(
                    replicas, name, asked, self.replica_id, self.isolation, max_bytes, now_ms, min_one_batch=min_one_batch
                )
                records = answer.records
                if records:
                    if version < FIRST_VERSION_WITH_ZSTD:
                        self._check_old_reader(name, asked.partition)
                    size = len(records)
                    self.size += size
                    left = left - size if size < left else 0
                    min_one_batch = False
            except (StorageError, ReplicationError) as error:
                self.failed = True
                answer = self._failed(asked, error_code(error))
            except _OldReader as refused:
                self.failed = True
                answer = self._failed(asked, refused.code)
            answers.append((asked, answer))

    def _resolve(self, asked: SessionPartition) -> str:
        """The name of a topic that was unknown when the session was told of it. Raises UnknownTopicId."""
        if self.context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
            raise UnknownTopicOrPartition("", asked.partition)
        name = self.context.broker.cluster.names_by_id.get(asked.topic_id)
        if name is None:
            raise UnknownTopicId(asked.topic_id.hex())
        asked.name = name
        return name

    def _check_old_reader(self, name: str, partition: int) -> None:
        """Refuse what a reader of this version could not understand."""
        version = self.context.api_version
        if version < FIRST_VERSION_WITHOUT_OLD_FORMATS:
            raise _OldReader(ErrorCode.UNSUPPORTED_VERSION)
        log = self.context.broker.replica_manager.partitions[name][partition].log
        if log.config[COMPRESSION_TYPE] == "zstd":
            raise _OldReader(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _failed(self, asked: SessionPartition, code: ErrorCode) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None,
            records=b"",
        )
        if self.context.api_version >= FIRST_VERSION_WITH_LEADER_HINTS and asked.name is not None:
            leader_id, leader_epoch, _, _ = current_leader(
                self.context.broker.cluster, code, asked.name, asked.partition, self.context.connection.listener_name
            )
            if leader_id != -1:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return answer

    def must_answer_now(self) -> bool:
        """Whether there is enough, or no use in waiting."""
        if self.size >= self.min_bytes or self.failed or self.max_wait_ms <= 0 or not self.partitions:
            return True
        return any(answer.diverging_epoch.epoch != -1 or answer.preferred_read_replica != -1 for _, answer in self.answers)

    def waitable(self) -> list[tuple[Partition, SessionPartition]]:
        """The partitions whose progress could complete this fetch."""
        replicas = self.context.broker.replica_manager
        found = [(replicas.partition(asked.name or "", asked.partition), asked) for asked in self.partitions.values()]
        return [(partition, asked) for partition, asked in found if partition is not None]

    def response(self, now_ms: int) -> FetchResponse:
        """The answer to the last reading, as the session shortens it."""
        session = self.session
        answers = self.answers
        session_id = NO_SESSION
        if session is not None:
            session_id = session.session_id
            answers = [pair for pair in answers if pair[0].has_news(pair[1])]
            for asked, answer in answers:
                if answer.records:
                    session.serve_last(key_of(asked.name, asked.topic_id, asked.partition))
        elif self.create_session:
            session_id = self.context.broker.fetch_sessions.maybe_create(
                self.partitions,
                is_follower=self.replica_id >= 0,
                uses_topic_ids=self.context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
                now_ms=now_ms,
            )
            if session_id != NO_SESSION:
                for asked, answer in answers:
                    asked.has_news(answer)
        topics: list[FetchableTopicResponse] = []
        last: FetchableTopicResponse | None = None
        for asked, answer in answers:
            if last is None or last.topic_id != asked.topic_id or (last.topic != asked.name and asked.name is not None):
                last = FetchableTopicResponse(topic=asked.name or "", topic_id=asked.topic_id)
                topics.append(last)
            last.partitions.append(answer)
        response = FetchResponse(session_id=session_id, responses=topics)
        if self.failed and self.context.api_version >= FIRST_VERSION_WITH_LEADER_HINTS:
            response.node_endpoints = self._node_endpoints()
        return response

    def _node_endpoints(self) -> list[NodeEndpoint]:
        cluster = self.context.broker.cluster
        leaders = {answer.current_leader.leader_id for _, answer in self.answers if answer.current_leader.leader_id != -1}
        found = []
        for leader_id in sorted(leaders):
            broker = cluster.brokers.get(leader_id)
            endpoint = broker.endpoints.get(self.context.connection.listener_name) if broker is not None else None
            if broker is not None and endpoint is not None:
                found.append(NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
        return found


class _OldReader(Exception):
    """A client too old for what the log holds."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code


class DelayedFetch(DelayedOperation):
    """A fetch that waits for more bytes, a change of leadership, or its time."""

    __slots__ = ("_ends", "_fetch", "_is_fresh", "_pending", "_sizes", "_waited")

    def __init__(self, fetch: Fetch, pending: Pending) -> None:
        super().__init__()
        self._fetch = fetch
        self._pending = pending
        self._is_fresh = False
        self._waited = fetch.waitable()
        self._ends = [end_offset_for(partition, fetch.replica_id, fetch.isolation) for partition, _ in self._waited]
        self._sizes = [partition.log.size_bytes for partition, _ in self._waited]

    def try_complete(self) -> bool:
        """Complete when a partition changed hands, or has grown enough.

        The growth of the logs stands in for the bytes that became readable: with a high watermark that lags it can wake the fetch too
        early, and then it is read again and waits on.
        """
        fetch = self._fetch
        grown = fetch.size
        moved = False
        for i, (partition, asked) in enumerate(self._waited):
            if not partition.is_leader or asked.leader_epoch not in (-1, partition.leader_epoch):
                return self.force_complete()
            if end_offset_for(partition, fetch.replica_id, fetch.isolation) != self._ends[i]:
                moved = True
                grown += partition.log.size_bytes - self._sizes[i]
        if not moved:
            return False
        if grown >= fetch.min_bytes:
            fetch.read(fetch.context.broker.clock.now_ms())
            if fetch.must_answer_now():
                self._is_fresh = True
                return self.force_complete()
            self._ends = [end_offset_for(partition, fetch.replica_id, fetch.isolation) for partition, _ in self._waited]
            self._sizes = [partition.log.size_bytes for partition, _ in self._waited]
        return False

    def on_complete(self) -> None:
        """Answer with what is there now."""
        now_ms = self._fetch.context.broker.clock.now_ms()
        if not self._is_fresh:
            self._fetch.read(now_ms)
        self._pending.complete(self._fetch.context.encode(self._fetch.response(now_ms)))


def wait_for_more(fetch: Fetch) -> Pending:
    """Park a fetch in the purgatory; the connection's end cancels it."""
    pending = Pending()
    operation = DelayedFetch(fetch, pending)
    pending.on_closed = operation.cancel
    fetch.context.broker.fetch_purgatory.try_complete_else_watch(
        operation, [partition.waiters for partition, _ in fetch.waitable()], fetch.max_wait_ms
    )
    return pending
