"""Drives transactional producers and consumers of aiokafka, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, cast

import aiokafka
import aiokafka.errors

from tests.support.transactional.face import LINGER_MS, SECONDS, TIMEOUT_MS, Fenced, Found, Member, Producer, Refused, pythonic_consumer


class _Loop:
    """An event loop in a thread of its own, for all aiokafka objects of a test process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Raises Refused, Fenced."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as failure:
            raise Fenced(repr(failure)) from failure
        except aiokafka.errors.KafkaError as failure:
            raise Refused(repr(failure)) from failure


class AiokafkaProducer:
    """aiokafka's."""

    def __init__(self, loop: _Loop, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._sent: list[asyncio.Future[Any]] = []

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                linger_ms=LINGER_MS,
            )
            await producer.start()
            return producer

        self._producer = loop.run(start())

    def begin(self) -> None:
        self._sent.clear()
        self._loop.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, *values: str) -> None:
        async def work() -> None:
            self._sent.extend([await self._producer.send(topic, value.encode(), partition=partition) for value in values])

        self._loop.run(work())

    def flush(self) -> None:
        async def work() -> None:
            await asyncio.gather(*self._sent)

        self._loop.run(work())

    def send_offsets(self, member: Any, topic: str, partition: int, offset: int) -> None:
        offsets = {aiokafka.TopicPartition(topic, partition): offset}
        self._loop.run(self._producer.send_offsets_to_transaction(offsets, member.group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        with suppress(Refused):
            self._loop.run(self._producer.stop())


class AiokafkaMember:
    """aiokafka's."""

    def __init__(self, loop: _Loop, bootstrap: str, topic: str, group: str) -> None:
        self._loop = loop
        self.group = group

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(topic, **pythonic_consumer(bootstrap, group, committed=True))
            await consumer.start()
            return consumer

        self._consumer = loop.run(start())

    def poll(self) -> list[Found]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=100))
        return [Found(each.partition, each.offset, each.value.decode()) for part in found.values() for each in part]

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class AiokafkaClient:
    """aiokafka."""

    name = "aiokafka"
    _loop: _Loop | None = None

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        AiokafkaClient._loop = self._own_loop = AiokafkaClient._loop or _Loop()

    def producer(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Producer:
        return AiokafkaProducer(self._own_loop, self._bootstrap, transactional_id, timeout_ms)

    def member(self, topic: str, group: str) -> Member:
        return AiokafkaMember(self._own_loop, self._bootstrap, topic, group)

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Found]:
        async def work() -> list[Found]:
            async with aiokafka.AIOKafkaConsumer(**pythonic_consumer(self._bootstrap, None, committed=committed)) as consumer:
                assigned = [aiokafka.TopicPartition(topic, partition) for partition in range(partitions)]
                consumer.assign(assigned)
                ends = await consumer.end_offsets(assigned)
                await consumer.seek_to_beginning(*assigned)
                found: list[Found] = []
                while any([await consumer.position(each) < ends[each] for each in assigned]):
                    for part in (await consumer.getmany(timeout_ms=100)).values():
                        found += [Found(each.partition, each.offset, each.value.decode()) for each in part]
                return found

        return cast("list[Found]", self._own_loop.run(work()))
