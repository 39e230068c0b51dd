"""Shows tests with confluent-kafka: a round trip, and a producer whose broker has moved the leader."""

import confluent_kafka

from pytest_ottla import Broker, Kafka


def test_a_consumer_reads_what_a_producer_wrote(kafka: Kafka) -> None:
    topic = kafka.topic("orders", partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, key=b"key", value=b"value")
    assert producer.flush(20) == 0

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": kafka.group(),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert (message.key(), message.value()) == (b"key", b"value")
    consumer.commit(message, asynchronous=False)
    consumer.close()
    kafka.wait_for_lag_zero(kafka.group(), topic)


def test_a_producer_retries_when_the_leader_has_moved(kafka: Kafka, ottla: Broker) -> None:
    topic = kafka.topic("orders")
    ottla.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 10})
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    assert [record.value for record in kafka.consume(topic, 1)] == [b"value"]
