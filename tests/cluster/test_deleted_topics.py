"""Topics are deleted while a broker with replicas of them is away, and their names are used again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.client.topic_admin import delete_topics
from tests.support.broker_process import eventually
from tests.support.clients import read_all
from tests.support.cluster import Cluster, a_cluster

SET_ASIDE_SECONDS = 120.0
"""Time for a broker that is back to look for replicas without a topic. It begins half a minute after it is back."""
TOPICS = ("again", "elsewhere", "gone")


@pytest.mark.parametrize("stands_still", [False, True], ids=["dead", "stands still"])
def test_without_zookeeper_names_are_free_while_a_broker_is_away_and_no_old_record_comes_back(tmp_path: Path, stands_still: bool) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        away, other = cluster.others(cluster.controller_id())
        for topic in TOPICS:
            cluster.create_topic(topic, replicas=[[away.id, other.id]], min_insync_replicas=1)
            produce(cluster, topic, b"of the former topic")
        (away.pause if stands_still else away.kill)()
        for topic in TOPICS:
            cluster.wait_until_led_by_another(topic, 0, away.id)
        assert cluster.ask(lambda client: delete_topics(client, TOPICS)) == dict.fromkeys(TOPICS)
        cluster.create_topic("again", replicas=[[away.id, other.id]], min_insync_replicas=1)
        cluster.create_topic("elsewhere", replicas=[[other.id]], min_insync_replicas=1)
        for topic in ("again", "elsewhere"):
            produce(cluster, topic, b"of the new topic")
        (away.resume if stands_still else away.start)()
        eventually(partial(are_equal, cluster, "again"), what="the replicas are equal")
        cluster.wait_until_isr_is("again", 0, away.id, other.id)
        other.kill()
        cluster.wait_until_led_by_another("again", 0, other.id)
        assert values_of(cluster, "again") == [b"of the new topic"]
        other.start()
        for topic in TOPICS:
            eventually(partial(is_set_aside, away.data, topic), SET_ASIDE_SECONDS, f"the former {topic} is set aside")
        assert not (away.data / "elsewhere-0").exists()
        assert not (away.data / "gone-0").exists()
        assert values_of(cluster, "elsewhere") == [b"of the new topic"]


def test_without_zookeeper_names_are_free_while_a_log_directory_has_failed_and_no_old_record_comes_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 3, log_dirs=f"{tmp_path}/a{{id}},{tmp_path}/b{{id}}") as cluster:
        failing, other = cluster.others(cluster.controller_id())
        # The first directory may have the metadata: a topic in the second one is deleted.
        for topic in ("filler", *TOPICS):
            cluster.create_topic(topic, partitions=2, replicas=[[failing.id, other.id]] * 2, min_insync_replicas=1)
        second = tmp_path / f"b{failing.id}"
        places = {topic: int(next(second.glob(f"{topic}-?")).name[-1]) for topic in TOPICS}
        for topic, index in places.items():
            produce(cluster, topic, b"of the former topic", index)
        second.rename(tmp_path / "gone")
        for topic, index in places.items():
            produce(cluster, topic, b"after the failure", index)
            cluster.wait_until_led_by_another(topic, index, failing.id)
        assert cluster.ask(lambda client: delete_topics(client, TOPICS)) == dict.fromkeys(TOPICS)
        cluster.create_topic("again", partitions=2, replicas=[[failing.id, other.id]] * 2, min_insync_replicas=1)
        cluster.create_topic("elsewhere", partitions=2, replicas=[[other.id]] * 2, min_insync_replicas=1)
        index = places["again"]
        for topic in ("again", "elsewhere"):
            produce(cluster, topic, b"of the new topic", places[topic])
        cluster.wait_until_isr_is("again", index, failing.id, other.id)
        failing.stop()
        (tmp_path / "gone").rename(second)
        failing.start()
        cluster.wait_until_isr_is("again", index, failing.id, other.id)
        other.kill()
        cluster.wait_until_led_by_another("again", index, other.id)
        assert values_of(cluster, "again", index) == [b"of the new topic"]
        other.start()
        for topic, number in places.items():
            eventually(partial(is_set_aside, second, topic, number), SET_ASIDE_SECONDS, f"the former {topic} is set aside")
            assert not (second / f"{topic}-{number}").exists()


def produce(cluster: Cluster, topic: str, value: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(90) == 0


def values_of(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read_all(cluster.bootstrap, [(topic, partition)])[topic, partition]]


def are_equal(cluster: Cluster, topic: str) -> bool:
    logs = list(cluster.log_files(topic, 0).values())
    return len(logs) == 2 and logs[0] == logs[1] and b"of the new topic" in logs[0]


def is_set_aside(data: Path, topic: str, partition: int = 0) -> bool:
    """Whether a directory that is not served has the former topic's records."""
    return any(b"of the former topic" in path.read_bytes() for path in data.glob(f"{topic}-{partition}.*-stray/*.log"))
