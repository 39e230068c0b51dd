"""Groups on a broker whose internal topics keep format 1 (log.message.format.version), over a restart."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as confluent

from ottla.protocol.records.batch import iter_batches
from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.wire_client import a_wire_client

CONFIG = {
    "inter_broker_protocol_version": "2.8",
    "log_message_format_version": "0.10.2",
    "offsets_topic_replication_factor": 1,
    "offsets_topic_num_partitions": 1,
}
PARTITION = confluent.TopicPartition("t", 0, 3)


def a_consumer(broker: BrokerProcess) -> confluent.Consumer:
    return confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})


def test_committed_offsets_are_stored_as_messages_and_loaded_again(tmp_path: Path) -> None:
    with a_broker(tmp_path, broker_id=0, **CONFIG) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic("t"))
        consumer = a_consumer(broker)
        consumer.commit(offsets=[PARTITION], asynchronous=False)
        consumer.close()
        assert broker.stop() == 0
        log = (broker.data / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
        assert {header.magic for _, header in iter_batches(log)} == {1}
        broker.start()
        consumer = a_consumer(broker)
        (found,) = consumer.committed([confluent.TopicPartition("t", 0)], timeout=30)
        consumer.close()
        assert found.offset == PARTITION.offset
