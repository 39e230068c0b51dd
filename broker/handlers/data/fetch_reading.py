"""Processes one Fetch from its frame to its answer, a few partitions at a time.

The handler of Fetch creates and runs it, and lets it wait when necessary. A fetch has stages (`fetch_stages`): its partitions are taken
from the request, read, and answered; or watched, waited for and read again. Consumers and followers, requests of one partition and of a
hundred thousand, first and later reads all use the same functions.

A follower with a session is read in two steps. The offsets in its request show the leader its progress; they take effect at once. Records
are read only when the answer is sent, at the end of the turn of the event loop, so that the answer contains records appended meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ottla.broker.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, SessionPartition
from ottla.broker.fetching.fetch_sessions import (
    FetchSessionError,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from ottla.broker.fetching.remote_fetch import RemoteFetch
from ottla.broker.handlers.data.fetch_stages import (
    ANSWERED,
    CLUSTER,
    CLUSTER_ACTION,
    CONVERTING,
    FIRST_THAT_KNOWS_STORAGE_ERRORS,
    FIRST_THAT_MAY_READ_FROM_FOLLOWERS,
    FIRST_WITH_ONE_BATCH,
    FIRST_WITH_TIMESTAMPS,
    FIRST_WITH_TOPIC_IDS,
    FIRST_WITH_ZSTD,
    FIRST_WITHOUT_OLD_FORMATS,
    GATHERING,
    NO_ERROR,
    NOT_AUTHORIZED,
    NOT_LEADER,
    READ,
    READING,
    STORAGE_ERROR,
    TAKING,
    TOPIC,
    UNKNOWN,
    UNKNOWN_ID,
    UNSUPPORTED_COMPRESSION,
    UNSUPPORTED_VERSION,
    VERIFYING,
    WAITING,
    WATCHING,
    WRITING,
)
from ottla.broker.handlers.data.fetch_writing import FetchWriter
from ottla.broker.handlers.data.partition_errors import partition_error
from ottla.broker.handlers.data.topic_counters import count_failed_fetch
from ottla.broker.network.request_channel import Parts
from ottla.broker.quotas.quota_type import FETCH
from ottla.broker.request.services import Services
from ottla.broker.security.access import CLUSTER_NAME, Access
from ottla.config.topic import COMPRESSION_TYPE, MESSAGE_DOWNCONVERSION_ENABLE
from ottla.protocol.cursors.fetch import FetchReader
from ottla.protocol.cursors.request_reader import END, FORGOTTEN, PARTITION
from ottla.protocol.errors import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.replica_selector import NO_PREFERENCE
from ottla.replication.reading.asked_partition import CONSUMER, DEBUGGING_CONSUMER, NO_EPOCH
from ottla.replication.reading.fetch_read import FetchParams, cut_first_batch, note_end, read_one
from ottla.replication.reading.remote_read import note_offsets
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.errors import OffsetMovedToTieredStorage, StorageError
from ottla.storage.segment.converted_region import ConvertedRegion

if TYPE_CHECKING:
    from ottla.broker.handlers.data.delayed_fetch import DelayedFetch
    from ottla.broker.network.connection import Connection
    from ottla.replication.waiting.purgatory import Purgatory

INFINITE = float("inf")

SESSION_ERRORS: dict[type[FetchSessionError], ErrorCode] = {
    FetchSessionIdNotFound: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    FetchSessionTopicIdError: ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


@final
class Fetch:
    """One Fetch. `stage` is its progress; `parts` is its answer once it is ANSWERED."""

    __slots__ = (
        "_access", "_answers_anyway", "_at", "_converted", "_correlation_id", "_creates_session", "_current", "_entries", "_error_code",
        "_failed", "_finds_later", "_grown", "_has_unread", "_is_diverted", "_is_follower", "_is_given_up", "_is_judged", "_is_limited",
        "_max_bytes", "_min_bytes", "_named", "_of_topic", "_reader", "_reads_old_segment", "_refusal", "_remote", "_replicas",
        "_topic", "_unknown", "_writer", "connection", "delayed", "has_moved", "is_incremental", "max_wait_ms", "params",
        "parts", "services", "session", "stage", "unconverted", "version", "watched",
    )  # fmt: skip

    def __init__(self, reader: FetchReader, correlation_id: int, connection: Connection, services: Services) -> None:
        self._reader = reader
        request = self._reader  # the same reader; compiled code knows its type
        version = request.version
        is_new = request.session_epoch == INITIAL_EPOCH
        self.services = services
        self.connection = connection
        self._access: Access = connection.access
        self.delayed: DelayedFetch | None = None
        """The operation that waits for it, once it has to wait."""
        self.parts: Parts = []
        self.session = FetchSession(version >= FIRST_WITH_TOPIC_IDS)
        self.is_incremental = not is_new and request.session_epoch != FINAL_EPOCH
        self.stage = VERIFYING if self.is_incremental else TAKING
        self.max_wait_ms = request.max_wait_ms
        self.params = FetchParams(CONSUMER, request.isolation_level)
        self.has_moved = False
        """Whether one of its partitions changed while they were read, or gathered for."""
        self.version = version
        self._correlation_id = correlation_id
        self._replicas = services.data.replica_manager
        self._creates_session = is_new
        self._max_bytes: int = services.data.fetch_max_bytes
        self._max_bytes = min(self._max_bytes, request.max_bytes)
        self._min_bytes = request.min_bytes if request.min_bytes < self._max_bytes else self._max_bytes
        self._entries: list[SessionPartition] = []
        self._named: list[SessionPartition] = []
        """The partitions of a session that the request names."""
        self._unknown: list[SessionPartition] = []
        """Partitions that the cluster does not know, or that the client may not know; answered last."""
        self._at = 0
        self._converted: dict[SessionPartition, ConvertedRegion | bytearray] | None = None
        """The converted records for a client that knows older formats only."""
        self.unconverted: list[SessionPartition] | None = None
        """The partitions whose records must be converted before the answer is written."""
        self._topic: bytes | None = None
        self._of_topic: dict[int, Partition] | None = None
        self._refusal = NO_ERROR
        self._error_code = NO_ERROR
        """The error of the whole request."""
        self._current: SessionPartition | None = None
        self._writer: FetchWriter | None = None
        self._remote: RemoteFetch | None = None
        """Its partitions that are read from the remote store; None if there are none."""
        self._is_follower = False
        """Whether the client claims to be a follower, and may be one."""
        self._is_judged = False
        """Whether `_is_follower` is decided for the present reading."""
        self._finds_later = False
        self._has_unread = False
        self._reads_old_segment = False
        self._failed = False
        self._is_diverted = False
        self._is_given_up = False
        self._is_limited = False  # whether the client has a quota of bytes
        self._answers_anyway = False
        self.watched = 0
        """The number of partitions for which it waits."""
        self._grown = 0

    # -- stages ----------------------------------------------------------------------------------------------------------

    def run(self, limit: int) -> bool:
        """Continue with up to `limit` partitions in each stage. False when there is more to do at once.

        Raises ProtocolError when the request cannot be read. Raises ColdRead when pages must be read from disk; `read_again` follows then.
        """
        while True:
            if self.stage == READING:
                if not self._read(limit):
                    return False
                self._decide()
            elif self.stage == WRITING:
                if not self._write(limit):
                    return False
                self._finish()
            elif self.stage == WATCHING:
                if not self._watch(limit):
                    return False
                self.stage = WAITING
            elif self.stage == TAKING:
                if not self._take(limit):
                    return False
                self._begin()
            elif self.stage == VERIFYING:
                if not self._reader.verify(limit):
                    return False
                self._find_session()
            else:
                return True

    def keep(self) -> None:
        """Copy the unread rest of the frame, whose buffer is about to be reused."""
        self._reader.detach()

    def read_again(self, *, answers_anyway: bool, may_wait: bool = False) -> None:
        """Begin another reading. With `answers_anyway` its result is the answer, even if the client wants more."""
        if self._is_given_up:
            return
        self._answers_anyway = self._answers_anyway or answers_anyway
        self.params.may_wait = may_wait
        if self.stage in (WAITING, GATHERING):
            self.params.is_first_reading = False
        self._finds_later = False
        self._begin_reading()

    def give_up(self) -> None:
        """Answer without partitions that are not written yet: the session has ended, or another fetch continues it."""
        self.session.end_fetch(self)
        self._is_given_up = True
        if self.stage < WRITING or self.stage in (WAITING, GATHERING):
            self._entries = []
            self._unknown = []
            self._failed = False
            self._at = 0
            self.stage = WRITING
        if self.delayed is not None:
            self.delayed.on_given_up()

    def abandon(self) -> None:
        """End: the fetch is answered, or its client has left."""
        session = self.session
        session.end_fetch(self)
        if self._remote is not None:
            self._remote.end()
        if session.session_id == NO_SESSION:
            session.has_ended = True

    # -- taking ----------------------------------------------------------------------------------------------------------

    def _find_session(self) -> None:
        """Continue the session of a request that is valid."""
        reader = self._reader
        services = self.services
        now_ms = elapsed_ms(services.clock)
        try:
            self.session = services.data.fetch_sessions.get(
                reader.session_id, reader.session_epoch, uses_topic_ids=self.version >= FIRST_WITH_TOPIC_IDS, now_ms=now_ms
            )
        except FetchSessionError as error:
            self._refuse_request(SESSION_ERRORS[type(error)])
            return
        self.session.begin_fetch(self)
        self.stage = TAKING

    def _refuse_request(self, code: int) -> None:
        """Answer with the error, without a session."""
        self.session = FetchSession(False)
        self._error_code = code
        self._named = []
        if self._reader.replica_id >= 0:
            self._may_follow()  # a broker has no quota for its time
        self.stage = WRITING

    def _take(self, limit: int) -> bool:
        """Take the next partitions of the request into the session; returns whether these were all."""
        reader = self._reader
        session = self.session
        topic = b""
        name: str | None = None
        for _ in range(limit):
            kind = reader.advance()
            if kind == PARTITION:
                if reader.topic is not topic:
                    topic = reader.topic
                    name = self._name_of(topic)
                asked = session.find(topic, reader.index)
                if asked is None:
                    asked = session.add(topic, name, reader.index)
                asked.update_request(
                    reader.fetch_offset,
                    reader.partition_max_bytes,
                    reader.current_leader_epoch,
                    reader.last_fetched_epoch,
                    reader.log_start_offset,
                )
                if self.is_incremental:
                    self._named.append(asked)
            elif kind == FORGOTTEN:
                if self.is_incremental:
                    session.forget(reader.topic, reader.index)
            elif kind == END:
                return True
        return False

    def _name_of(self, topic: bytes) -> str | None:
        """The name of a topic by its key in requests; None for an unknown id."""
        if self.version >= FIRST_WITH_TOPIC_IDS:
            return self.services.metadata.names_by_id.get(topic)
        return topic.decode()

    def _begin(self) -> None:
        """Begin to read, after the whole request has been taken."""
        reader = self._reader
        services = self.services
        version = self.version
        replica_id = reader.replica_id
        may_read_from_followers = replica_id < 0 and version >= FIRST_THAT_MAY_READ_FROM_FOLLOWERS
        params = self.params
        if replica_id < 0:
            self._limit_bytes()
        params.replica_id = max(replica_id, CONSUMER)  # a debugging consumer reads like others, and may also read from followers
        params.or_follower = replica_id < DEBUGGING_CONSUMER or may_read_from_followers
        client = self.connection.client
        params.listener = client.listener_name
        params.may_wait = False
        if may_read_from_followers and reader.rack_id and self._replicas.replica_selector is not None:
            rack_id = reader.rack_id.decode()
            here = services.metadata.brokers.get(services.broker_id)
            if here is None or here.rack != rack_id:  # in its own rack a leader is preferred to every other replica
                params.rack_id = rack_id
        if replica_id >= 0:
            fetches = self._replicas.topic_stats.follower_fetches
            fetches[version] = fetches.get(version, 0) + 1
        if not self.is_incremental:
            if reader.session_id != NO_SESSION:
                services.data.fetch_sessions.remove(reader.session_id)
            self.session.begin_fetch(self)
        elif not self.session.size:
            self._end_session()
        elif not services.data.fetch_sessions.has_room(self.session):
            self.session.end_fetch(self)
            services.data.fetch_sessions.remove(self.session.session_id)
            self._refuse_request(SESSION_ERRORS[FetchSessionIdNotFound])
            return
        else:
            self._finds_later = params.replica_id >= 0 and self.max_wait_ms > 0 and self._min_bytes <= 1
            reader_is = (version, params.replica_id, params.isolation, params.rack_id is not None, self._access.generation)
            self.session.belong_to(client, reader_is)
            self.session.on_fetch(elapsed_ms(services.clock))
        self._begin_reading()

    def _limit_bytes(self) -> None:
        """Read no more than the quota of the client lets through at once. A larger answer would be withheld again and again."""
        most: float = self.connection.most_fetch_bytes
        self._is_limited = most < INFINITE
        if most < self._max_bytes:
            self._max_bytes = int(most)
            self._min_bytes = min(self._min_bytes, self._max_bytes)

    def _end_session(self) -> None:
        """End a session without remaining partitions; the partitions that the request itself names are read once more."""
        self.session.end_fetch(self)
        self.services.data.fetch_sessions.remove(self.session.session_id)
        self.is_incremental = False
        self.session = FetchSession(self.session.uses_topic_ids)
        self.session.begin_fetch(self)
        for named in self._named:
            if self.session.find(named.topic, named.index) is None:
                asked = self.session.add(named.topic, named.name, named.index)
                asked.update_request(named.offset, named.max_bytes, named.leader_epoch, named.last_fetched_epoch, named.start)

    # -- reading ---------------------------------------------------------------------------------------------------------

    def _begin_reading(self) -> None:
        params = self.params
        # Only followers, and consumers with a rack, need the time.
        now_ms = elapsed_ms(self.services.clock) if params.replica_id >= 0 or params.rack_id is not None else 0
        params.begin(self._max_bytes, now_ms, self.version >= FIRST_WITH_ONE_BATCH)
        params.finds_records = not self._finds_later
        self._entries = self.session.in_order()
        self._unknown = []
        self._at = 0
        self.watched = self.session.size - len(self._entries)
        self._failed = False
        self._is_diverted = False
        self._has_unread = False
        self._reads_old_segment = False
        self._is_judged = False
        self.has_moved = False
        if self._remote is not None:
            self._remote.begin()
        self.stage = READING

    def _read(self, limit: int) -> bool:
        """Read the next partitions; returns whether these were all."""
        entries = self._entries
        end = min(self._at + limit, len(entries))
        self._topic = None  # the look-up of a topic is valid only while no other code runs
        while self._at < end:
            asked = entries[self._at]
            self._current = asked
            self._read_one(asked)
            self._at += 1
        self._current = None
        return end == len(entries)

    def _read_one(self, asked: SessionPartition) -> None:
        """Find the partition, check whether and how far the client may read it, and read it."""
        if asked.topic is not self._topic:
            self._look_up_topic(asked)
        if self._refusal:
            self._refuse(asked, self._refusal)
            return
        index = asked.index
        partition = self._of_topic.get(index) if self._of_topic is not None else None
        if asked.name is None:
            asked.name = self._name_of(asked.topic)  # `_look_up_topic` sets it only for the first partition
        name = asked.name
        assert name is not None  # otherwise it was refused
        if partition is None and self._replicas.cluster.partition(name, index) is None:
            self._refuse(asked, UNKNOWN)
            return
        params = self.params
        asked.is_unknown = False
        try:
            if partition is None:
                partition = self._replicas.partition_or_raise(name, index)
            asked.set_partition(partition)
            if params.is_first_reading or params.replica_id < 0 or not self.is_incremental:
                partition.stats.fetch_requests += 1
            left, size, min_one_batch = params.left, params.size, params.min_one_batch
            read_one(self._replicas, partition, asked, params)
            if asked.region is None and self.version < FIRST_WITH_ONE_BATCH:
                cut_first_batch(partition.log, asked, params)
        except OffsetMovedToTieredStorage as moved:
            assert partition is not None  # its log was read
            refused = self._read_remote(asked, partition, moved)
            if refused:
                self._fail(asked, refused)
                return
        except (StorageError, ReplicationError) as error:
            count_failed_fetch(self._replicas, name, error)
            code: int = partition_error(error, self.services.data)
            if self.version < FIRST_WITH_ZSTD and partition is not None:
                code = self._too_old_for(partition) or code  # as in Apache Kafka, the version comes before every other error
            self._fail(asked, code)
            if code in (UNSUPPORTED_VERSION, UNSUPPORTED_COMPRESSION):
                asked.aborted = ()
            return
        if self.version < FIRST_WITH_ZSTD and (refused := self._too_old_for(partition)):
            params.left, params.size, params.min_one_batch = left, size, min_one_batch
            self._fail(asked, refused)
            asked.aborted = ()
            return
        asked.error_code = NO_ERROR
        if asked.diverging_epoch != NO_EPOCH or asked.preferred_read_replica != NO_PREFERENCE:
            self._is_diverted = True
        if self._finds_later and asked.offset < asked.end_offset:
            self._has_unread = True
            if asked.offset < partition.log.segments.active.base_offset:
                self._reads_old_segment = True
        self.watched += 1
        if self.is_incremental and params.is_first_reading:
            asked.maybe_rest(params)

    def _read_remote(self, asked: SessionPartition, partition: Partition, moved: OffsetMovedToTieredStorage) -> int:
        """Read a partition of a consumer from the remote store, as far as its records are on this broker. Returns an error code."""
        remote = self.services.remote
        if remote is None or self.params.replica_id >= 0:
            note_offsets(partition, asked)
            return partition_error(moved, self.services.data)
        if self._remote is None:
            self._remote = RemoteFetch(remote.reads, self.connection, self._on_remote)
            self.max_wait_ms = self._remote.max_wait_ms
        is_last = self.delayed is not None and self.delayed.completed
        try:
            return self._remote.read(asked, partition, self.params, self.version < FIRST_WITH_ONE_BATCH, is_last)
        except StorageError as error:
            return partition_error(error, self.services.data)

    def _on_remote(self) -> None:
        """Read again: what a remote partition waits for is here."""
        if self.stage == WAITING and self.delayed is not None:
            self.delayed.on_enough()
        else:
            self.has_moved = True

    def _look_up_topic(self, asked: SessionPartition) -> None:
        self._topic = asked.topic
        if asked.name is None:
            asked.name = self._name_of(asked.topic)
        name = asked.name
        self._of_topic = None
        if name is None and (self.params.replica_id < 0 or self._may_follow()):
            self._refusal = UNKNOWN_ID
        elif name is None or not self._may_read(name):
            self._refusal = NOT_AUTHORIZED
        else:
            self._refusal = NO_ERROR
            self._of_topic = self._replicas.partitions.get(name)

    def _may_read(self, name: str) -> bool:
        params = self.params
        if params.replica_id >= 0:
            return self._may_follow()
        # A fetch that waits asks again when it is read again, and a refusal then is no news.
        return self._access.may(READ, TOPIC, name, params.is_first_reading)

    def _may_follow(self) -> bool:
        """Whether the client may be a follower, as it claims. One decision holds for all topics of a reading, as in Apache Kafka."""
        if not self._is_judged:
            self._is_judged = True
            self._is_follower = self._access.may(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, self.params.is_first_reading)
        return self._is_follower

    def _refuse(self, asked: SessionPartition, code: int) -> None:
        """Refuse a partition that the cluster does not know. As in Apache Kafka, this is no reason to answer at once."""
        asked.set_partition(None)
        asked.region = None
        asked.aborted = ()
        asked.is_unknown = True
        asked.error_code = code
        self._unknown.append(asked)

    def _fail(self, asked: SessionPartition, code: int) -> None:
        self._failed = True
        if code == STORAGE_ERROR and self.version < FIRST_THAT_KNOWS_STORAGE_ERRORS:
            code = NOT_LEADER
        asked.region = None
        asked.aborted = None
        asked.error_code = code

    def _too_old_for(self, partition: Partition) -> int:
        """The error code if a reader of this version may not have the records of the log, otherwise NO_ERROR."""
        log = partition.log
        if log.config[COMPRESSION_TYPE] == "zstd":
            return UNSUPPORTED_COMPRESSION
        is_old_consumer = self.version < FIRST_WITHOUT_OLD_FORMATS and self.params.replica_id < 0
        if is_old_consumer and self._is_newer(partition) and not log.config[MESSAGE_DOWNCONVERSION_ENABLE]:
            return UNSUPPORTED_VERSION
        return NO_ERROR

    # -- after a reading ---------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Set the next stage after a reading: answer, gather, wait, or read the records."""
        self._at = 0
        if self._finds_later:
            self._finds_later = False
            if self._has_unread and not self._failed and not self._reads_old_segment:
                self.stage = GATHERING
            elif self._has_unread or self._must_answer():
                self.params.is_first_reading = False
                self._begin_reading()
            else:
                self.stage = WATCHING
        elif self._must_answer():
            if self.version < FIRST_WITHOUT_OLD_FORMATS:
                self._find_unconverted()
            self.stage = CONVERTING if self.unconverted else WRITING
        else:
            self.stage = WATCHING
        if self.stage == WATCHING:
            self._grown = self.params.size

    def _must_answer(self) -> bool:
        """Whether there is enough to answer, or waiting is useless."""
        if self._remote is not None and not self.params.size:  # the limits of the request are for records that are here
            return self._failed or self._is_diverted or self._answers_anyway
        if self._remote is not None and self._remote.has_records:
            return True
        return (
            self.params.size >= self._min_bytes
            or self._failed
            or self._is_diverted
            or self._answers_anyway
            or self.max_wait_ms <= 0
            or not self.watched
        )

    @property
    def purgatory(self) -> Purgatory:
        """Where it waits: fetches that read from the remote store have a purgatory of their own, as in Apache Kafka."""
        data = self.services.data
        return data.fetch_purgatory if self._remote is None else data.remote_fetch_purgatory

    def _watch(self, limit: int) -> bool:
        """Watch the next partitions; returns whether these were all. Changes since their reading are noted in `has_moved`."""
        entries = self._entries
        end = min(self._at + limit, len(entries))
        while self._at < end:
            asked = entries[self._at]
            partition = asked.partition
            if partition is not None:
                waiters = self.params.waiters(partition)
                if asked.waits_in is not waiters:
                    asked.wait_in(waiters)
                    if not self.is_incremental:
                        self.purgatory.will_purge(waiters)
                    if self.params.end_offset(partition) != asked.end_offset or not self._is_served(asked, partition):
                        self.has_moved = True
            self._at += 1
        return end == len(entries)

    def on_moved(self, asked: SessionPartition, partition: Partition) -> None:
        """Handle a change of a partition: read again if there may be enough now."""
        if self.stage != WAITING:
            if asked is not self._current:
                self.has_moved = True
            return
        if not self._is_served(asked, partition):
            self._answers_anyway = True
        else:
            self._grown += self._growth(asked, partition)
            if self._grown < self._min_bytes:
                return
        assert self.delayed is not None  # every waiting fetch has one
        self.delayed.on_enough()

    def _is_served(self, asked: SessionPartition, partition: Partition) -> bool:
        return partition.serves(asked.leader_epoch, self.params.or_follower)

    def _growth(self, asked: SessionPartition, partition: Partition) -> int:
        """Bytes that may be read beyond those of the last check; `_min_bytes` where only a reading can tell."""
        end_offset, segment, size = asked.end_offset, asked.open_segment, asked.open_size
        asked.end_offset = self.params.end_offset(partition)
        note_end(partition.log, asked)
        if asked.end_offset == end_offset:
            return 0
        if segment is None or asked.open_segment is not segment or asked.open_size <= size:
            return self._min_bytes
        return asked.open_size - size

    # -- answering -------------------------------------------------------------------------------------------------------

    def _find_unconverted(self) -> None:
        """Find the partitions whose records must be converted for this old client.

        As in Apache Kafka, the format of the topic decides. So logs that have the format of the client leave like those of other clients.
        """
        self.unconverted = []
        for asked in self._entries:
            partition = asked.partition
            if asked.region is not None and partition is not None and self._is_newer(partition):
                self.unconverted.append(asked)

    def _is_newer(self, partition: Partition) -> bool:
        """Whether the log has a later format than this old client knows."""
        return partition.log.rules.magic > self.old_magic()

    def old_magic(self) -> int:
        """The message format that this old client knows."""
        return 1 if self.version >= FIRST_WITH_TIMESTAMPS else 0

    def on_converted(self, converted: dict[SessionPartition, ConvertedRegion | bytearray], failed: dict[SessionPartition, int]) -> None:
        """Continue with the converted records, and the error codes of those that cannot be converted."""
        self._converted = converted
        for asked, code in failed.items():
            self._fail(asked, code)
            asked.aborted = ()
        self.stage = WRITING

    def _write(self, limit: int) -> bool:
        """Write the next partitions into the answer; returns whether these were all."""
        writer = self._writer
        if writer is None:
            writer = self._begin_answer()
        entries = self._entries
        known = len(entries)
        last = known + len(self._unknown)
        end = min(self._at + limit, last)
        while self._at < end:
            if writer.throttle_time_ms > 0:
                # As in Apache Kafka, the answer contains only the throttle time.
                if self._at < known:
                    entries[self._at].forget_found()
            elif self._at < known:
                asked = entries[self._at]
                if not asked.is_unknown:
                    writer.write_one(asked)
            else:
                writer.write_one(self._unknown[self._at - known])
            self._at += 1
        return end == last

    def _begin_answer(self) -> FetchWriter:
        params = self.params
        services = self.services
        writer = self._writer = FetchWriter(self.version, self._correlation_id, self.session, params, services)
        writer.error_code = self._error_code
        writer.is_incremental = self.is_incremental
        writer.converted = self._converted
        if params.throttled_bytes:
            quota = self._replicas.leader_quota
            assert quota is not None  # only a quota throttles bytes
            params.count(quota)
        # A request of a session may name no topic, and is not judged then.
        is_follower = self._is_follower or (params.replica_id >= 0 and self.session.is_follower)
        if is_follower:
            self.connection.exempt()
        else:
            writer.throttle_time_ms = self.connection.throttle(FETCH, params.size)
            if writer.throttle_time_ms > 0:
                self._creates_session = False
        if self._creates_session:
            self._creates_session = False
            services.data.fetch_sessions.maybe_keep(self.session, is_follower=is_follower, now_ms=elapsed_ms(services.clock))
        return writer

    def _finish(self) -> None:
        writer = self._writer
        assert writer is not None  # at least the beginning was written
        self.parts = writer.finish(self._named)
        if self._is_limited and not writer.throttle_time_ms:
            size = 0
            for part in self.parts:
                size += len(part)
            self.connection.count_more(FETCH, size - self.params.size)  # the bytes beside the records
        self.stage = ANSWERED
        self.abandon()
