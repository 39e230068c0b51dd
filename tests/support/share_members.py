"""Members of share groups that speak the protocol themselves, for tests of single requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.protocol.messages import initialize_share_group_state as initializing
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.uuid import to_text
from tests.support.broker_process import eventually
from tests.support.wire_client import WireClient

Batches = Mapping[int, Sequence[tuple[int, ...]]]
"""By partition: first offset, last offset, and the types of acknowledgement."""

VERSION = 2


def create_topic(client: WireClient, name: str, partitions: int = 1) -> bytes:
    """Create a topic, and return its id when it has leaders."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)

    def has_leaders() -> bool:
        found = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0]
        return len(found.partitions) == partitions and all(each.leader_id >= 0 for each in found.partitions)

    eventually(has_leaders)
    topic_id: bytes = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id
    return topic_id


def initialize(client: WireClient, group: str, topic_id: bytes, index: int = 0, start: int = 0, epoch: int = 0) -> None:
    """Begin the state of a share partition, as the coordinator of its group does."""
    request = initializing.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            initializing.InitializeStateData(
                topic_id=topic_id, partitions=[initializing.PartitionData(partition=index, state_epoch=epoch, start_offset=start)]
            )
        ],
    )
    key = f"{group}:{to_text(topic_id)}:{index}"
    eventually(lambda: not client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6).coordinators[0].error_code)
    eventually(lambda: not client.ask(request, 0).results[0].partitions[0].error_code)


def produce(client: WireClient, topic: str, count: int, index: int = 0, **batch: Any) -> None:
    """Append a batch of records of now: old ones would be deleted by retention, half a minute after the start of the broker."""
    now_ms = time.time_ns() // 1_000_000
    records = build_batch([Record(at, now_ms + at, None, b"value") for at in range(count)], **batch)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


class ShareMember:
    """A member. `epoch` is that of its next request."""

    def __init__(self, client: WireClient, topic_id: bytes, member_id: str = "AAAAAAAAAAAAAAAAAAAAAQ", group: str = "g") -> None:
        self.client = client
        self.topic_id = topic_id
        self.member_id = member_id
        self.group = group
        self.epoch = 0

    def fetch_all(self, *partitions: int, epoch: int | None = None, acknowledged: Batches | None = None, **fields: Any) -> Any:
        """The whole response of a ShareFetch."""
        named = dict.fromkeys(partitions) | dict.fromkeys(acknowledged or ())
        topic = fetching.FetchTopic(
            topic_id=self.topic_id,
            partitions=[
                fetching.FetchPartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                        for first, last, *types in (acknowledged or {}).get(index, ())
                    ],
                )
                for index in named
            ],
        )
        values = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500} | fields
        request = fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[topic] if named else [],
            **values,
        )
        response = self.client.ask(request, VERSION)
        if not response.error_code and epoch is None:
            self.epoch += 1
        return response

    def fetch(self, *partitions: int, **fields: Any) -> dict[int, Any]:
        """The partitions of the response of a ShareFetch that succeeds."""
        response = self.fetch_all(*partitions, **fields)
        assert response.error_code == 0
        return {each.partition_index: each for topic in response.responses for each in topic.partitions}

    def acquire(self, *partitions: int, **fields: Any) -> list[tuple[int, int, int]]:
        """The records of partition 0 that a ShareFetch has acquired."""
        found = self.fetch(*partitions, **fields)
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in found[0].acquired_records] if 0 in found else []

    def acknowledge_all(self, batches: Batches, *, epoch: int | None = None, renews: bool = False) -> Any:
        """The whole response of a ShareAcknowledge."""
        topic = acknowledging.AcknowledgeTopic(
            topic_id=self.topic_id,
            partitions=[
                acknowledging.AcknowledgePartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                        for first, last, *types in of_partition
                    ],
                )
                for index, of_partition in batches.items()
            ],
        )
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[topic],
        )
        response = self.client.ask(request, VERSION)
        if not response.error_code and epoch is None:
            self.epoch += 1
        return response

    def acknowledge(self, *batches: tuple[int, ...], renews: bool = False) -> int:
        """The error code of partition 0."""
        response = self.acknowledge_all({0: batches}, renews=renews)
        assert response.error_code == 0
        code: int = response.responses[0].partitions[0].error_code
        return code
