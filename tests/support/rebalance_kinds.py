"""Lists the clients and strategies with which rebalances are tested, and the topics that they read."""

from typing import NamedTuple

import confluent_kafka
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.rebalance_members import CLIENTS, SECONDS, Member, MemberProcess, Partition

PARTITIONS = 4
RECORDS = 400
CONFIG = {
    "num_partitions": PARTITIONS,
    "group_initial_rebalance_delay_ms": 50,
    "group_min_session_timeout_ms": 500,
    "offsets_topic_num_partitions": 3,
}
"""Of the broker: members may have short sessions."""


class Kind(NamedTuple):
    """A client with a strategy."""

    client: str
    strategy: str | None = None

    def __str__(self) -> str:
        return self.client if self.strategy is None else f"{self.client}-{self.strategy}"

    @property
    def protocol(self) -> str:
        """The name of its strategy in JoinGroup."""
        return self.strategy or ("roundrobin" if self.client == "aiokafka" else "range")

    @property
    def properties(self) -> dict[str, str | int]:
        return {} if self.strategy is None else {"partition_assignment_strategy": self.strategy}

    def member(self, broker: BrokerProcess, group: str, topics: str, **properties: str | int) -> Member:
        return CLIENTS[self.client](broker.bootstrap, group, topics, **self.properties, **properties)

    def process(self, broker: BrokerProcess, group: str, topics: str, **properties: str | int) -> MemberProcess:
        return MemberProcess(self.client, broker.bootstrap, group, topics, **self.properties, **properties)


RANGE = Kind("confluent", "range")
ROUND_ROBIN = Kind("confluent", "roundrobin")
COOPERATIVE = Kind("confluent", "cooperative-sticky")
KAFKA_PYTHON = Kind("kafka-python")
AIOKAFKA = Kind("aiokafka")

every_kind = pytest.mark.parametrize("kind", [RANGE, ROUND_ROBIN, COOPERATIVE, KAFKA_PYTHON, AIOKAFKA], ids=str)
every_client = pytest.mark.parametrize("kind", [RANGE, COOPERATIVE, AIOKAFKA], ids=str)
"""All kinds, except two. One strategy differs from another only in its assignments. With kafka-python a leader that joined twice in a row
may send no more requests, with Apache Kafka, too."""


def fill(broker: BrokerProcess, topic: str, first: int = 0, partitions: int = PARTITIONS) -> set[int]:
    """`RECORDS` numbered records over all partitions; their numbers."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(SECONDS) == 0
    return set(range(first, first + RECORDS))


def all_of(topic: str, partitions: int = PARTITIONS) -> set[Partition]:
    """The partitions of a topic."""
    return {(topic, index) for index in range(partitions)}
