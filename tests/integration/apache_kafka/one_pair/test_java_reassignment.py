"""Apache Kafka's ReassignPartitionsCommand says of one broker of ours what it says of one of Apache Kafka's."""

import json
from pathlib import Path

import pytest

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.java_pair import TOPICS, Pair

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]  # dozens of JVMs, on a busy machine seconds each

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def test_moves_are_planned_begun_verified_listed_and_given_up(pair: Pair, tmp_path: Path) -> None:
    pair.same(TOPICS, "--create", "--topic", "moved", "--partitions", "2")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [0]}]}))
    generated = pair.same(REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "0", "--generate")
    assert "Proposed partition reassignment configuration" in generated.output
    executed = pair.same(REASSIGN, "--reassignment-json-file", str(plan), "--execute", "--throttle", "1000000")
    assert "Successfully started partition reassignment for moved-0" in executed.output
    verified = pair.same(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
    assert "Reassignment of partition moved-0 is completed." in verified.output
    assert "No partition reassignments found." in pair.same(REASSIGN, "--list").output
    pair.same(REASSIGN, "--reassignment-json-file", str(plan), "--cancel")


@pytest.mark.soak
def test_moves_that_cannot_be_are_refused(pair: Pair, tmp_path: Path) -> None:
    pair.same(TOPICS, "--create", "--topic", "stays")
    plan = tmp_path / "plan.json"
    for topic, replicas in (("stays", [7]), ("stays", [0, 0]), ("nope", [0])):
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
        assert pair.same(REASSIGN, "--reassignment-json-file", str(plan), "--execute").status == 1
