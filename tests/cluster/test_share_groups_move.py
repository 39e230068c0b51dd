"""Records of a share group outlive the leader of their partition, and the coordinator that has their state: each is accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from ottla.client.group_offsets.starts import move_starts, share_starts
from ottla.protocol.topic_partition import TopicPartition
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster

RECORDS = 2_000
MOST_DELIVERIES = 10
STATE_TOPIC = "__share_group_state"
FIRST = TopicPartition("queue", 0)
CONFIG: dict[str, object] = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "share_coordinator_state_topic_num_partitions": 1,
    "share_coordinator_state_topic_replication_factor": 3,
    "share_coordinator_state_topic_min_isr": 2,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_record_lock_duration_ms": 3_000,
    "group_share_delivery_count_limit": MOST_DELIVERIES,
}

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


class Acceptor:
    """A share consumer that accepts each record by itself.

    `delivered` has the number of deliveries by record, `accepted` those whose acceptance was confirmed.
    """

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "g", "share.acknowledgement.mode": "explicit", "log_level": 0, "reconnect.backoff.max.ms": 200}
        self._consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": bootstrap, **settings})
        self._consumer.subscribe([FIRST.topic])
        self.delivered: Counter[int] = Counter()
        self.accepted: set[int] = set()

    def step(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Accept what comes within half a second, if there is something. `meanwhile` is called before the acceptance is sent."""
        taken = [message for message in self._consumer.poll(0.5) if message.error() is None]
        values = [int(message.value() or b"") for message in taken]
        self.delivered.update(values)
        for message in taken:
            self._consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
        if taken:
            meanwhile()
            outcomes = self._consumer.commit_sync(20)
            if not any(outcomes.values()):
                self.accepted.update(values)
        return bool(taken)

    def work_until(self, is_done: Callable[[], object], what: str) -> None:
        """Repeat steps. Records whose acceptance a broker refused are delivered again."""

        def tried() -> object:
            try:
                self.step()
            except confluent_kafka.KafkaException:
                return False
            return is_done()

        eventually(tried, 120, what)

    def hold_over(self, meanwhile: Callable[[], object]) -> None:
        """Hold records while this is done, then accept them. The brokers may refuse that, or the answer may be lost."""

        def tried() -> bool:
            try:
                return self.step(meanwhile)
            except confluent_kafka.KafkaException:
                return True

        eventually(tried, 60, "records are held")

    def close(self) -> None:
        self._consumer.close()


def write(bootstrap: str, begin: int, end: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10})
    for number in range(begin, end):
        producer.produce(FIRST.topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def kill_leader(cluster: Cluster, topic: str) -> None:
    """Kill the leader, let another lead, and start the broker again."""
    leader = cluster.leader_of(topic, 0)
    cluster.broker(leader).kill()
    cluster.wait_until_led_by_another(topic, 0, leader)
    cluster.broker(leader).start()


def test_every_record_is_accepted_although_the_leader_and_the_coordinator_are_killed(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3, **CONFIG) as cluster:
        cluster.create_topic(FIRST.topic, replicas=[[0, 1, 2]], min_insync_replicas=2)
        cluster.ask(lambda client: move_starts(client, "g", {FIRST: 0}), seconds=60)
        acceptor = Acceptor(cluster.bootstrap)

        def is_complete() -> bool:
            found = cluster.ask(lambda client: share_starts(client, "g"), seconds=30)
            assert isinstance(found, dict)
            return len(acceptor.delivered) == RECORDS and bool(found[FIRST].lag == 0)

        try:
            write(cluster.bootstrap, 0, 700)
            acceptor.work_until(lambda: len(acceptor.accepted) >= 10, "the first records are accepted")
            write(cluster.bootstrap, 700, 1_400)
            acceptor.hold_over(lambda: kill_leader(cluster, FIRST.topic))
            acceptor.work_until(lambda: len(acceptor.delivered) == 1_400, "the records of the new leader are delivered")
            cluster.wait_until_isr_is(FIRST.topic, 0, 0, 1, 2)
            cluster.wait_until_isr_is(STATE_TOPIC, 0, 0, 1, 2)
            write(cluster.bootstrap, 1_400, RECORDS)
            acceptor.hold_over(lambda: kill_leader(cluster, STATE_TOPIC))
            acceptor.work_until(is_complete, "all records are delivered, and the group has no lag")
        finally:
            acceptor.close()
        assert acceptor.delivered.keys() == set(range(RECORDS))
        assert len(acceptor.accepted) > RECORDS // 2
        assert max(acceptor.delivered.values()) < MOST_DELIVERIES, "none was archived because it failed too often"
