"""The console beside a cluster that has lost a broker: it shows the partitions that have a leader, and says which ones are missing."""

import json
import time
from pathlib import Path

from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.command_line import CommandLine
from tests.support.running_console import a_console


def test_a_search_shows_what_has_a_leader_and_names_the_other_partitions(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2) as cluster, a_console(cluster.broker(0).bootstrap) as console:
        cluster.create_topic("t", replicas=[[0], [1]])
        line = CommandLine(cluster.broker(0).bootstrap)
        for partition in ("0", "1"):
            line("produce", "-p", partition, "t", input=f"of partition {partition}\n")
        found = console.get("topics/t/records")
        assert (len(found["records"]), found["missing"]) == (2, [])
        cluster.broker(1).kill()
        began = time.monotonic()
        found = console.get("topics/t/records")  # the cluster may not have missed it yet
        assert time.monotonic() - began < 20
        assert [each["value"]["text"] for each in found["records"]] == ["of partition 0"]
        assert [each["partition"] for each in found["missing"]] == [1]
        eventually(lambda: cluster.partition("t", 1, broker_id=0).leader_id == -1, what="the loss of the leader")
        assert "LEADER_NOT_AVAILABLE" in console.get("topics/t/records")["missing"][0]["error"]
        assert "LEADER_NOT_AVAILABLE" in console.get("topics/t/records?partition=1", 502)["error"]
        assert [each["end"] for each in console.get("topics/t")["partitions"]] == [1, None]
        with console.open("GET", "topics/t/export") as answer:
            value, last = answer.read().splitlines()
        assert json.loads(value)["value"] == "of partition 0"
        assert json.loads(last)["error"].startswith("the records of partition 1 of t are missing: t-1: ")
