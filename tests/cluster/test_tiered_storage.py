"""Brokers share a remote store: leaders move closed segments there, and new replicas copy the local part alone."""

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.reassignments import elect_preferred, move, wait_for_replicas
from tests.support.wire_client import a_wire_client

RECORDS = 400
EARLIEST, EARLIEST_LOCAL = -2, -4
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": 20_000,
    "local.retention.bytes": 1,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}


def settings(shared: Path) -> dict[str, object]:
    shared.mkdir()
    return {
        "remote_log_storage_system_enable": "true",
        "remote_log_storage_manager_class_name": LOCAL_TIERED_STORAGE,
        "rsm_config_dir": shared,
        "rlmm_config_remote_log_metadata_topic_num_partitions": 2,
        "rlmm_config_remote_log_metadata_topic_replication_factor": 2,
        "remote_log_manager_task_interval_ms": 200,
        "log_retention_check_interval_ms": 200,
        "log_initial_task_delay_ms": 200,
    }


def value_of(at: int) -> bytes:
    return f"{at:05d}".encode() * 100


def produce(cluster: Cluster, start: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "batch.num.messages": 5, "acks": "all"})
    for at in range(start, end):
        producer.produce("t", value_of(at), partition=0)
        if at % 20 == 19:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def read_all(cluster: Cluster, end: int) -> None:
    """Every record is there, in its place."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + 90
    try:
        while len(found) < end:
            assert time.monotonic() < deadline, len(found)
            found += [(each.offset(), each.value()) for each in consumer.consume(500, 0.5) if each.error() is None]
    finally:
        consumer.close()
    assert found == [(at, value_of(at)) for at in range(end)]


def offset_at_leader(cluster: Cluster, timestamp: int) -> int:
    """The leader's answer to ListOffsets; -1 while it has none."""
    leader = cluster.broker(cluster.leader_of("t", 0))
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    with a_wire_client(leader.port) as client:
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
        (topic,) = client.ask(request, 9).topics
    return topic.partitions[0].offset


def segments_of(cluster: Cluster, broker_id: int) -> list[int]:
    """The base offsets of the segments on the broker's disk."""
    return sorted(int(path.stem) for path in (cluster.broker(broker_id).data / "t-0").glob("*.log"))


def stored(shared: Path) -> list[str]:
    """The remote segments."""
    return [path.name for path in shared.rglob("*.log")]


def test_a_new_replica_begins_behind_the_remote_records_and_can_lead(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with a_cluster(tmp_path, 3, **settings(shared)) as cluster:
        cluster.create_topic("t", replicas=[[0, 1]], **TIERED)
        produce(cluster, 0, RECORDS)
        eventually(lambda: offset_at_leader(cluster, EARLIEST_LOCAL) > RECORDS * 3 // 4, what="most is in the store alone", seconds=90)
        eventually(lambda: segments_of(cluster, 1)[0] > RECORDS * 3 // 4, what="the follower removes it, too", seconds=90)
        assert offset_at_leader(cluster, EARLIEST) == 0

        move(cluster, "t", {0: [2, 1]})
        wait_for_replicas(cluster, "t", [[2, 1]])
        assert segments_of(cluster, 2)[0] > RECORDS // 2  # the rest was never copied
        elect_preferred(cluster, "t", 0)
        eventually(lambda: cluster.leader_of("t", 0) == 2, what="the new replica leads", seconds=60)
        read_all(cluster, RECORDS)
        produce(cluster, RECORDS, 2 * RECORDS)
        eventually(lambda: offset_at_leader(cluster, EARLIEST_LOCAL) > RECORDS * 7 // 4, what="the new leader copies", seconds=90)
        assert offset_at_leader(cluster, EARLIEST) == 0
        read_all(cluster, 2 * RECORDS)

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_topics(["t"], operation_timeout=60)["t"].result(60)
        eventually(lambda: not stored(shared), what="the deleted topic leaves nothing in the store", seconds=90)


def test_leaders_that_are_killed_while_they_copy_lose_nothing(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with a_cluster(tmp_path, 2, **settings(shared)) as cluster:
        cluster.create_topic("t", replicas=[[0, 1]], min_insync_replicas=1, **TIERED)
        for turn in range(4):
            produce(cluster, turn * RECORDS, (turn + 1) * RECORDS)
            leader = cluster.leader_of("t", 0)
            cluster.broker(leader).kill()
            cluster.wait_until_led_by_another("t", 0, leader)
            cluster.broker(leader).start()
            cluster.wait_until_isr_is("t", 0, 0, 1)
        end = 4 * RECORDS
        eventually(lambda: offset_at_leader(cluster, EARLIEST_LOCAL) > end - RECORDS // 4, what="most is in the store alone", seconds=90)
        read_all(cluster, end)
