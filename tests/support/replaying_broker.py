"""Sets up a broker like that of the recording when bad-input.jsonl was recorded, and repeats its later changes.

Broker 0 leads all partitions, and is the controller. `depose` then makes broker 1 leader, coordinator and controller, so that broker 0
answers like the wrong broker of the recording.
"""

import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ottla.broker.handlers.table import SERVED
from ottla.broker.request.listed_apis import ListedApis
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.metadata_store import Create, Delete
from ottla.controller.znodes.layout import CONTROLLER, ControllerNode, encode_controller
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.records.batch import LOG_OVERHEAD
from tests.support.broker_process import eventually
from tests.support.golden_logs import golden_batches
from tests.support.golden_replay import exchange
from tests.support.in_process_broker import InProcessBroker

GROUP, TRANSACTION = 0, 1
OTHER_BROKER = 1
OTHER_EPOCH = 1
"""The leader epoch in which the other broker leads."""


class ReplayingBroker(InProcessBroker):
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.leads = True
        self._without_features = patch.dict(features.IMPLEMENTED, clear=True)  # as a cluster on ZooKeeper, which has finalized none
        self._without_features.start()
        super().__init__(
            directory,
            broker_id=0,
            broker_rack="r0",
            offsets_topic_num_partitions=4,
            offsets_topic_replication_factor=1,
            transaction_state_log_num_partitions=4,
            transaction_state_log_replication_factor=1,
            transaction_state_log_min_isr=1,
        )
        self.services.listed = ListedApis(SERVED)  # those of a cluster on ZooKeeper
        self._create("bad")
        self._create("bad-compact", {"cleanup.policy": "compact"})
        self._create("log-zstd")
        for batch in batches_of("clean/log-zstd-0/"):
            self.produce("log-zstd", batch)
        self._find_coordinator("g-bad", GROUP)
        self._find_coordinator("t-bad", TRANSACTION)
        self.topic_id: bytes = self.run(lambda: self.services.metadata.topic_id("bad"))

    def _create(self, topic: str, configs: dict[str, str] | None = None) -> None:
        entries = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=entries)
        answer = exchange(self.port, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), ApiKey.CREATE_TOPICS, 7)
        assert answer.topics[0].error_code == 0, answer

    def _find_coordinator(self, key: str, kind: int) -> None:
        """Makes the internal topic, and waits until its partition is loaded here."""
        deadline = time.monotonic() + 10
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        while exchange(self.port, request, ApiKey.FIND_COORDINATOR, 4).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def produce(self, topic: str, batch: bytes) -> None:
        """Appends a batch as a producer would have sent it."""
        records = bytearray(batch)
        records[:LOG_OVERHEAD] = bytes(8) + len(batch[LOG_OVERHEAD:]).to_bytes(4, "big")
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(records))])
        answer = exchange(self.port, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), ApiKey.PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def depose(self) -> None:
        """Broker 1 becomes controller and leads all partitions from now on; of `bad`, broker 0 is not even a replica."""
        self.leads = False
        self.log_of_bad = (
            Path(self.run(lambda: self.services.data.replica_manager.partitions["bad"][0].log.directory)) / f"{0:020d}.log"
        ).read_bytes()
        self.run(self._lose_controller)
        eventually(lambda: not self.run(lambda: self.services.cluster.controller.is_active), what="the loss of the controller")
        images: dict[str, Any] = self.run(lambda: dict(self.services.metadata.topics))
        addresses = [
            UpdateMetadataBroker(
                id=broker, rack=f"r{broker}", endpoints=[UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener="PLAINTEXT")]
            )
            for broker, port in ((0, self.port), (OTHER_BROKER, 1))
        ]
        states = {
            "leader": OTHER_BROKER,
            "leader_epoch": OTHER_EPOCH,
            "controller_epoch": 2,
            "replicas": (0, OTHER_BROKER),
            "isr": (OTHER_BROKER,),
        }
        metadata = [
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=image.topic_id,
                partition_states=[
                    UpdateMetadataPartitionState(partition_index=index, zk_version=1, **states) for index in image.partitions
                ],
            )
            for name, image in images.items()
        ]
        update = UpdateMetadataRequest(controller_id=OTHER_BROKER, controller_epoch=2, live_brokers=addresses, topic_states=metadata)
        assert exchange(self.port, update, ApiKey.UPDATE_METADATA, 8).error_code == 0
        led = [
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=image.topic_id,
                partition_states=[
                    LeaderAndIsrPartitionState(partition_index=index, partition_epoch=1, **states) for index in image.partitions
                ],
            )
            for name, image in images.items()
        ]
        request = LeaderAndIsrRequest(controller_id=OTHER_BROKER, controller_epoch=2, topic_states=led)
        answer = exchange(self.port, request, ApiKey.LEADER_AND_ISR, 7)
        assert answer.error_code == 0
        assert {error.error_code for topic in answer.topics for error in topic.partition_errors} == {0}
        stopped = StopReplicaPartitionState(partition_index=0, leader_epoch=OTHER_EPOCH, delete_partition=True)
        stop = StopReplicaRequest(
            controller_id=OTHER_BROKER,
            controller_epoch=2,
            broker_epoch=-1,
            topic_states=[StopReplicaTopicState(topic_name="bad", partition_states=[stopped])],
        )
        answer = exchange(self.port, stop, ApiKey.STOP_REPLICA, 4)
        assert [each.error_code for each in answer.partition_errors] == [0]

    async def _lose_controller(self) -> None:
        other = EmbeddedStore(self.broker.store.path, self.broker.services.clock)
        self.other_store = other
        await other.open_session()
        node = encode_controller(ControllerNode(OTHER_BROKER, 0))
        await other.multi([Delete(CONTROLLER), Create(CONTROLLER, node, ephemeral=True)])

    def stop(self) -> None:
        if hasattr(self, "other_store"):
            self.run(self.other_store.close)
        super().stop()
        self._without_features.stop()


def batches_of(place: str) -> list[bytes]:
    """The batches of a recorded log, whose place begins so."""
    return [
        batch.log[batch.position : batch.position + batch.manifest["size"]] for batch in golden_batches() if batch.place.startswith(place)
    ]
