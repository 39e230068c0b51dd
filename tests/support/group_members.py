"""Members of consumer groups, of three clients behind one face. A member lives while `poll` is called."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import aiokafka
import confluent_kafka

from tests.support.broker_process import BrokerProcess

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka


class ConfluentMember:
    """librdkafka."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str, **config: str | int) -> None:
        properties: dict[str, str | int] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        self.rebalances = 0
        self.errors: list[int] = []
        """The codes of errors that were reported while it was polled."""
        self._consumer = confluent_kafka.Consumer(properties)
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: object, partitions: object) -> None:
        self.rebalances += 1

    def poll(self) -> list[int]:
        found = []
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                found.append(int(message.value() or b""))
            else:
                self.errors.append(error.code())
        return found

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def _config(broker: BrokerProcess, group: str) -> dict[str, Any]:
    """For kafka-python and aiokafka, whose names of options are the same."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 200,
        "metadata_max_age_ms": 1000,
    }


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self._consumer = kafka.KafkaConsumer(topic, **_config(broker, group))
        self._consumer.topics()  # why: see `rebalance_members.KafkaPythonMember`

    def poll(self) -> list[int]:
        return [int(record.value) for records in self._consumer.poll(100).values() for record in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    """aiokafka, on a loop that runs while it is asked something; its heartbeats go on in between, as `poll` is called all the time."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(broker, topic, group))

    async def _start(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(topic, **_config(broker, group))
        # Not awaited to the end: its first rebalance needs the other members to be polled.
        self._started = asyncio.ensure_future(self._consumer.start())
        await asyncio.wait([self._started], timeout=0.1)

    def poll(self) -> list[int]:
        return self._loop.run_until_complete(self._poll())

    async def _poll(self) -> list[int]:
        if not self._started.done():
            await asyncio.wait([self._started], timeout=0.1)
            return []
        self._started.result()
        found = await self._consumer.getmany(timeout_ms=100)
        return [int(record.value or b"") for records in found.values() for record in records]

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


Member: TypeAlias = ConfluentMember | KafkaPythonMember | AiokafkaMember
Client: TypeAlias = Callable[[BrokerProcess, str, str], Member]
