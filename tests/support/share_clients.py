"""Runs share consumers of librdkafka, and begins the groups that they join."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from ottla.client.cluster import Cluster
from ottla.client.group_admin import describe_group
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess, eventually
from tests.support.share_members import create_topic
from tests.support.wire_client import WireClient

SECONDS = 90


def begin_group(client: WireClient, group: str, topic: str) -> None:
    """Create a topic, and a group that begins to read it at its start."""
    create_topic(client, topic)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    eventually(lambda: not client.ask(find, 4).coordinators[0].error_code, 30)
    asked = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
        )
    ]

    def is_begun() -> bool:
        answer = client.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
        return not answer.error_code and not answer.responses[0].partitions[0].error_code

    eventually(is_begun, 30)


class Librdkafka:
    """A share consumer of librdkafka, which accepts what it has polled."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, mode: str = "implicit") -> None:
        self._consumer = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
        )
        self._consumer.subscribe([topic])

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < end:
            found.extend(self.poll())
        return found

    def poll(self) -> list[Any]:
        """The records of half a second. In implicit mode the records of the last call are accepted."""
        return list(self._consumer.poll(0.5))

    def commit(self) -> None:
        self._consumer.commit_sync()

    def acknowledge(self, message: Any, kind: Any) -> None:
        self._consumer.acknowledge(message, kind)

    def close(self) -> None:
        self._consumer.commit_sync()
        self._consumer.close()


def work_on_nine(broker: BrokerProcess, group: str, topic: str) -> None:
    """Take nine records, accept the second to the fourth, and leave the group, which releases the others. Returns when it is empty."""
    member = Librdkafka(broker, group, topic, "explicit")
    taken = member.take(9)
    for message in taken[1:4]:
        member.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
    for message in (taken[0], *taken[4:]):
        member.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
    member.close()
    with Cluster(broker.bootstrap) as cluster:
        eventually(lambda: describe_group(cluster, group).state == "Empty", 60)
