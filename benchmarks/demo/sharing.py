"""Implements a member of a share group for the demonstration: it acquires records of the leaders, and accepts them with its next request.

After a failure it begins anew where it failed: what it had acquired there is delivered again, to itself or to another member.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client import ClientError, Cluster, TopicPartition
from ottla.client.errors import check
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.protocol.uuid import to_text

_ACCEPT: Final = 1
_LEAVES: Final = -1
_WAIT_MS: Final = 100
_MAX_BYTES: Final = 1 << 20
_MAX_RECORDS: Final = 500
_AGAIN_SECONDS: Final = 0.2


@dataclass(slots=True)
class _Session:
    """A share session with one leader."""

    epoch: int = 0
    """The epoch of the next request."""
    acquired: dict[int, Sequence[AcquiredRecords]] = field(default_factory=dict)
    """The records of each of its partitions that the next request accepts."""


class ShareMember:
    """One member: `poll` often, `leave` at the end."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._topic_id = cluster.topic(topic).topic_id
        self._id = to_text(os.urandom(16))
        self._epoch = 0
        self._next_heartbeat = 0.0
        self._assigned: list[int] = []
        self._sessions: dict[int, _Session] = {}
        """By the id of the leader."""

    def poll(self) -> list[bytes]:
        """The values of records that were acquired just now."""
        try:
            if time.monotonic() >= self._next_heartbeat:
                self._beat()
            led, _ = self._cluster.led(TopicPartition(self._topic, index) for index in self._assigned)
        except ClientError:
            self._begin_anew()
            return []
        found: list[bytes] = []
        for leader, names in led.items():
            try:
                found += self._fetch(leader, [name.partition for name in names])
            except ClientError:
                self._begin_anew_at(leader)
        if not led:
            time.sleep(_AGAIN_SECONDS)
        return found

    def leave(self) -> None:
        """Leave the group, which gives back what was not accepted."""
        self._epoch = _LEAVES
        self._beat()

    def _begin_anew_at(self, leader: int) -> None:
        """Begin another session, also where another broker leads now. The records of other leaders stay acquired: each delivery counts."""
        self._sessions.pop(leader, None)
        self._cluster.forget(self._topic)
        time.sleep(_AGAIN_SECONDS)

    def _begin_anew(self) -> None:
        self._epoch = 0
        self._next_heartbeat = time.monotonic() + _AGAIN_SECONDS
        self._assigned = []
        self._sessions.clear()
        self._cluster.forget(self._topic)
        time.sleep(_AGAIN_SECONDS)

    def _beat(self) -> None:
        topics = [self._topic] if self._epoch == 0 else None
        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=self._epoch, subscribed_topic_names=topics
        )
        coordinator = self._cluster.coordinator(self._group)
        answer = self._cluster.ask(lambda: self._cluster.connection(coordinator), request, ShareGroupHeartbeatResponse)
        check(f"share group {self._group}", answer.error_code)
        self._epoch = answer.member_epoch
        self._next_heartbeat = time.monotonic() + answer.heartbeat_interval_ms / 1000 / 2
        if answer.assignment is not None:
            self._assigned = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]

    def _fetch(self, leader: int, partitions: list[int]) -> list[bytes]:
        """Accept what the session acquired before, and acquire more. A partition that fails has another leader, and disturbs no other."""
        session = self._sessions.setdefault(leader, _Session())
        left = [index for index in session.acquired if index not in partitions]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=session.epoch,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=_MAX_RECORDS,
            batch_size=_MAX_RECORDS,
            topics=[
                FetchTopic(topic_id=self._topic_id, partitions=[_asked(index, session.acquired.get(index, ())) for index in partitions])
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=self._topic_id, partitions=left)] if left else [],
        )
        answer = self._cluster.ask_broker(leader, request, ShareFetchResponse)
        check(f"share group {self._group} at broker {leader}", answer.error_code)
        session.epoch += 1
        session.acquired = dict.fromkeys(partitions, ())
        found: list[bytes] = []
        for topic in answer.responses:
            for each in topic.partitions:
                if each.error_code or each.acknowledge_error_code:
                    self._cluster.forget(self._topic)
                if not each.error_code:
                    session.acquired[each.partition_index] = each.acquired_records
                    found += _values(each)
        return found


def _asked(index: int, accepted: Sequence[AcquiredRecords]) -> FetchPartition:
    """A partition of a request, whose records of the request before are accepted."""
    batches = [
        AcknowledgementBatch(first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[_ACCEPT]) for each in accepted
    ]
    return FetchPartition(partition_index=index, acknowledgement_batches=batches)


def _values(answer: PartitionData) -> Iterator[bytes]:
    """The values of the records that were acquired; the bytes may have others of their batches."""
    ranges = [range(each.first_offset, each.last_offset + 1) for each in answer.acquired_records]
    data = answer.records or b""
    for at, header in iter_batches(data):
        for record in iter_records(data, at, header):
            if record.value is not None and any(record.offset in each for each in ranges):
                yield record.value
