"""Partitions move between real brokers while they are written, and while brokers die; nothing that was acknowledged is lost."""

from pathlib import Path

from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.cluster_clients import a_reader, a_writer, read_all
from tests.support.history import History
from tests.support.reassignments import is_moving, move, wait_for_replicas


def test_partitions_go_round_and_round_while_they_are_written_and_read(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        cluster.create_topic("t", replicas=[[0, 1], [1, 2]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer, a_reader(cluster, "t", history, partitions=2):
            for turn in range(4):
                targets = [[(turn + 1 + index) % 3, (turn + 2 + index) % 3] for index in range(2)]
                move(cluster, "t", dict(enumerate(targets)))
                writer.go_on_for(50)
                eventually(lambda: not is_moving(cluster), seconds=90)
                wait_for_replicas(cluster, "t", targets)
            writer.go_on_for(50)
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []


def test_the_next_controller_ends_what_the_one_that_was_killed_began(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 4) as cluster:
        controller = cluster.controller_id()
        first, second, third = (each for each in range(4) if each != controller)
        cluster.create_topic("t", partitions=2, replicas=[[first, second], [second, first]])
        history = History()
        with a_writer(cluster, "t", history, partitions=2) as writer:
            writer.go_on_for(200)
            move(cluster, "t", {0: [third, first], 1: [third, second]})
            cluster.broker(controller).kill()
            writer.go_on_for(200)
            wait_for_replicas(cluster, "t", [[third, first], [third, second]])
            eventually(lambda: not is_moving(cluster), seconds=90)
            cluster.broker(controller).start()
        read_all(cluster, "t", history, partitions=2)
        assert history.violations() == []


def test_a_new_replica_that_dies_is_filled_when_it_is_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 4) as cluster:
        controller = cluster.controller_id()
        first, second, third = (each for each in range(4) if each != controller)
        # The move may have ended when the replica dies, and then one replica is left in sync.
        cluster.create_topic("t", replicas=[[first, second]], min_insync_replicas=1)
        history = History()
        with a_writer(cluster, "t", history) as writer:
            writer.go_on_for(500)
            move(cluster, "t", {0: [third, second]})
            cluster.broker(third).kill()
            writer.go_on_for(100)
            cluster.broker(third).start()
            wait_for_replicas(cluster, "t", [[third, second]])
            writer.go_on_for(100)
        assert cluster.leader_of("t", 0) in {second, third}
        read_all(cluster, "t", history)
        assert history.violations() == []
