"""Shows tests with kafka-python: a round trip, and records that are there before the test."""

import kafka as kafka_python

from pytest_ottla import Kafka


def test_a_consumer_reads_what_a_producer_wrote(kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    producer = kafka_python.KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    producer.send(topic, b"value").get(20)
    producer.close()
    assert [record.value for record in kafka.consume(topic, 1)] == [b"value"]


def test_a_consumer_reads_records_that_the_test_prepared(kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, [(b"a", b"one"), (b"b", b"two")])
    consumer = kafka_python.KafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group(), auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = [next(consumer), next(consumer)]
    consumer.close()
    assert [(record.key, record.value) for record in found] == [(b"a", b"one"), (b"b", b"two")]
