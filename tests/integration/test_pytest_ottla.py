"""The plugin for pytest: its fixtures, faults, clusters, and brokers for programs with asyncio."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from pytest_ottla import Broker, Cluster, Kafka, OttlaError, async_broker
from pytest_ottla.shared import Lender, SharedBroker
from tests.support.broker_process import eventually

pytest_plugins = ("pytest_ottla.plugin",)


@pytest.fixture(scope="session")
def ottla_config() -> dict[str, str]:
    """What a project overrides."""
    return {"num.partitions": "2"}


class TestHelpers:
    """Topics and groups of one test, and what prepares and inspects them."""

    def test_they_write_read_and_know_how_far_a_group_is_behind(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic("orders", partitions=2)
        assert kafka.produce(topic, [b"one", (b"key", b"two"), (b"key", None)], partition=1) == [0, 1, 2]
        assert [tuple(each) for each in kafka.consume(topic, 3)] == [(1, 0, None, b"one"), (1, 1, b"key", b"two"), (1, 2, b"key", None)]
        with pytest.raises(OttlaError, match=r"has 3 records, not 4, after 0.1 s"):
            kafka.consume(topic, 4, timeout=0.1)
        records = [[None, None, partition] for partition in (1, 0, 1, 0)]
        assert ottla.ask("produce", topic=topic, records=records) == [3, 0, 4, 1]  # in the order of the records
        assert ottla.lag(kafka.group(), topic) == 7
        with pytest.raises(OttlaError, match="is 7 records behind in"):
            kafka.wait_for_lag_zero(kafka.group(), topic, timeout=0.1)

    def test_another_test_has_other_topics(self, kafka: Kafka) -> None:
        topic = kafka.topic("orders")
        kafka.produce(topic, [b"other"])
        assert [each.value for each in kafka.consume(topic, 1)] == [b"other"]

    def test_settings_come_from_the_project(self, ottla: Broker) -> None:
        assert ottla.produce("made", [b"x"], partition=1) == [0]
        assert {each.partition for each in ottla.consume("made", 1)} == {1}


def errors_of_a_produce(kafka: Kafka, topic: str) -> list[confluent_kafka.KafkaError | None]:
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "retries": 0, "enable.idempotence": False})
    producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
    producer.flush(20)
    return errors


class TestFaults:
    """They hit the next requests, and end with the test."""

    def test_an_error_of_kafka(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic()
        ottla.fail_next("PRODUCE", "TOPIC_AUTHORIZATION_FAILED")
        (error,) = errors_of_a_produce(kafka, topic)
        assert error is not None
        assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert errors_of_a_produce(kafka, topic) == [None]

    def test_the_topics_of_a_test_take_faults_too(self, kafka: Kafka) -> None:
        topic = kafka.topic()
        kafka.fail_next("PRODUCE", "TOPIC_AUTHORIZATION_FAILED")
        (error,) = errors_of_a_produce(kafka, topic)
        assert error is not None
        kafka.roll(topic)
        with pytest.raises(AttributeError, match=r"kafka has no kill: use the fixture ottla, which is the broker: ottla\.kill"):
            kafka.kill()
        with pytest.raises(AttributeError, match=r"kafka has no fial_next; did you mean fail_next\?"):
            kafka.fial_next()

    def test_retried_errors_are_not_seen(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic()
        ottla.fail_next("METADATA", "LEADER_NOT_AVAILABLE", times=2)
        ottla.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2)
        ottla.fail_next("FETCH", None)
        assert kafka.produce(topic, [b"x"]) == [0]
        assert kafka.consume(topic, 1)[0].value == b"x"

    @pytest.mark.parametrize("fault", [lambda ottla: ottla.delay(100), lambda ottla: ottla.slow_disk(100)], ids=["delay", "slow disk"])
    def test_an_answer_takes_longer(self, kafka: Kafka, ottla: Broker, fault: Callable[[Broker], None]) -> None:
        topic = kafka.topic()
        fault(ottla)
        begin = time.monotonic()
        kafka.produce(topic, [b"x"])
        assert time.monotonic() - begin >= 0.1
        ottla.delay(100)  # ends with this test

    def test_a_shifted_clock(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic(config={"message.timestamp.type": "LogAppendTime"})
        ottla.shift_clock(3600)
        kafka.produce(topic, [b"x"])
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": kafka.group()})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = consumer.poll(20)
        consumer.close()
        assert message is not None
        assert 3500 < message.timestamp()[1] / 1000 - time.time() < 3700

    def test_a_broker_that_was_killed_says_so(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic()
        kafka.produce(topic, [b"x"])
        before = ottla.bootstrap_servers
        ottla.kill()
        with pytest.raises(OttlaError, match="was killed; call restart"):
            kafka.produce(topic, [b"y"])
        ottla.restart()
        assert ottla.bootstrap_servers == before
        assert kafka.consume(topic, 1)[0].value == b"x"
        ottla.kill()

    def test_the_next_test_has_a_broker_again(self, kafka: Kafka, ottla: Broker) -> None:
        ottla.pause()
        with pytest.raises(OttlaError, match="is paused; call resume"):
            kafka.topic()
        ottla.resume()
        kafka.topic()
        ottla.pause()

    def test_a_full_disk_ends_a_broker_with_one_directory(self, kafka: Kafka, ottla: Broker) -> None:
        topic = kafka.topic()
        ottla.full_disk()
        with pytest.raises(OttlaError):
            kafka.produce(topic, [b"x"])

        def reason() -> str:
            try:
                return f"lag {ottla.lag('g', topic)}"
            except OttlaError as error:
                return str(error)  # while it ends, it cannot be reached

        eventually(lambda: re.search(r"has ended by itself, see .*broker.log; call restart", reason()))

    def test_nothing_is_left_of_it(self, kafka: Kafka) -> None:
        assert kafka.produce(kafka.topic(), [b"x"]) == [0]

    def test_what_does_not_exist_is_named(self, ottla: Broker) -> None:
        with pytest.raises(OttlaError, match="there is no api 'NO_SUCH_API'"):
            ottla.fail_next("NO_SUCH_API", None)
        with pytest.raises(OttlaError, match="there is no error 'NO_SUCH_ERROR'"):
            ottla.fail_next("FETCH", "NO_SUCH_ERROR")
        with pytest.raises(OttlaError, match=r"there is no api 'PRODUC'; did you mean PRODUCE\?"):
            ottla.fail_next("PRODUC", None)
        with pytest.raises(OttlaError, match=r"did you mean NOT_LEADER_OR_FOLLOWER\?"):
            ottla.fail_next("FETCH", "NOT_LEADER_OR_FOLOWER")


def in_sync(cluster: Cluster | Broker, topic: str) -> set[int]:
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return set(client.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)


@pytest.mark.cluster
def test_a_cluster_survives_the_death_of_a_broker_and_a_cut(ottla_cluster: Callable[..., Cluster]) -> None:
    cluster = ottla_cluster(3, replica_lag_time_max_ms=1000)
    cluster.any.create_topic("t")
    assert cluster.any.produce("t", [b"one"]) == [0]
    eventually(lambda: in_sync(cluster, "t") == {0, 1, 2}, 60)
    cluster[0].kill()
    eventually(lambda: in_sync(cluster, "t") == {1, 2}, 60)
    assert cluster.any.produce("t", [b"two"]) == [1]
    cluster.heal()
    eventually(lambda: in_sync(cluster, "t") == {0, 1, 2}, 60)
    cluster.cut(0, 1)
    cluster.cut(0, 2)
    assert cluster[1].produce("t", [b"three"]) == [2]
    eventually(lambda: in_sync(cluster[1], "t") == {1, 2}, 60)
    cluster.heal()
    eventually(lambda: in_sync(cluster, "t") == {0, 1, 2}, 60)
    assert [each.value for each in cluster.any.consume("t", 3)] == [b"one", b"two", b"three"]


class TestAsyncio:
    """A program with asyncio goes on while a broker starts and stops."""

    def test_a_start(self, tmp_path: Path) -> None:
        async def main() -> None:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            async with async_broker(tmp_path, num_partitions=3) as broker:
                assert turns > 10
                assert await asyncio.to_thread(broker.produce, "t", [b"x"]) == [0]
            counting.cancel()
            assert not broker.is_running

        asyncio.run(main())

    def test_a_start_that_is_cancelled(self, tmp_path: Path) -> None:
        async def enter() -> None:
            async with async_broker(tmp_path):
                raise AssertionError("it was cancelled before")

        async def main() -> None:
            entering = asyncio.create_task(enter())
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering

        asyncio.run(main())


def test_workers_share_a_broker_and_cannot_want_different_settings(tmp_path: Path) -> None:
    with closing(Lender()) as lender, SharedBroker(lender.terms, tmp_path / "broker", {"num.partitions": "2"}) as one:
        with SharedBroker(lender.terms, tmp_path, {"num.partitions": "2"}) as other, ThreadPoolExecutor(2) as threads:
            one.produce("t", [b"x"])
            waiting = threads.submit(one.consume, "t", 2, 20.0)
            assert other.known_brokers() == [0]
            other.produce("t", [b"y"])
            assert {each.value for each in waiting.result()} == {b"x", b"y"}
        with pytest.raises(OttlaError, match="all workers share one broker, so ottla_config must be the same"):
            SharedBroker(lender.terms, tmp_path, {})
        with pytest.raises(OttlaError, match="is shared by all workers, so it takes no faults, and its time does not advance"):
            one.kill()
        with pytest.raises(OttlaError, match="is shared by all workers"):
            one.fail_next("PRODUCE", None)
        with pytest.raises(OttlaError, match="its time does not advance: use ottla_cluster"):
            one.advance(hours=1)
    assert not (tmp_path / "broker").exists()


class TestStarts:
    """What can't start says why, in one line."""

    def test_a_setting_that_cannot_be_used(self, tmp_path: Path) -> None:
        with pytest.raises(OttlaError, match=r"the broker did not start: Invalid value -5 for .*num.partitions: .*; its log is") as caught:
            Broker(tmp_path, num_partitions=-5)
        assert "Traceback" not in str(caught.value)

    def test_a_setting_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(OttlaError, match=r"no key of a broker has this name \(did you mean num\.partitions\?\); its log is"):
            Broker(tmp_path, num_partition=5)

    def test_without_the_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", os.devnull)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        with pytest.raises(OttlaError, match="there is no command ottla: install ottla into the environment of the tests"):
            Broker(tmp_path)
