"""The disk of one broker of three is full: its replicas go offline, others lead, and with room again it catches up after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.cluster_stores import each_store, zookeeper_of
from tests.support.history import History
from tests.support.small_disk import a_small_disk

DISK_BYTES = 12 * 1024 * 1024
VICTIM = 1


def fill(disk: Path) -> Path:
    """Leave no room; the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65_536))
        except OSError:
            pass
    return ballast


def leader_of(cluster: Cluster, topic: str) -> int:
    """As another broker than the victim knows it."""
    return cluster.partition(topic, 0, broker_id=0).leader_id


@each_store
@pytest.mark.slow
def test_a_full_disk_of_one_broker_costs_its_replicas_and_nothing_else(tmp_path: Path, store: str) -> None:
    disks = tmp_path / "disks"
    disks.mkdir()
    with a_small_disk(disks / f"{VICTIM}", str(DISK_BYTES)) as disk:
        dirs = {"log_dirs": f"{disks}/{{id}}/small,{tmp_path}/large-{{id}}", "log_index_size_max_bytes": "4096"}
        with a_cluster(tmp_path / "brokers", 3, zookeeper=zookeeper_of(store), auto_leader_rebalance_enable="false", **dirs) as cluster:
            # Two topics of two partitions, which the victim spreads over its two directories.
            for topic in ("t", "u"):
                cluster.create_topic(topic, replicas=[[VICTIM, 0, 2]], min_insync_replicas=2)
            (full,) = [topic for topic in ("t", "u") if (disk / "small" / f"{topic}-0").exists()]
            (other,) = {"t", "u"} - {full}
            history, others = History(), History()
            with a_writer(cluster, full, history) as writer, a_reader(cluster, full, history), a_writer(cluster, other, others) as along:
                ballast = fill(disk)
                eventually(lambda: leader_of(cluster, full) in {0, 2}, 30, f"another leads {full}-0")
                cluster.wait_until_isr_is(full, 0, 0, 2)
                writer.go_on_for(100)
                along.go_on_for(100)
                assert leader_of(cluster, other) == VICTIM
                assert cluster.isr_of(other, 0) == {0, 1, 2}
                ballast.unlink()
                cluster.broker(VICTIM).stop()
                cluster.broker(VICTIM).start()
                cluster.wait_until_isr_is(full, 0, 0, 1, 2, seconds=90)
                writer.go_on_for(50)
                along.go_on_for(50)
            for topic, found in ((full, history), (other, others)):
                read_all(cluster, topic, found)
                assert found.violations() == []
            assert "No space left on device" in cluster.broker(VICTIM).log()
