"""A log directory fails while the broker runs: the cluster learns of it, the other directory goes on."""

from pathlib import Path

from ottla.protocol.topic_partition import TopicPartition
from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import a_wire_client


def test_partitions_of_a_failed_directory_lose_their_leader_and_the_others_keep_it(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    with (
        a_broker_in_process(tmp_path, broker_id=0, log_dirs=",".join(map(str, directories))) as broker,
        a_wire_client(broker.port) as client,
    ):
        create(client, a_topic("t", 4))
        services = broker.services
        where = {
            index: broker.run(lambda index=index: services.data.log_manager.get(TopicPartition("t", index)).log_dir) for index in range(4)
        }
        assert set(where.values()) == set(map(str, directories))

        broker.run(lambda: services.data.replica_manager.on_log_dir_failure(str(directories[1])))

        def leaders() -> dict[int, int]:
            return {index: services.metadata.leader_of("t", index)[0] for index in range(4)}

        expected = {index: -1 if log_dir == str(directories[1]) else 0 for index, log_dir in where.items()}
        eventually(lambda: broker.run(leaders) == expected, what=f"leaders {expected}")
