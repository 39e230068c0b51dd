"""Java's Admin of Apache Kafka 4.4 hears from Ottla what it hears from Apache Kafka 4.4, except for listed differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.broker_process import a_broker
from tests.support.record_admin import RECORDING, heard

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow, pytest.mark.timeout(600)]

_TEXT = "the text is that of 3.9, whose metadata and controller Ottla has"
_KRAFT = "there is no quorum, nor a broker that is registered with one"
DIFFERENCES = {
    "createTopics, replicas": _TEXT,
    "createPartitions, missing": _TEXT,
    "createPartitions, fewer": _TEXT,
    "incrementalAlterConfigs, low, TOPIC": _TEXT,
    "describeStreamsGroups": "no groups of the Streams protocol",
    "describeFeatures": "the features that Ottla supports",
    "describeMetadataQuorum": _KRAFT,
    "unregisterBroker": _KRAFT,
}
"""Calls with another outcome, and why."""


def test_javas_admin_hears_what_it_hears_from_apache_kafka(tmp_path: Path) -> None:
    partitions = {f"{topic}_num_partitions": 1 for topic in ("offsets_topic", "transaction_state_log", "share_coordinator_state_topic")}
    with a_broker(tmp_path, broker_id=1, group_initial_rebalance_delay_ms=0, **partitions) as broker:
        found = heard(broker.bootstrap)
    recorded = RECORDING.read_text(encoding="utf-8").splitlines()
    assert [_call(line) for line in found] == [_call(line) for line in recorded], "record the calls again"
    others = {_call(line): (line, expected) for line, expected in zip(found, recorded, strict=True) if line != expected}
    assert {call: lines for call, lines in others.items() if call not in DIFFERENCES} == {}
    assert set(DIFFERENCES) == set(others)


def _call(line: str) -> str:
    return line.partition(": ")[0].removeprefix("> ")
