"""Shows tests with aiokafka: a round trip in a group, and a broker that is restarted meanwhile."""

import asyncio

import aiokafka

from pytest_ottla import Broker, Kafka


def test_a_consumer_reads_what_a_producer_wrote(kafka: Kafka) -> None:
    topic = kafka.topic("orders")

    async def round_trip() -> bytes:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"value")
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group(), auto_offset_reset="earliest"
        )
        async with consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value or b""

    assert asyncio.run(round_trip()) == b"value"


def test_a_producer_survives_a_restart_of_the_broker(kafka: Kafka, ottla: Broker) -> None:
    topic = kafka.topic("orders")

    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=50) as producer:
            await producer.send_and_wait(topic, b"before")
            await asyncio.to_thread(ottla.restart)
            await asyncio.wait_for(producer.send_and_wait(topic, b"after"), 30)

    asyncio.run(produce())
    assert [record.value for record in kafka.consume(topic, 2)] == [b"before", b"after"]
