"""Every tool of Apache Kafka 4.4 says of Ottla what it says of Apache Kafka 4.4, except for listed differences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.record_tools import RECORDING
from tests.support.tool_scenes import STEPS, play

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow, pytest.mark.timeout(600)]

_TEXT = "the text is that of 3.9, whose metadata and controller Ottla has"
_ELR = "eligible.leader.replicas.version is not supported, so min.insync.replicas is no configuration of the whole cluster"
_KRAFT = "there is no quorum, nor a broker that is registered with one"
DIFFERENCES: dict[str, str] = {
    "TopicCommand --create --topic factor --replication-factor 9": _TEXT,
    "TopicCommand --alter --topic three --partitions 2": _TEXT,
    "TopicCommand --describe --topic one": _ELR,
    "TopicCommand --describe --topic three": _ELR,
    "ConfigCommand --alter --topic one --add-config max.message.bytes=many": _TEXT,
    "ConfigCommand --describe --entity-type brokers --entity-default": _ELR,
    "ConfigCommand --alter --entity-type brokers --entity-name 1 --add-config broker.id=2": _TEXT,
    "ConsumerGroupCommand --delete-offsets --group new --topic none": "a group without members and offsets is forgotten at once, as in 3.9",
    "AclCommand --add --allow-principal User:bob --operation TwoPhaseCommit --transactional-id tx": "no two-phase commit (KIP-939)",
    "AclCommand --list": "no ACL for two-phase commits",
    "LeaderElectionCommand --election-type preferred --topic none --partition 0": _TEXT,
    "FeatureCommand describe": "the features that Ottla supports; level 0 is the absence of a feature",
    "ClusterTool unregister --id 9": _KRAFT,
    "MetadataQuorumCommand describe --status": _KRAFT,
    "BrokerApiVersionsCommand ": "docs/protocol-support.md lists the versions; clients of 3.9 keep theirs",
}
"""Steps with another output, and why."""
CONFIG: dict[str, Any] = {
    "broker_id": 1,
    "offsets_topic_num_partitions": 1,
    "share_coordinator_state_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_share_min_heartbeat_interval_ms": 500,
    "group_share_heartbeat_interval_ms": 500,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


def test_the_tools_say_what_they_say_of_apache_kafka(broker: BrokerProcess, tmp_path: Path) -> None:
    recorded = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
    assert [each["step"] for each in recorded] == [step.name for step in STEPS], "record the steps again"
    wrong = {}
    for step, expected in zip(STEPS, recorded, strict=True):
        found = play(step, broker.bootstrap, tmp_path)
        if (comparable(found) != comparable(expected)) != (step.name in DIFFERENCES):
            wrong[step.name] = found, expected
    assert wrong == {}


def comparable(said: dict[str, Any]) -> tuple[Any, ...]:
    """The status and the lines of both streams. Tools print sets in no order."""
    return said["status"], sorted(said["output"]), sorted(said["errors"])
