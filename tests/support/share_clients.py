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
from tests.support.apache_kafka_4.node import ApacheKafka4
from tests.support.broker_process import BrokerProcess, eventually
from tests.support.share_members import create_topic
from tests.support.wire_client import WireClient

SECONDS = 90
LOCK_HAS_ENDED_SECONDS = 12
"""Longer than the locks of the groups whose members are late."""


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

    def __init__(self, broker: BrokerProcess | ApacheKafka4, group: str, topic: str, mode: str = "implicit") -> None:
        self._consumer = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": mode, "log_level": 0}
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

    def commit(self) -> list[Any]:
        """The errors of the acknowledgements since the last call."""
        return [error for error in self._consumer.commit_sync(SECONDS).values() if error is not None]

    def acknowledge(self, message: Any, kind: Any) -> None:
        self._consumer.acknowledge(message, kind)

    def close(self) -> None:
        self._consumer.commit_sync()
        self.leave()

    def leave(self) -> None:
        """End the member. Records that it has not acknowledged are released."""
        self._consumer.close()


def librdkafka_outcome(broker: BrokerProcess | ApacheKafka4, name: str, mode: str, count: int) -> list[str]:
    """Do with librdkafka as ShareMember.java does in this mode, and return the same lines. Group and topic have the name."""
    member = Librdkafka(broker, name, name, "implicit" if mode == "implicit" else "explicit")
    said: list[str] = []
    done = 0
    end = time.monotonic() + SECONDS
    while done < count and time.monotonic() < end:
        for message in member.poll():
            is_first = message.delivery_count() == 1
            if mode == "late" and is_first:
                time.sleep(LOCK_HAS_ENDED_SECONDS)
            answer = _answer(mode, message.offset(), is_first)
            if mode not in ("implicit", "silent"):
                member.acknowledge(message, confluent_kafka.AcknowledgeType[answer])
            said.append(f"{message.offset()} {message.delivery_count()} {answer}")
            done += (answer != "RELEASE" or mode == "release") and not (mode == "late" and is_first)
        if mode != "silent":
            said += [f"error {error.args[0].name()}" for error in member.commit()]
    member.leave()
    return said


def _answer(mode: str, offset: int, is_first: bool) -> str:
    if mode == "silent":
        return "NONE"
    if mode == "release" or (mode == "explicit" and offset % 3 == 1 and is_first):
        return "RELEASE"
    return "REJECT" if mode == "explicit" and offset % 3 == 2 else "ACCEPT"


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
