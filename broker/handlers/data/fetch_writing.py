"""Writes the results of a Fetch's reading into the answer, and counts records and errors in it.

`Fetch` makes the writer when there is enough to answer. An incremental answer contains only partitions with news.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ottla.broker.fetching.fetch_session import FetchSession, SessionPartition
from ottla.broker.handlers.data.fetch_stages import (
    FENCED,
    FETCH_ERRORS,
    FIRST_WITH_DIVERGING_EPOCHS,
    FIRST_WITH_LEADER_HINTS,
    MOVED,
    NO_ERROR,
    NOT_LEADER,
    UNSUPPORTED_VERSION,
)
from ottla.broker.handlers.data.leader_hints import current_leader, leader_nodes
from ottla.broker.request.services import Services
from ottla.protocol.cursors.fetch import FetchAnswer
from ottla.protocol.cursors.response_writer import NodeEndpoints, Sized
from ottla.replication.ports.replica_selector import NO_PREFERENCE
from ottla.replication.reading.asked_partition import NO_EPOCH
from ottla.replication.reading.fetch_read import FetchParams

NO_OFFSET: Final = -1

if TYPE_CHECKING:
    from ottla.broker.network.request_channel import Parts
    from ottla.storage.segment.converted_region import ConvertedRegion


@final
class FetchWriter:
    """Writes the answer to one Fetch. `error_code` is the error of the whole request."""

    __slots__ = (
        "_answer",
        "_correlation_id",
        "_error_counts",
        "_is_untellable",
        "_leader_ids",
        "_params",
        "_services",
        "_session",
        "_sound",
        "_version",
        "converted",
        "error_code",
        "is_incremental",
        "throttle_time_ms",
    )

    def __init__(self, version: int, correlation_id: int, session: FetchSession, params: FetchParams, services: Services) -> None:
        self.error_code = NO_ERROR
        self.throttle_time_ms = 0
        self.is_incremental = False
        self.converted: dict[SessionPartition, ConvertedRegion | bytearray] | None = None
        """Records that replace those of the partitions, for a client that knows older formats only."""
        self._version = version
        self._correlation_id = correlation_id
        self._session = session
        self._params = params
        self._services = services
        self._answer = FetchAnswer(version, correlation_id)
        self._error_counts: dict[int, int] = services.error_counts
        self._sound = 0  # partitions without an error
        self._leader_ids: set[int] | None = None
        self._is_untellable = False

    def write_one(self, asked: SessionPartition) -> None:
        """Write one partition, if it has news for the client."""
        region = asked.region
        # Records that are already in memory go into the answer directly.
        records: Sized | None = region.begun if region is not None and region.holds_all() else region
        if self.converted is not None:
            records = self.converted.get(asked, records)
        if asked.has_news() or not self.is_incremental:
            answer = self._answer
            answer.begin_topic(asked.topic)
            if asked.error_code:
                self._write_failure(asked)
            elif asked.diverging_epoch == NO_EPOCH:
                if records is not None:
                    self._count(asked, len(records))
                self._sound += 1
                answer.put(
                    asked.index,
                    NO_ERROR,
                    asked.high_watermark,
                    asked.last_stable_offset,
                    asked.log_start_offset,
                    asked.aborted,
                    asked.preferred_read_replica,
                    records,
                )
            elif self._version >= FIRST_WITH_DIVERGING_EPOCHS:
                self._sound += 1
                answer.put_diverging(
                    asked.index,
                    asked.high_watermark,
                    asked.last_stable_offset,
                    asked.log_start_offset,
                    asked.aborted,
                    asked.diverging_epoch,
                    asked.diverging_end_offset,
                )
            else:
                self._is_untellable = True
        asked.forget_found()

    def _count(self, asked: SessionPartition, size: int) -> None:
        if self.is_incremental:
            self._session.serve_last(asked)
        partition = asked.partition
        if partition is None:
            return  # it was removed since it was read
        stats = partition.stats
        replica_id = self._params.replica_id
        if replica_id >= 0:
            stats.replication_bytes_out += size
            if replica_id in partition.adding_replicas:
                stats.reassignment_bytes_out += size
        else:
            stats.bytes_out += size

    def _write_failure(self, asked: SessionPartition) -> None:
        code = asked.error_code
        leader_id = leader_epoch = -1
        if self._version >= FIRST_WITH_LEADER_HINTS and code in (NOT_LEADER, FENCED):
            leader_id, leader_epoch = current_leader(self._services.data.replica_manager, asked.name or "", asked.index)
            if self._leader_ids is None:
                self._leader_ids = set()
            self._leader_ids.add(leader_id)
        self._count_error(code, 1)
        if code == MOVED:  # the follower goes on from this log start offset
            self._answer.put(asked.index, code, asked.high_watermark, NO_OFFSET, asked.log_start_offset, asked.aborted, NO_PREFERENCE, b"")
            return
        self._answer.put_failed(asked.index, code, asked.aborted, b"", leader_id, leader_epoch)

    def _count_error(self, code: int, times: int) -> None:
        counts = self._error_counts
        key = FETCH_ERRORS | code & 0xFFFF
        counts[key] = counts.get(key, 0) + times

    def finish(self, named: list[SessionPartition]) -> Parts:
        """The answer. `named` are the partitions of a session that the request itself names."""
        answer = self._answer
        code = self.error_code
        if self._is_untellable:
            # An earlier request, of a later version, gave the session a last fetched epoch. Answers in this version have no field for the
            # diverging epoch.
            code = UNSUPPORTED_VERSION
            answer = FetchAnswer(self._version, self._correlation_id)
            for asked in named:
                answer.begin_topic(asked.topic)
                answer.put_failed(asked.index, code, (), None, -1, -1)
                self._count_error(code, 1)
        # Apache Kafka counts the code of each partition, and that of the request.
        if code == NO_ERROR:
            self._count_error(NO_ERROR, self._sound + 1)
        else:
            if self._sound:
                self._count_error(NO_ERROR, self._sound)
            self._count_error(code, 1)
        nodes: NodeEndpoints = ()
        if self._leader_ids is not None:
            nodes = leader_nodes(self._services.data.replica_manager, self._leader_ids, self._params.listener)
        return answer.finish(self.throttle_time_ms, code, self._session.session_id, nodes)  # type: ignore[return-value]  # pieces are parts
