"""Apache Kafka's own tools move partitions of a cluster of these brokers, give moves up, elect leaders and compare replicas."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.java import start_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_writer, read_all
from tests.support.cluster_links import some_links
from tests.support.history import History

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(900)]  # each JVM takes a minute on a busy machine

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
VERIFY_REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"
SECONDS = 180.0


class Said(NamedTuple):
    """How a tool ended, and what it printed on both streams."""

    status: int
    output: str


def run(tool: str, cluster: Cluster, *arguments: str) -> Said:
    ended = run_tool(tool, "--bootstrap-server", cluster.bootstrap, *arguments, timeout=SECONDS)
    return Said(ended.returncode, ended.stdout + ended.stderr)


def reassign(cluster: Cluster, *arguments: str) -> Said:
    return run(REASSIGN, cluster, *arguments)


def a_plan(path: Path, log_dirs: list[str] | None = None, **replicas: list[int]) -> str:
    """A file for the tool; `t_0=[1, 2]` stands for partition 0 of topic t. `log_dirs` says where each replica is to be."""
    partitions = []
    for name, brokers in replicas.items():
        topic, _, index = name.rpartition("_")
        partitions.append({"topic": topic, "partition": int(index), "replicas": brokers, "log_dirs": log_dirs or ["any"] * len(brokers)})
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def is_known(cluster: Cluster, topic: str, broker_id: int) -> bool:
    """Whether the broker has metadata of the topic."""
    (found,) = cluster.metadata(topic, broker_id=broker_id).topics
    return found.error_code == 0


def replicas_of(cluster: Cluster, topic: str, partition: int) -> list[int]:
    return list(cluster.partition(topic, partition).replica_nodes)


def test_partitions_are_moved_with_everything_in_them(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1], [1, 2]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer:
            writer.go_on_for(200)
            plan = a_plan(tmp_path / "plan.json", t_0=[2, 1], t_1=[0])
            executed = reassign(cluster, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000")
            assert executed.status == 0, executed
            assert "Successfully started partition reassignments for t-0,t-1" in executed.output
            eventually(lambda: (replicas_of(cluster, "t", 0), replicas_of(cluster, "t", 1)) == ([2, 1], [0]), seconds=90)
            writer.go_on_for(200)
            verified = reassign(cluster, "--reassignment-json-file", plan, "--verify")
            assert verified.output.count("is completed.") == 2, verified
            assert "Clearing topic-level throttles on topic t" in verified.output
        assert cluster.leader_of("t", 0) == 2
        assert cluster.isr_of("t", 0) == {1, 2}
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []
        eventually(lambda: set(cluster.log_files("t", 0)) == {1, 2} and set(cluster.log_files("t", 1)) == {0}, seconds=90)


def test_a_move_is_listed_and_given_up_and_the_replicas_are_as_before(tmp_path: Path) -> None:
    with some_links() as links, a_cluster(tmp_path, 3, links=links) as cluster:
        controller = cluster.controller_id()
        leader, new = sorted({0, 1, 2} - {controller})
        cluster.create_topic("t", replicas=[[leader, controller]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("t", b"a record that the new replica does not get")
        assert producer.flush(SECONDS) == 0
        links.hold(leader, new)
        plan = a_plan(tmp_path / "plan.json", t_0=[new, controller])
        assert reassign(cluster, "--reassignment-json-file", plan, "--execute").status == 0
        listed = reassign(cluster, "--list").output
        assert f"t-0: replicas: {new},{controller},{leader}. adding: {new}. removing: {leader}." in listed
        assert "is still in progress." in reassign(cluster, "--reassignment-json-file", plan, "--verify", "--preserve-throttles").output
        again = reassign(cluster, "--reassignment-json-file", plan, "--execute")
        assert "Cannot execute because there is an existing partition assignment." in again.output
        additional = reassign(cluster, "--reassignment-json-file", plan, "--execute", "--additional")
        assert "Successfully started partition reassignment for t-0" in additional.output, additional
        cancelled = reassign(cluster, "--reassignment-json-file", plan, "--cancel")
        assert "Successfully cancelled partition reassignment for: t-0" in cancelled.output, cancelled
        eventually(lambda: replicas_of(cluster, "t", 0) == [leader, controller], seconds=90)
        assert "No partition reassignments found." in reassign(cluster, "--list").output
        links.heal()
        assert cluster.leader_of("t", 0) == leader


def test_a_plan_is_proposed_and_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2) as cluster:
        cluster.create_topic("t", replicas=[[0], [0]])
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        generated = reassign(cluster, "--topics-to-move-json-file", str(topics), "--broker-list", "0,1", "--generate")
        assert generated.status == 0, generated
        current, proposed = (json.loads(line) for line in re.findall(r"^\{.*\}$", generated.output, flags=re.MULTILINE))
        assert [each["replicas"] for each in current["partitions"]] == [[0], [0]]
        assert sorted(each["replicas"] for each in proposed["partitions"]) == [[0], [1]]
        missing = reassign(cluster, "--reassignment-json-file", a_plan(tmp_path / "bad.json", t_0=[7]), "--execute")
        assert missing.status == 1
        assert "Unknown broker id 7" in missing.output


def test_leaders_go_back_to_the_preferred_replicas(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        controller = cluster.controller_id()
        preferred, other = sorted({0, 1, 2} - {controller})
        cluster.create_topic("t", replicas=[[preferred, other, controller]])
        cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        cluster.broker(preferred).restart()
        cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        assert cluster.leader_of("t", 0) == other
        elected = run(ELECT, cluster, "--election-type", "preferred", "--all-topic-partitions")
        assert elected.status == 0, elected
        assert "t-0" in elected.output
        eventually(lambda: cluster.leader_of("t", 0) == preferred, seconds=90)


def test_a_topic_is_placed_by_hand_grows_and_gets_a_leader_that_was_not_in_sync(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        controller = cluster.controller_id()
        first, second = sorted({0, 1, 2} - {controller})
        placed, grown = f"{first}:{second},{second}:{first}", f"{first}:{second},{second}:{first},{controller}:{first}"
        created = run(TOPICS, cluster, "--create", "--topic", "t", "--replica-assignment", placed)
        assert created.status == 0, created
        # The next command asks any broker; the controller tells them of the topic one by one.
        eventually(lambda: all(is_known(cluster, "t", broker_id) for broker_id in range(3)), seconds=90)
        altered = run(TOPICS, cluster, "--alter", "--topic", "t", "--partitions", "3", "--replica-assignment", grown)
        assert altered.status == 0, altered
        expected = [[first, second], [second, first], [controller, first]]
        eventually(lambda: [replicas_of(cluster, "t", index) for index in range(3)] == expected, seconds=90)
        cluster.wait_until_isr_is("t", 0, first, second)
        assert cluster.broker(second).stop() == 0
        cluster.wait_until_isr_is("t", 0, first)
        cluster.broker(first).kill()
        eventually(lambda: cluster.partition("t", 0).leader_id == -1, seconds=90, what="the partition is offline")
        cluster.broker(second).start()
        cluster.wait_until_registered()
        elected = run(ELECT, cluster, "--election-type", "unclean", "--topic", "t", "--partition", "0")
        assert "Successfully completed leader election (UNCLEAN) for partitions t-0" in elected.output, elected
        assert cluster.leader_of("t", 0) == second
        cluster.broker(first).start()
        cluster.wait_until_isr_is("t", 0, first, second)


def directories_of(cluster: Cluster, topic: str) -> dict[int, list[str]]:
    """By broker, where it says that it has the topic's replicas."""
    told = run(LOG_DIRS, cluster, "--describe", "--topic-list", topic)
    assert told.status == 0, told
    (line,) = re.findall(r"^\{.*\}$", told.output, flags=re.MULTILINE)
    return {
        broker["broker"]: [each["logDir"] for each in broker["logDirs"] for _ in each["partitions"]]
        for broker in json.loads(line)["brokers"]
    }


def wait_until_replicas_are_equal(cluster: Cluster, topic: str) -> None:
    """The tool reads all replicas side by side, and compares checksums, until it is told to stop."""
    tool = start_tool(VERIFY_REPLICAS, "--broker-list", cluster.bootstrap, "--topics-include", topic, "--time", "-2")
    try:
        assert tool.stdout is not None
        seen: list[str] = []
        for line in tool.stdout:
            seen.append(line)
            if "max lag is 0 for partition" in line:
                break
        assert seen, "the tool said nothing"
        assert "max lag is 0 for partition" in seen[-1], "".join(seen)
        assert not any("doesn't match" in line for line in seen), "".join(seen)
    finally:
        tool.kill()
        tool.communicate()
        process_guard().release(tool.pid)


@pytest.mark.soak
def test_a_follower_moves_to_another_directory_and_all_replicas_stay_equal(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 3, log_dirs=f"{tmp_path}/a{{id}},{tmp_path}/b{{id}}") as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2]])
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(200)
            (before,) = (path for path in (tmp_path / "a1", tmp_path / "b1") if (path / "t-0").is_dir())
            wanted = tmp_path / ("b1" if before.name == "a1" else "a1")
            plan = a_plan(tmp_path / "plan.json", ["any", str(wanted), "any"], t_0=[0, 1, 2])
            executed = reassign(cluster, "--reassignment-json-file", plan, "--execute")
            assert f"log directory to {wanted} for replica t-0 with broker 1" in executed.output, executed
            eventually(lambda: (wanted / "t-0").is_dir() and not (before / "t-0").exists(), SECONDS, f"the replica is in {wanted}")
            writer.go_on_for(100)
        directories = directories_of(cluster, "t")
        assert directories[1] == [str(wanted)]
        assert sorted(directories) == [0, 1, 2]
        cluster.wait_until_isr_is("t", 0, 0, 1, 2)
        wait_until_replicas_are_equal(cluster, "t")
        read_all(cluster, "t", history)
        assert history.violations() == []
