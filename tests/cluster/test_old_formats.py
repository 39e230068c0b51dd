"""Two brokers replicate logs of message formats 0 and 1 to each other, byte by byte, and serve them to clients of any age."""

from collections import defaultdict
from pathlib import Path

from tests.cluster.test_mixed_old_formats import FORMATS, OLD_CLIENT, History, magics, read, write
from tests.cluster.test_replication import wait_until_logs_are_equal
from tests.support.cluster import Cluster, a_cluster


def check(cluster: Cluster, history: History) -> None:
    """The replicas are equal and have their format; every client finds every record."""
    for (topic, partition), values in history.items():
        wait_until_logs_are_equal(cluster, topic, partition, 2)
        for client in (OLD_CLIENT, {}):
            assert [value for _, value in read(cluster, topic, partition, client)] == values
        for broker in cluster.brokers.values():
            assert magics(broker.data / f"{topic}-{partition}") == {int(topic[-1])}


def test_logs_of_old_formats_are_replicated_and_led_by_either_broker(tmp_path: Path) -> None:
    history: History = defaultdict(list)
    with a_cluster(tmp_path, 2, inter_broker_protocol_version="2.8") as cluster:
        for topic, release in FORMATS.items():
            cluster.create_topic(topic, replicas=[[0, 1], [1, 0]], message_format_version=release)
        write(cluster, history)
        check(cluster, history)

        cluster.broker(1).kill()
        for topic in FORMATS:
            assert cluster.wait_until_led_by_another(topic, 1, than=1) == 0
        write(cluster, history)
        cluster.broker(1).start()
        for topic, partition in history:
            cluster.wait_until_isr_is(topic, partition, 0, 1)
        write(cluster, history)
        check(cluster, history)
