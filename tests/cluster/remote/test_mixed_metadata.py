"""Brokers of Apache Kafka 3.9 and this project's reader and writer share `__remote_log_metadata`, on leaders of either kind.

Apache's broker copies segments, and the entries are read. Then a copy is replaced under another uuid, and Apache's broker serves it.
"""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.local_layout import ROOT, partition_directory, segment_name
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from tests.support.apache_kafka_tiered import METADATA_PARTITIONS, tiered_config
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.metadata_observer import an_observer, cluster_at
from tests.support.mixed_cluster import APACHE, a_mixed_cluster
from tests.support.peers import until

pytestmark = [pytest.mark.java, pytest.mark.cluster, pytest.mark.slow]

RECORDS = 200
COPYING = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
TIERED_TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": 4000,
    "index.interval.bytes": 100,
    "local.retention.ms": 500,
    "retention.ms": -1,
    "file.delete.delay.ms": 100,
}
STARTED, FINISHED, DELETING, DELETED = SegmentState


def produce(cluster: Cluster, topic: str, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 5, "linger.ms": 0, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce(topic, b"%d" % number + b"." * 200)
        if number % 5 == 4:
            assert not producer.flush(30)


def consume(cluster: Cluster, topic: str, count: int = RECORDS) -> list[int]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[int] = []

    def more() -> bool:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found.append(int(message.value().partition(b".")[0]))
        return len(found) >= count

    eventually(more, 60, "all records are read")
    consumer.close()
    return found


async def replace_copy(metadata: TopicMetadata, entry: SegmentEntry, store: Path) -> None:
    """Puts a copy under another uuid in the place of this one, and deletes this one."""
    folder = store / ROOT / partition_directory(entry.id.partition)
    other = replace(entry, id=SegmentId(entry.id.partition, b"\x07" * 16), state=STARTED, broker_id=77)
    await metadata.add(other)
    for path in folder.glob(f"{segment_name(entry)}.*"):
        shutil.copyfile(path, folder / path.name.replace(segment_name(entry), segment_name(other)))
    await metadata.update(SegmentUpdate(other.id, 77, other.event_timestamp_ms, FINISHED))
    await metadata.update(SegmentUpdate(entry.id, 77, other.event_timestamp_ms, DELETING))
    for path in folder.glob(f"{segment_name(entry)}.*"):
        path.unlink()
    await metadata.update(SegmentUpdate(entry.id, 77, other.event_timestamp_ms, DELETED))
    found = metadata.find(entry.id.partition, 0, entry.start_offset)
    assert found is not None
    assert found.id == other.id


def test_apache_kafka_reads_what_was_written_here_and_the_reverse(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    config = {**tiered_config(store, metadata_replicas=3), **COPYING}
    with a_mixed_cluster(tmp_path, config=config) as cluster:
        cluster.create_topic("t", replicas=[[APACHE]], **TIERED_TOPIC)
        produce(cluster, "t")
        port = cluster.broker(APACHE).port
        topic_id = cluster_at(port, "t").topics["t"].topic_id
        partition = TopicIdPartition(topic_id, "t", 0)

        async def observe() -> None:
            async with asyncio.timeout(120), an_observer(port, tmp_path, METADATA_PARTITIONS) as metadata:
                metadata.follow(partition)
                await until(lambda: metadata.is_ready(partition))
                await until(lambda: metadata.highest_offset(partition, 0) == last)
                entries = list(metadata.all_entries(partition))
                assert {entry.state for entry in entries} == {FINISHED}
                assert [entry.start_offset for entry in entries[1:]] == [entry.end_offset + 1 for entry in entries[:-1]]
                for entry in entries:
                    log = store / ROOT / partition_directory(partition) / f"{segment_name(entry)}.log"
                    assert log.stat().st_size == entry.size
                await replace_copy(metadata, entries[0], store)

        data = cluster.broker(APACHE).data / "t-0"
        eventually(lambda: not (data / f"{0:020}.log").exists(), 60, "the first segment is in the store only")
        last = max(int(path.name[:20]) for path in data.glob("*.log")) - 1
        asyncio.run(observe())
        assert consume(cluster, "t") == list(range(RECORDS))
        leaders = {state.leader for state in cluster_at(port, METADATA_TOPIC).topics[METADATA_TOPIC].partitions.values()}
        assert len(leaders) > 1


def test_each_kind_of_leader_serves_what_the_other_has_copied(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    config = {**tiered_config(store, metadata_replicas=3), **COPYING, "log.segment.delete.delay.ms": "100"}
    with a_mixed_cluster(tmp_path, config=config) as cluster:

        def wait_until_remote(broker_id: int, start: int) -> None:
            """Until the broker, which leads, has removed the segments below an offset, because the store has them."""
            data = cluster.broker(broker_id).data / "t-0"
            eventually(
                lambda: min((int(path.name[:20]) for path in data.glob("*.log")), default=0) >= start,
                90,
                f"broker {broker_id} keeps nothing below {start}",
            )

        cluster.create_topic("t", replicas=[[APACHE, 0]], **TIERED_TOPIC)
        produce(cluster, "t")
        wait_until_remote(APACHE, RECORDS // 2)
        cluster.broker(APACHE).stop()
        cluster.wait_until_led_by_another("t", 0, than=APACHE)
        assert consume(cluster, "t") == list(range(RECORDS))
        produce(cluster, "t", RECORDS)
        wait_until_remote(0, RECORDS + RECORDS // 2)
        assert consume(cluster, "t", 2 * RECORDS) == list(range(2 * RECORDS))
        cluster.broker(APACHE).start()
        cluster.wait_until_isr_is("t", 0, 0, APACHE)
        cluster.broker(0).stop()
        cluster.wait_until_led_by_another("t", 0, than=0)
        assert consume(cluster, "t", 2 * RECORDS) == list(range(2 * RECORDS))
