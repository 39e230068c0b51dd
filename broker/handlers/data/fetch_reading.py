"""One Fetch request on its way: what it asks for, the last reading of it, and the answer to that. For the handlers of Fetch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from broker.fetching.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Partitions,
    SessionPartition,
    key_of,
)
from broker.handlers.data.leader_hints import current_leader, leader_nodes
from broker.handlers.data.partition_errors import partition_error
from broker.handlers.data.topic_counters import count_failed_fetch
from broker.request.context import RequestContext
from broker.request.turns import Steps
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
from replication.errors import ReplicationError
from replication.leader.partition import Partition
from replication.reading.fetch_read import CONSUMER, DEBUGGING_CONSUMER, FetchParams, is_idle_consumer, is_idle_follower, read_partition
from storage.errors import StorageError

FIRST_VERSION_THAT_KNOWS_STORAGE_ERRORS = 6
FIRST_VERSION_WITHOUT_OLD_FORMATS = 4
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_THAT_MAY_READ_FROM_FOLLOWERS = 11
FIRST_VERSION_WITH_DIVERGING_EPOCHS = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_LEADER_HINTS = 16

GATHERED_BYTES = 64 * 1024
"""A follower that finds this much is not at the end: it is answered at once."""

PARTITIONS_PER_STEP = 64
MOST_PARTITIONS_AT_ONCE = 1024
"""More are read and answered in steps: that many take some milliseconds."""

ASKS_FOR_A_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_Item = TypeVar("_Item")


def portions(items: list[_Item]) -> Iterator[list[_Item]]:
    """One step's work after the other."""
    return (items[start : start + PARTITIONS_PER_STEP] for start in range(0, len(items), PARTITIONS_PER_STEP))


class Fetch:
    """One Fetch request on its way: what it asks for, and the last reading of it."""

    __slots__ = (
        "_asked",
        "_unknown",
        "answers",
        "context",
        "create_session",
        "failed",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "params",
        "partitions",
        "session",
        "size",
        "waited",
    )

    def __init__(self, request: FetchRequest, context: RequestContext, partitions: Partitions, session: FetchSession | None) -> None:
        version = context.api_version
        self.context = context
        self.partitions = partitions
        if session is not None and not session.partitions:
            # nothing is left to remember: the session ends, and what the request itself names is read once more
            context.broker.fetch_sessions.remove(session.session_id)
            session = None
        self.session = session
        self._asked = () if session is None or version >= FIRST_VERSION_WITH_DIVERGING_EPOCHS else request.topics
        self.create_session = request.session_epoch == INITIAL_EPOCH
        replica_id = request.replica_id if version < FIRST_VERSION_WITH_REPLICA_STATE else request.replica_state.replica_id
        or_follower = replica_id < DEBUGGING_CONSUMER or (replica_id < 0 and version >= FIRST_VERSION_THAT_MAY_READ_FROM_FOLLOWERS)
        self.params = FetchParams(
            max(replica_id, CONSUMER),  # a debugging consumer sees what others see, if it also asks followers
            request.isolation_level,
            or_follower=or_follower,
            rack_id=request.rack_id if replica_id < 0 and version >= FIRST_VERSION_THAT_MAY_READ_FROM_FOLLOWERS else None,
            listener=context.client.listener_name,
        )
        self.max_wait_ms = request.max_wait_ms
        self.max_bytes = min(request.max_bytes, context.broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.answers: list[tuple[SessionPartition, PartitionData]] = []
        """Without those of a session about which there is nothing to say."""
        self.waited: list[tuple[Partition, SessionPartition]] = []
        """The partitions that were read, whose progress could complete this fetch."""
        self._unknown: list[tuple[SessionPartition, PartitionData]] = []
        self.size = 0
        self.failed = False

    @property
    def is_large(self) -> bool:
        """Whether it is read and answered in steps."""
        return len(self.partitions) > MOST_PARTITIONS_AT_ONCE

    def read(self, now_ms: int, *, is_first_read: bool = True, may_wait: bool = True) -> None:
        """Read every partition, in order, until max_bytes are found. The first batch is returned whole even when it is larger.

        What the cluster does not know is answered last and is no reason to answer at once, as in Apache Kafka. Raises ColdRead unless it
        `may_wait` for the disk; reading again is then harmless.
        """
        self._begin()
        self._read(self.partitions.values(), now_ms, is_first_read=is_first_read, may_wait=may_wait)
        self.answers += self._unknown

    def read_steps(self, now_ms: int, *, may_wait: bool) -> Steps[None]:
        """The first reading, in steps."""
        self._begin()
        for some in portions(list(self.partitions.values())):
            self._read(some, now_ms, is_first_read=True, may_wait=may_wait)
            yield
        self.answers += self._unknown

    def _begin(self) -> None:
        self.answers = []
        self.waited = []
        self._unknown = []
        self.size = 0
        self.failed = False
        if self.params.replica_id >= 0:
            self.params.begin()

    def _read(self, partitions: Iterable[SessionPartition], now_ms: int, *, is_first_read: bool, may_wait: bool) -> None:
        broker = self.context.broker
        replicas = broker.replica_manager
        version = self.context.api_version
        params = self.params
        left = max(self.max_bytes - self.size, 0)
        min_one_batch = version >= 3 and not self.size
        answers = self.answers
        waited = self.waited
        unknown = self._unknown
        is_in_session = self.session is not None and version >= FIRST_VERSION_WITH_TOPIC_IDS
        is_follower_in_session = is_in_session and params.replica_id >= 0
        is_consumer_in_session = is_in_session and params.replica_id == CONSUMER and replicas.replica_selector is None
        for asked in partitions:
            name = asked.name or self._resolve(asked)
            if name is None:
                unknown.append((asked, self._failed(asked, ErrorCode.UNKNOWN_TOPIC_ID)))
                continue
            partition = replicas.partition(name, asked.partition)
            if partition is None and replicas.cluster.partition(name, asked.partition) is None:
                unknown.append((asked, self._failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
                continue
            if partition is not None:
                partition.stats.fetch_requests += 1
                if (
                    is_idle_consumer(partition, asked, params.isolation)
                    if is_consumer_in_session
                    else is_follower_in_session
                    and is_idle_follower(partition, asked, params.replica_id, now_ms, is_first_read=is_first_read)
                ):
                    waited.append((partition, asked))
                    continue
            try:
                max_bytes = asked.max_bytes if asked.max_bytes < left else left
                answer = read_partition(
                    replicas,
                    name,
                    asked,
                    params,
                    max_bytes,
                    now_ms,
                    min_one_batch=min_one_batch,
                    is_first_read=is_first_read,
                    may_wait=may_wait,
                )
            except (StorageError, ReplicationError) as error:
                self.failed = True
                count_failed_fetch(replicas, name, error)
                answers.append((asked, self._failed(asked, partition_error(error, broker), was_read=True)))
                continue
            assert partition is not None  # or read_partition would have raised
            if version < FIRST_VERSION_WITH_ZSTD:
                refused = self._too_old_for(partition)
                if refused:
                    self.failed = True
                    answers.append((asked, self._failed(asked, refused)))
                    continue
            records = answer.records
            if records:
                size = len(records)
                self.size += size
                left = left - size if size < left else 0
                min_one_batch = False
            answers.append((asked, answer))
            waited.append((partition, asked))

    def _resolve(self, asked: SessionPartition) -> str | None:
        """The name of a topic that was unknown when the session was told of it."""
        if self.context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
            return asked.name
        asked.name = self.context.broker.cluster.names_by_id.get(asked.topic_id)
        return asked.name

    def _too_old_for(self, partition: Partition) -> ErrorCode:
        """Why a reader of this version could not understand what the log holds."""
        if partition.log.config[COMPRESSION_TYPE] == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if self.context.api_version < FIRST_VERSION_WITHOUT_OLD_FORMATS:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE

    def _failed(self, asked: SessionPartition, code: ErrorCode, *, was_read: bool = False) -> PartitionData:
        version = self.context.api_version
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_THAT_KNOWS_STORAGE_ERRORS:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None if was_read else [],
            records=b"",
        )
        if version >= FIRST_VERSION_WITH_LEADER_HINTS and code in ASKS_FOR_A_LEADER:
            leader_id, leader_epoch = current_leader(self.context.broker.replica_manager, asked.name or "", asked.partition)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return answer

    def must_answer_now(self) -> bool:
        """Whether there is enough, or no use in waiting."""
        if self.size >= self.min_bytes or self.failed or self.max_wait_ms <= 0 or not self.waited:
            return True
        return any(answer.diverging_epoch.epoch != -1 or answer.preferred_read_replica != -1 for _, answer in self.answers)

    def may_gather(self) -> bool:
        """Whether a follower had better wait until the end of the turn: it is at the end, nearly, and more may be coming in this turn."""
        if self.session is None or self.params.replica_id < 0 or self.failed or self.max_wait_ms <= 0:
            return False
        return 0 < self.size < GATHERED_BYTES

    def response(self, now_ms: int) -> FetchResponse:
        """The answer to the last reading, as the session shortens it."""
        session_id, answers = self._news(now_ms)
        topics: list[FetchableTopicResponse] = []
        self._group(answers, topics)
        return self._response(session_id, topics)

    def response_steps(self, now_ms: int) -> Steps[FetchResponse]:
        """The same in steps."""
        session_id, answers = self._news(now_ms)
        topics: list[FetchableTopicResponse] = []
        for some in portions(answers):
            self._group(some, topics)
            yield
        return self._response(session_id, topics)

    def _news(self, now_ms: int) -> tuple[int, list[tuple[SessionPartition, PartitionData]]]:
        """The id of the session, and what its client has to be told."""
        session = self.session
        answers = self.answers
        session_id = NO_SESSION
        if self.params.replica_id >= 0:
            fetches = self.context.broker.replica_manager.topic_stats.follower_fetches
            fetches[self.context.api_version] = fetches.get(self.context.api_version, 0) + 1
        if self.params.throttled_bytes:
            quota = self.context.broker.replica_manager.leader_quota
            assert quota is not None  # or nothing would be throttled
            self.params.count(quota)
        if session is not None:
            session_id = session.session_id
            answers = [pair for pair in answers if pair[0].has_news(pair[1])]
            for asked, answer in answers:
                if answer.records:
                    session.serve_last(key_of(asked.name, asked.topic_id, asked.partition))
        elif self.create_session:
            session_id = self.context.broker.fetch_sessions.maybe_create(
                self.partitions,
                is_follower=self.params.replica_id >= 0,
                uses_topic_ids=self.context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
                now_ms=now_ms,
            )
            if session_id != NO_SESSION:
                for asked, answer in answers:
                    asked.has_news(answer)
        return session_id, answers

    def _group(self, answers: list[tuple[SessionPartition, PartitionData]], topics: list[FetchableTopicResponse]) -> None:
        """Puts answers into topics, and counts what they hold."""
        last = topics[-1] if topics else None
        stats = self.context.broker.replica_manager.topic_stats
        for asked, answer in answers:
            if answer.records:
                of_topic = stats.of_any(asked.name or "")
                if self.params.replica_id >= 0:
                    of_topic.replication_bytes_out += len(answer.records)
                    if self._is_added(asked.name or "", asked.partition):
                        of_topic.reassignment_bytes_out += len(answer.records)
                else:
                    of_topic.bytes_out += len(answer.records)
            if last is None or last.topic_id != asked.topic_id or (last.topic != asked.name and asked.name is not None):
                last = FetchableTopicResponse(topic=asked.name or "", topic_id=asked.topic_id)
                topics.append(last)
            last.partitions.append(answer)

    def _response(self, session_id: int, topics: list[FetchableTopicResponse]) -> FetchResponse:
        if self.context.api_version < FIRST_VERSION_WITH_DIVERGING_EPOCHS and any(
            answer.diverging_epoch.epoch != -1 for topic in topics for answer in topic.partitions
        ):
            return self._unsupported_version(session_id)
        response = FetchResponse(session_id=session_id, responses=topics)
        if self.failed and self.context.api_version >= FIRST_VERSION_WITH_LEADER_HINTS:
            response.node_endpoints = self._node_endpoints()
        return response

    def _unsupported_version(self, session_id: int) -> FetchResponse:
        """A later version told the session of the last epoch that was fetched, and this one cannot be told where the logs diverge."""
        code = ErrorCode.UNSUPPORTED_VERSION
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=None)
                    for asked in topic.partitions
                ],
            )
            for topic in self._asked
        ]
        return FetchResponse(error_code=code, session_id=session_id, responses=topics)

    def _is_added(self, topic: str, index: int) -> bool:
        """Whether the follower that asks is a replica that a reassignment adds."""
        partition = self.context.broker.replica_manager.partition(topic, index)
        return partition is not None and self.params.replica_id in partition.adding_replicas

    def _node_endpoints(self) -> list[NodeEndpoint]:
        leaders = {answer.current_leader.leader_id for _, answer in self.answers}
        nodes = leader_nodes(self.context.broker.replica_manager, leaders, self.context.client.listener_name)
        return [NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack) for node_id, endpoint, rack in nodes]
