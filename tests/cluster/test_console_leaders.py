"""The console beside a cluster with a broker that is dead or stands still: what it shows, what is missing, and what it cancels."""

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
        overview = console.get("overview")
        assert (overview["offline"], overview["controller"], [each["id"] for each in overview["brokers"]]) == (1, 0, [0])
        assert overview["missing"] == [1]
        assert [each["offline"] for each in console.get("topics")["topics"]] == [1]
        (sizes,) = console.get("topic-sizes")["topics"]
        assert (sizes["name"], sizes["bytes"], sizes["replica_bytes"]) == ("t", None, None)  # one partition of two is unknown
        assert console.get("topic-sizes")["errors"] == [{"broker": 1, "error": "the broker is not alive"}]
        assert [each["error"] for each in console.get("brokers")["brokers"]] == [None]
        assert "LEADER_NOT_AVAILABLE" in console.get("topics/t/records")["missing"][0]["error"]
        assert "LEADER_NOT_AVAILABLE" in console.get("topics/t/records?partition=1", 502)["error"]
        assert [each["end"] for each in console.get("topics/t")["partitions"]] == [1, None]
        with console.open("GET", "topics/t/export") as answer:
            value, last = answer.read().splitlines()
        assert json.loads(value)["value"] == "of partition 0"
        assert json.loads(last)["error"].startswith("the records of partition 1 of t are missing: t-1: ")


def test_a_move_that_does_not_end_is_shown_and_cancelled(tmp_path: Path) -> None:
    # A move to a broker is refused once it is missed.
    with a_cluster(tmp_path, 2, zookeeper_session_timeout_ms=8000) as cluster:
        controller = cluster.controller_id()
        other = 1 - controller
        with a_console(cluster.broker(controller).bootstrap) as console:
            cluster.create_topic("t", replicas=[[controller]])
            cluster.broker(other).pause()
            plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [controller, other]}]}
            started = console.change("POST", "reassignments", {"plan": plan})
            assert [each["replicas"] for each in started["plan_back"]["partitions"]] == [[controller]]
            (move,) = console.get("reassignments")["reassignments"]
            assert (move["topic"], move["partition"], move["adding"], move["removing"]) == ("t", 0, [other], [])
            cluster.wait_until_registered(controller)  # the other one is missed
            where = {"topic": "t", "partition": 0}
            assert console.change("DELETE", "reassignments", {"partitions": [where]}) == {"cancelled": [where]}
            assert console.get("reassignments")["reassignments"] == []
            (partition,) = console.get("topics/t")["partitions"]
            assert partition["replicas"] == [controller]
        cluster.broker(other).resume()
        cluster.wait_until_registered(0, 1)


def test_pages_leave_out_a_broker_that_hangs_and_do_not_wait_for_it(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, zookeeper_session_timeout_ms=300_000) as cluster:  # it stays in the metadata
        controller = cluster.controller_id()
        other = 1 - controller
        cluster.create_topic("t", replicas=[[controller], [other]])
        CommandLine(cluster.broker(controller).bootstrap)("produce", "-p", "0", "t", input="one\n")
        cluster.broker(other).pause()
        # An answer that waits for the broker comes after the client of the test has left.
        with a_console(cluster.broker(controller).bootstrap, "--timeout", "600") as console:
            assert {each["id"]: each["error"] is None for each in console.get("brokers")["brokers"]} == {controller: True, other: False}
            assert [each["broker"] for each in console.get("topic-sizes")["errors"]] == [other]
            assert len(console.get("groups")["not_examined"]) == 1
            assert [each["end"] for each in console.get("topics/t")["partitions"]] == [1, None]
            found = console.get("topics/t/records")
            assert ([each["value"]["text"] for each in found["records"]], [each["partition"] for each in found["missing"]]) == (
                ["one"],
                [1],
            )
            assert any(str(other) in each["what"] for each in console.get("findings")["findings"])
        cluster.broker(other).resume()
