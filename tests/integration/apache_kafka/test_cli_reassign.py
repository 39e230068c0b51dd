"""`ottla topics reassign` and `elect` on two brokers of Apache Kafka."""

import json
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.command_line import CommandLine

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.soak]


def test_partitions_move_between_brokers_of_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, 2, {"auto.leader.rebalance.enable": "false"}, heap="256m") as kafka:
        ottla = CommandLine(kafka.bootstrap)
        ottla("topics", "create", "t", "--replica-assignment", "0,0")
        ottla("produce", "t", input="a\nb\nc\n")
        plan = tmp_path / "plan.json"
        ottla("topics", "reassign", "generate", "t", "-r", "2", "-o", str(plan))
        planned = {entry["partition"]: entry["replicas"] for entry in json.loads(plan.read_text())["partitions"]}
        assert sorted(replicas[0] for replicas in planned.values()) == [0, 1]
        executed = ottla("topics", "reassign", "execute", str(plan), "--throttle", "10000000", "--wait")
        assert executed.lines == ["t-0: moved", "t-1: moved"]
        assert ottla("configs", "describe", "topic", "t").rows == []
        assert ottla("configs", "describe", "broker", "1").rows == []
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        verified = run_tool(tool, "--bootstrap-server", kafka.bootstrap, "--reassignment-json-file", str(plan), "--verify").stdout
        assert verified.count("is completed") == 2
        results = {row[1]: row[2:] for row in ottla("topics", "elect", "t").rows}
        (described,) = ottla("topics", "describe", "t", "--json").json
        for part in described["partitions"]:
            assert part["replicas"] == planned[part["partition"]]
            assert part["leader"] == part["replicas"][0], results
        assert {tuple(found) for found in results.values()} <= {("elected",), ("not", "needed")}
        assert ottla("topics", "reassign", "list", "--json").json == []
