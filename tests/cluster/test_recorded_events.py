"""What happened to the recorded cluster of Apache Kafka happens to three brokers on a real ZooKeeper: the trees are the recorded ones."""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.config_admin import Change, ConfigOperation, ConfigResourceType, alter_configs
from ottla.client.topic_admin import delete_topics
from tests.support.broker_process import eventually
from tests.support.cluster import ClusterBroker
from tests.support.cluster_links import ZOOKEEPER
from tests.support.cluster_stores import needs_zookeeper_store
from tests.support.reassignments import move
from tests.support.recorded_events import SECONDS, Replay, Write, a_replay, recorded_trees, recorded_writes

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_zookeeper_store, pytest.mark.timeout(900)]  # some 20 waits

IN_SECOND_DIRECTORY = ("auto-2", "auto-3", "auto-4", "auto1-0", "manual-1", "move2-0")
THREE = [[2, 0, 1], [0, 1, 2], [1, 2, 0], [2, 1, 0], [0, 2, 1], [1, 0, 2]]


def begin(replay: Replay) -> None:
    """Up to three brokers with four topics."""
    replay.broker(0).start()
    replay.wait_for("fresh-one-broker")
    first = list(recorded_trees()["fresh-one-broker"])
    assert [path for path in replay.created() if path in first] == first
    replay.cluster.create_topic("cfg-topic", replicas=[[0]])
    replay.wait_for("one-broker-one-topic")
    for broker_id in (1, 2):
        replay.broker(broker_id).start()
    replay.cluster.wait_until_registered()
    replay.wait_for("three-brokers")
    replay.cluster.create_topic("auto", replicas=THREE)
    replay.cluster.create_topic("auto1", replicas=[[1, 2], [2, 0], [0, 1]])
    replay.cluster.create_topic("manual", replicas=[[0, 1], [1, 2], [2, 0]])
    replay.wait_for("topics-created")
    order = replay.created()
    for topic in ("auto", "auto1", "manual"):
        nodes = [f"/config/topics/{topic}", f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions"]
        assert [path for path in order if path in nodes] == nodes
        for path in order:
            if path.endswith("/state"):
                assert order.index(path.removesuffix("/state")) < order.index(path)


def hold_back(replay: Replay) -> None:
    """What broker 2 fetches and is told."""
    replay.links.isolate(2, 0, 1)


def shrink_and_expand(replay: Replay) -> None:
    producer = Producer({"bootstrap.servers": replay.cluster.bootstrap, "acks": "all", "log_level": 0})
    for topic, partitions in (("auto", 6), ("auto1", 3), ("manual", 3)):
        for partition in range(partitions):
            producer.produce(topic, b"that every follower fetches: one that never did leaves the ISR, too", partition=partition)
    assert producer.flush(SECONDS) == 0
    hold_back(replay)
    producer = Producer({"bootstrap.servers": replay.cluster.bootstrap, "acks": 1, "log_level": 0})
    for partition in (1, 2, 4, 5):
        producer.produce("auto", b"that broker 2 lacks", partition=partition)
    assert producer.flush(SECONDS) == 0
    replay.wait_for("isr-shrunk")
    replay.links.heal()
    replay.wait_for("isr-expanded")
    replay.let_nobody_lag()


def reassign(replay: Replay) -> None:
    replay.cluster.create_topic("move", replicas=[[0, 1], [1, 0]])
    replay.cluster.create_topic("move2", replicas=[[0, 1]])
    replay.wait_for("reassign-start")
    hold_back(replay)
    move(replay.cluster, "move", {0: [2, 1]})
    move(replay.cluster, "move", {1: [2, 0]})
    move(replay.cluster, "move2", {0: [0, 1, 2]})
    replay.wait_for("reassign-during")
    move(replay.cluster, "move", {1: [0, 1]})  # not given up: that restores the order of the replicas, which Apache Kafka lost
    replay.wait_for("reassign-cancelled")
    replay.links.heal()
    replay.wait_for("reassign-after")
    body = {"version": 1, "partitions": [{"topic": "move", "partition": 0, "replicas": [1, 0]}]}
    replay.create("/admin/reassign_partitions", body)
    replay.wait_for("legacy-reassign-after")
    both = [{"topic": "auto", "partition": 0}, {"topic": "move", "partition": 0}]
    replay.create("/admin/preferred_replica_election", {"version": 1, "partitions": both})


def kill_and_delete(replay: Replay) -> None:
    replay.cluster.create_topic("deldown", replicas=[[0, 1, 2], [2, 0, 1]])
    replay.wait_for("kill-broker-2")
    replay.kill(2)
    replay.wait_for("broker-2-killed")
    outcome = replay.cluster.ask(lambda client: delete_topics(client, ["deldown"]), seconds=SECONDS)
    assert outcome == {"deldown": None}
    replay.wait_for("delete-topic-broker-down")
    replay.broker(2).start()
    replay.wait_for("broker-2-back-delete-finished")
    replay.elect_until("preferred-election")


def shut_down(replay: Replay) -> None:
    assert replay.broker(1).stop() == 0
    replay.wait_for("controlled-shutdown")
    replay.broker(1).start()
    replay.elect_until("stop-controller")


def fail_over(replay: Replay) -> None:
    """The controller is shut down; broker 1 follows, as in the recording, since broker 2 hears of it later."""
    leaving = replay.broker(0)
    replay.links.hold(2, ZOOKEEPER)
    assert leaving.stop() == 0
    eventually(lambda: (replay.data("/controller") or {}).get("brokerid") == 1, SECONDS, "broker 1 is controller")
    replay.links.heal()
    replay.wait_for("controller-failover")
    leaving.start()
    replay.wait_for("controller-failover-back")


def elect_unclean(replay: Replay) -> None:
    replay.kill(0)
    replay.wait_for("start-broker-0-after-kill")
    replay.broker(0).start()
    replay.cluster.create_topic("unclean", replicas=[[1, 2]])
    replay.wait_for("unclean-prepare")
    assert replay.broker(2).stop() == 0
    replay.is_behind = True
    replay.kill(1)
    replay.wait_for("offline-partition")
    give_second_directory(replay.broker(2))
    replay.broker(2).start()
    replay.wait_for("unclean-elect")
    change = Change("unclean.leader.election.enable", ConfigOperation.SET, "true")
    replay.cluster.ask(lambda client: alter_configs(client, ConfigResourceType.TOPIC, "unclean", [change]), seconds=SECONDS)
    replay.wait_for("unclean-elected")
    replay.broker(1).start()
    replay.wait_for("unclean-old-leader-back")


def second_directory(broker: ClusterBroker) -> Path:
    return broker.data.with_name("second")


def give_second_directory(broker: ClusterBroker) -> None:
    """With the replicas in it that failed in the recording; small segments, so that one is to be made soon."""
    second_directory(broker).mkdir()
    shutil.copy(broker.data / "meta.properties", second_directory(broker))
    for name in IN_SECOND_DIRECTORY:
        (broker.data / name).rename(second_directory(broker) / name)
    broker.properties["log.dirs"] = f"{broker.data},{second_directory(broker)}"
    broker.properties |= {"log.segment.bytes": "50000", "replica.fetch.max.bytes": "20000"}


def fail_directory(replay: Replay) -> None:
    shutil.rmtree(second_directory(replay.broker(2)) / "auto-2")
    producer = Producer({"bootstrap.servers": replay.cluster.bootstrap, "acks": 1, "log_level": 0, "batch.size": 4_000})
    for _ in range(100):
        producer.produce("auto", bytes(1_000), partition=2)
    assert producer.flush(SECONDS) == 0
    replay.wait_for("log-dir-failed")
    assert replay.broker(2).stop() == 0
    replay.wait_for("start-broker-2-log-dir-back")
    replay.broker(2).start()
    replay.wait_for("delete-controller-znode")


def delete_controller(replay: Replay) -> None:
    """Broker 0 wins again, as in the recording: the others stand still."""
    for broker_id in (1, 2):
        replay.broker(broker_id).pause()
    replay.delete("/controller")
    eventually(lambda: replay.data("/controller"), SECONDS, "there is a controller")
    for broker_id in (1, 2):
        replay.broker(broker_id).resume()
    replay.wait_for("controller-znode-deleted")


def expire_session(replay: Replay) -> None:
    replay.broker(1).pause()
    replay.expire(1)
    replay.wait_for("session-expired")
    replay.broker(1).resume()
    replay.wait_for("session-reestablished")


def of_topic(writes: list[Write], topic: str) -> list[Write]:
    return [write for write in writes if topic in write[1].split("/")]


def of_partition(writes: list[Write], topic: str, partition: int) -> list[Write]:
    start = f"/brokers/topics/{topic}/partitions/{partition}"
    return [write for write in writes if write[1] == start or write[1].startswith(f"{start}/")]


def check_order(replay: Replay) -> None:
    """What follows from one another was written in the recorded order; different partitions may go before each other."""
    ours, theirs = replay.written(), recorded_writes("controller-failover-back")
    for topic in ("cfg-topic", "move2"):
        assert of_topic(ours, topic) == of_topic(theirs, topic)
    for topic, count in {"auto": 6, "auto1": 3, "manual": 3, "move": 2, "deldown": 2}.items():
        for partition in range(count):
            assert of_partition(ours, topic, partition) == of_partition(theirs, topic, partition)
        nodes = {
            f"/config/topics/{topic}",
            f"/brokers/topics/{topic}",
            f"/brokers/topics/{topic}/partitions",
            f"/admin/delete_topics/{topic}",
        }
        assert [write for write in ours if write[1] in nodes] == [write for write in theirs if write[1] in nodes]
    deleted = [path for operation, path, _ in of_topic(ours, "deldown") if operation == "delete"]
    assert deleted.index("/brokers/topics/deldown/partitions") > max(deleted.index(path) for path in deleted if "partitions/" in path)
    for change in ("/controller", "/controller_epoch"):
        assert [write for write in ours if write[1] == change] == [write for write in theirs if write[1] == change]


def test_a_cluster_lives_the_life_of_the_recorded_one(tmp_path: Path) -> None:
    with a_replay(tmp_path) as replay:
        begin(replay)
        shrink_and_expand(replay)
        reassign(replay)
        kill_and_delete(replay)
        shut_down(replay)
        fail_over(replay)
        check_order(replay)
        elect_unclean(replay)
        fail_directory(replay)
        delete_controller(replay)
        expire_session(replay)
