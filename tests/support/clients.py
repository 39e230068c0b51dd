"""Wraps four real clients in one interface, so that one test covers all of them.

Each call opens the client and closes it again: an open client would hide how a broker treats a new connection. Records are written to one
partition, and read up to the end that the partition had when the reading began. `ADMINS` are the clients that can also administer; kcat
cannot.
"""

import asyncio
import json
import subprocess
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, Protocol

import aiokafka
import aiokafka.admin
import confluent_kafka as confluent
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaResourceType
from confluent_kafka import admin as confluent_admin

with warnings.catch_warnings():  # kafka-python reads its schemas through a function that Python 3.11 wants replaced
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.admin

SECONDS = 90
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LARGE = 8 * 1024 * 1024
_AIOKAFKA_TOPIC = AiokafkaResourceType.TOPIC


class Record(NamedTuple):
    """A record of a producer; a consumer also finds offset and timestamp."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """The parts that the producer decided."""
        return self.value, self.key, self.headers


class Reading(NamedTuple):
    """Where a consumer begins: an offset, or the first record with at least this timestamp."""

    offset: int = 0
    timestamp: int | None = None
    committed: bool = False


FROM_THE_START = Reading()


class Client(Protocol):
    """The operations of every client."""

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        """Write to partition 0 and wait until all is delivered. Raises when the broker refuses."""

    def consume(self, topic: str, reading: Reading = FROM_THE_START) -> list[Record]:
        """Read partition 0 to its end."""

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        """Subscribe, read that many records from where the group is (from the start at first), commit, leave."""


class Admin(Client, Protocol):
    """A client that administers as well."""

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> dict[str, int]:
        """Names and numbers of partitions."""

    def grow(self, topic: str, partitions: int) -> None: ...
    def alter_config(self, topic: str, config: dict[str, str]) -> None: ...
    def config(self, topic: str) -> dict[str, str | None]: ...
    def delete_records(self, topic: str, before: int) -> int:
        """Of partition 0; the log start offset afterwards."""


class ConfluentClient:
    """confluent-kafka, which is librdkafka."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = confluent_admin.AdminClient(dict(self._bootstrap))  # what it was asked ends when it is collected

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        config = {"compression.type": codec, "acks": acks, "enable.idempotence": idempotent, "message.max.bytes": _LARGE, "linger.ms": 20}
        producer = confluent.Producer({**self._bootstrap, **config})
        failures: list[Any] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                timestamp=record.timestamp or 0,
                headers=list(record.headers),
            )
        assert producer.flush(SECONDS) == 0
        if failures:
            raise confluent.KafkaException(failures[0])

    def consume(self, topic: str, reading: Reading = FROM_THE_START) -> list[Record]:
        consumer = self._consumer("unused", reading.committed)
        partition = confluent.TopicPartition(topic, 0, reading.offset)
        if reading.timestamp is not None:
            (partition,) = consumer.offsets_for_times([confluent.TopicPartition(topic, 0, reading.timestamp)], SECONDS)
        consumer.assign([partition])
        found = []
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == confluent.KafkaError._PARTITION_EOF, message.error()
                break
            found.append(self._record(message))
        consumer.close()
        return found

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(group, False)
        consumer.subscribe([topic])
        found: list[Record] = []
        while len(found) < count:
            messages = consumer.consume(1, SECONDS)
            assert messages, f"only {len(found)} records came"
            found += [self._record(message) for message in messages if message.error() is None]
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        self._admin.create_topics([confluent_admin.NewTopic(topic, partitions, 1, config=config or {})])[topic].result(SECONDS)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(SECONDS)

    def topics(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=SECONDS).topics.items()}

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([confluent_admin.NewPartitions(topic, partitions)])[topic].result(SECONDS)

    def alter_config(self, topic: str, config: dict[str, str]) -> None:
        entries = [
            confluent_admin.ConfigEntry(name, value, incremental_operation=confluent_admin.AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = confluent_admin.ConfigResource(confluent_admin.ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def config(self, topic: str) -> dict[str, str | None]:
        resource = confluent_admin.ConfigResource(confluent_admin.ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in self._admin.describe_configs([resource])[resource].result(SECONDS).items()}

    def delete_records(self, topic: str, before: int) -> int:
        partition = confluent.TopicPartition(topic, 0, before)
        return self._admin.delete_records([partition])[partition].result(SECONDS).low_watermark

    def offsets(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """Log start and end offset of each partition."""
        ends = []
        for spec in (confluent_admin.OffsetSpec.earliest(), confluent_admin.OffsetSpec.latest()):
            asked = self._admin.list_offsets({confluent.TopicPartition(topic, partition): spec for partition in range(partitions)})
            ends.append({partition.partition: found.result(SECONDS).offset for partition, found in asked.items()})
        return [(ends[0][partition], ends[1][partition]) for partition in range(partitions)]

    def _consumer(self, group: str, committed: bool) -> confluent.Consumer:
        config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        eof = {"enable.partition.eof": True, "isolation.level": "read_committed" if committed else "read_uncommitted"}
        return confluent.Consumer({**self._bootstrap, **config, **eof})

    @staticmethod
    def _record(message: confluent.Message) -> Record:
        return Record(message.value(), message.key(), tuple(message.headers() or ()), message.timestamp()[1], message.offset())


def _producer_config(codec: str, acks: str, idempotent: bool) -> dict[str, Any]:
    """For kafka-python and aiokafka, whose names of options are the same."""
    return {
        "compression_type": None if codec == "none" else codec,
        "acks": acks if acks == "all" else int(acks),
        "enable_idempotence": idempotent,
        "max_request_size": _LARGE,
        "linger_ms": 20,
    }


class KafkaPythonClient:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap_servers": bootstrap}

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        config = _producer_config(codec, acks, idempotent)
        producer = kafka.KafkaProducer(**self._bootstrap, **config)
        sent = [producer.send(topic, r.value, r.key, list(r.headers), 0, r.timestamp) for r in records]
        producer.flush(SECONDS)
        for future in sent:
            future.get(SECONDS)
        producer.close()

    def consume(self, topic: str, reading: Reading = FROM_THE_START) -> list[Record]:
        consumer = self._consumer(None, reading.committed)
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        start = reading.offset
        if reading.timestamp is not None:
            found_offset = consumer.offsets_for_times({partition: reading.timestamp})[partition]
            start = end if found_offset is None else found_offset.offset
        consumer.seek(partition, start)
        found = []
        while consumer.position(partition) < end:
            polled = consumer.poll(SECONDS * 1000)
            assert polled
            found += [self._record(record) for record in polled[partition]]
        consumer.close()
        return found

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(group, False)
        consumer.subscribe([topic])
        found: list[Record] = []
        while len(found) < count:
            for records in consumer.poll(SECONDS * 1000, max_records=count - len(found)).values():
                found += [self._record(record) for record in records]
        consumer.commit()
        consumer.close()
        return found

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        with self._admin() as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}})

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> dict[str, int]:
        with self._admin() as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    def grow(self, topic: str, partitions: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: partitions})

    def alter_config(self, topic: str, config: dict[str, str]) -> None:
        with self._admin() as admin:
            told = admin.alter_configs([kafka.admin.ConfigResource("TOPIC", topic, config)])["topic"][topic]
        if told is not None and "Error" in str(told):
            raise ValueError(told)

    def config(self, topic: str) -> dict[str, str | None]:
        with self._admin() as admin:
            described = admin.describe_configs([kafka.admin.ConfigResource("TOPIC", topic)], config_filter="all")
            return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    def delete_records(self, topic: str, before: int) -> int:
        partition = kafka.TopicPartition(topic, 0)
        with self._admin() as admin:
            return admin.delete_records({partition: before})[partition]["low_watermark"]

    def _admin(self) -> kafka.KafkaAdminClient:
        return kafka.KafkaAdminClient(**self._bootstrap)

    def _consumer(self, group: str | None, committed: bool) -> kafka.KafkaConsumer:
        level = "read_committed" if committed else "read_uncommitted"
        return kafka.KafkaConsumer(
            **self._bootstrap, group_id=group, isolation_level=level, enable_auto_commit=False, auto_offset_reset="earliest"
        )

    @staticmethod
    def _record(record: Any) -> Record:
        return Record(record.value, record.key, tuple(record.headers), record.timestamp, record.offset)


class AiokafkaClient:
    """aiokafka, each call on an event loop of its own."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap_servers": bootstrap}

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        config = _producer_config(codec, acks, idempotent)

        async def work() -> None:
            async with aiokafka.AIOKafkaProducer(**self._bootstrap, **config) as producer:
                sent = [await producer.send(topic, r.value, r.key, 0, r.timestamp, list(r.headers)) for r in records]
                await asyncio.gather(*sent)

        asyncio.run(work())

    def consume(self, topic: str, reading: Reading = FROM_THE_START) -> list[Record]:
        async def work() -> list[Record]:
            partition = aiokafka.TopicPartition(topic, 0)
            async with self._consumer(None, reading.committed) as consumer:
                consumer.assign([partition])
                end = (await consumer.end_offsets([partition]))[partition]
                start = reading.offset
                if reading.timestamp is not None:
                    found_offset = (await consumer.offsets_for_times({partition: reading.timestamp}))[partition]
                    start = end if found_offset is None else found_offset.offset
                consumer.seek(partition, start)
                found: list[Record] = []
                while await consumer.position(partition) < end:
                    polled = await consumer.getmany(partition, timeout_ms=SECONDS * 1000)
                    assert polled
                    found += [self._record(record) for record in polled[partition]]
                return found

        return asyncio.run(work())

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        async def work() -> list[Record]:
            async with self._consumer(group, False) as consumer:
                consumer.subscribe([topic])
                found: list[Record] = []
                while len(found) < count:
                    for records in (await consumer.getmany(timeout_ms=SECONDS * 1000, max_records=count - len(found))).values():
                        found += [self._record(record) for record in records]
                await consumer.commit()
                return found

        return asyncio.run(work())

    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        new = aiokafka.admin.NewTopic(topic, partitions, 1, topic_configs=config or {})
        self._raise_errors(self._administer(lambda admin: admin.create_topics([new])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        self._raise_errors(self._administer(lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def topics(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._administer(lambda admin: admin.describe_topics())}

    def grow(self, topic: str, partitions: int) -> None:
        counts = {topic: aiokafka.admin.NewPartitions(partitions)}
        self._raise_errors(self._administer(lambda admin: admin.create_partitions(counts)).topic_errors)

    def alter_config(self, topic: str, config: dict[str, str]) -> None:
        resource = AiokafkaResource(_AIOKAFKA_TOPIC, topic, config)
        (answer,) = self._administer(lambda admin: admin.alter_configs([resource]))
        self._raise_errors([(name, code) for code, _, _, name in answer.resources])

    def config(self, topic: str) -> dict[str, str | None]:
        resource = AiokafkaResource(_AIOKAFKA_TOPIC, topic)
        (answer,) = self._administer(lambda admin: admin.describe_configs([resource]))
        ((code, _, _, name, entries),) = answer.resources
        self._raise_errors([(name, code)])
        return {entry[0]: entry[1] for entry in entries}

    def delete_records(self, topic: str, before: int) -> int:
        partition = aiokafka.TopicPartition(topic, 0)
        asked = {partition: aiokafka.admin.RecordsToDelete(before)}
        return self._administer(lambda admin: admin.delete_records(asked))[partition]

    def _administer(self, action: Callable[[aiokafka.admin.AIOKafkaAdminClient], Coroutine[Any, Any, Any]]) -> Any:
        async def work() -> Any:
            admin = aiokafka.admin.AIOKafkaAdminClient(**self._bootstrap)
            await admin.start()
            try:
                return await action(admin)
            finally:
                await admin.close()

        return asyncio.run(work())

    def _consumer(self, group: str | None, committed: bool) -> aiokafka.AIOKafkaConsumer:
        level = "read_committed" if committed else "read_uncommitted"
        return aiokafka.AIOKafkaConsumer(
            **self._bootstrap, group_id=group, isolation_level=level, enable_auto_commit=False, auto_offset_reset="earliest"
        )

    @staticmethod
    def _raise_errors(outcomes: Iterable[Sequence[Any]]) -> None:
        for name, code, *_ in outcomes:
            if code:
                raise aiokafka.errors.for_code(code)(name)

    @staticmethod
    def _record(record: Any) -> Record:
        return Record(record.value, record.key, tuple(record.headers), record.timestamp, record.offset)


class KcatClient:
    """kcat: text keys and values without line ends or tabs, and no timestamps of its own."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        options = ["-p", "0", "-K", "\\t", "-Z", "-z", codec, "-X", f"acks={acks}", "-X", f"message.max.bytes={_LARGE}"]
        if idempotent:
            options += ["-X", "enable.idempotence=true"]
        for headers, alike in groupby(records, lambda record: record.headers):
            marks = [argument for name, value in headers for argument in ("-H", f"{name}={(value or b'').decode()}")]
            lines = b"".join((record.key or b"") + b"\t" + (record.value or b"") + b"\n" for record in alike)
            self.run("-P", "-t", topic, *options, *marks, input=lines)

    def consume(self, topic: str, reading: Reading = FROM_THE_START) -> list[Record]:
        start = str(reading.offset) if reading.timestamp is None else f"s@{reading.timestamp}"
        level = "read_committed" if reading.committed else "read_uncommitted"
        said = self.run(
            "-C", "-t", topic, "-p", "0", "-o", start, "-e", "-J", "-X", f"isolation.level={level}", "-X", "fetch.wait.max.ms=20"
        )
        return [self._record(line) for line in said.splitlines()]

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        options = ("-X", "auto.offset.reset=earliest", "-c", str(count), "-J")
        return [self._record(line) for line in self.run("-G", group, *options, topic).splitlines()]

    def run(self, *arguments: str, input: bytes = b"") -> str:
        """Any mode of kcat; what it prints. Raises when it fails."""
        done = subprocess.run(["kcat", "-b", self._bootstrap, *arguments], input=input, capture_output=True, timeout=SECONDS, check=False)
        if done.returncode != 0:
            raise KcatFailed(done.stderr.decode())
        return done.stdout.decode()

    @staticmethod
    def _record(line: str) -> Record:
        told = json.loads(line)
        value, key = (None if text is None else text.encode() for text in (told["payload"], told["key"]))
        flat = [text.encode() for text in told.get("headers", [])]
        headers = tuple((name.decode(), value) for name, value in zip(flat[::2], flat[1::2], strict=True))
        return Record(value, key, headers, told["ts"], told["offset"])


class KcatFailed(Exception):
    """kcat failed; the text is its standard error."""


def read_all(bootstrap: str, partitions: Iterable[tuple[str, int]], level: str = "read_uncommitted") -> dict[tuple[str, int], list[Record]]:
    """Every one of these partitions to its end, by one consumer."""
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True, "isolation.level": level}
    consumer = confluent.Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
    found: dict[tuple[str, int], list[Record]] = {partition: [] for partition in partitions}
    consumer.assign([confluent.TopicPartition(topic, partition, confluent.OFFSET_BEGINNING) for topic, partition in found])
    at_end: set[tuple[str, int]] = set()
    while at_end != found.keys():
        message = consumer.poll(30)
        assert message is not None, found.keys() - at_end
        partition = (message.topic(), message.partition())
        if message.error() is None:
            headers = tuple(message.headers() or ())
            found[partition].append(Record(message.value(), message.key(), headers, message.timestamp()[1], message.offset()))
        else:
            assert message.error().code() == confluent.KafkaError._PARTITION_EOF, message.error()
            at_end.add(partition)
    consumer.close()
    return found


class Clients:
    """By name, for `pytest.mark.parametrize`."""

    all: ClassVar[dict[str, type[Client]]] = {c.name: c for c in (ConfluentClient, KafkaPythonClient, AiokafkaClient, KcatClient)}
    admins: ClassVar[dict[str, type[Admin]]] = {c.name: c for c in (ConfluentClient, KafkaPythonClient, AiokafkaClient)}
