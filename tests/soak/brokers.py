"""A round of random work on a broker process that is killed and stopped under it: nothing acknowledged is lost, nothing comes twice.

Batches are idempotent and are sent again after a crash, so every record has to be there exactly once and in order. One topic keeps
everything, one loses old segments, one is compacted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import Record
from tests.support.admin_requests import a_topic, create
from tests.support.batches import a_batch
from tests.support.broker_process import BrokerProcess
from tests.support.clients import read_all
from tests.support.wire_client import WireClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 30
TIMESTAMP = time.time_ns() // 1_000_000
"""Of today: a producer whose last batch is old expires, and what it sends again is new."""

BROKER = {
    "broker_id": 0,
    "log_segment_bytes": 20_000,
    "log_index_size_max_bytes": 8192,
    "log_index_interval_bytes": 500,
    "log_retention_check_interval_ms": 200,
    "log_initial_task_delay_ms": 100,
    "log_cleaner_backoff_ms": 200,
    "log_cleaner_dedupe_buffer_size": 4_000_000,
    "log_message_timestamp_before_max_ms": 2**63 - 1,
    "log_flush_offset_checkpoint_interval_ms": 300,
}
TOPICS = {
    "kept": {"retention.ms": "-1"},
    "short": {"retention.ms": "-1", "retention.bytes": "60000"},
    "compact": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "10000"},
}


class BrokerRound:
    """See the module. `directory` is empty."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = Random(seed)
        self.counts: Counter[str] = Counter()
        self.broker = BrokerProcess(directory, log_dirs=f"{directory}/a,{directory}/b", **BROKER)
        self.records: dict[str, list[tuple[bytes, bytes]]] = {topic: [] for topic in TOPICS}
        self.deleted: Counter[str] = Counter()

    def run(self, kills: int = 3) -> Counter[str]:
        """What was done, and how often. Raises AssertionError."""
        self.broker.start()
        try:
            client = WireClient(self.broker.port)
            create(client, *(a_topic(name, configs=configs) for name, configs in TOPICS.items()))
            for _ in range(kills):
                client = self._work(client)
                self._check()
            client.close()
            assert self.broker.stop() == 0
        finally:
            if self.broker.is_running:
                self.broker.kill()
        return self.counts

    def _work(self, client: WireClient) -> WireClient:
        """Writes until the broker is gone, however that comes; a client of the next one."""
        rng = self.rng
        how = rng.choice(["kill", "kill", "stop"])
        timer = threading.Timer(rng.uniform(0.2, 1.0), self.broker.kill if how == "kill" else self.broker.stop)
        timer.start()
        pending = None
        try:
            while True:
                topic = rng.choice(list(TOPICS))
                if rng.random() < 0.02 and topic != "compact":
                    self._delete_records(client, topic)
                pending = (topic, self._batch(topic))
                self._write(client, *pending)
                pending = None
        except (ConnectionError, OSError):
            timer.join()
        client.close()
        self.counts[how] += 1
        self.broker.start()
        client = WireClient(self.broker.port)
        if pending is not None:
            self.counts["sent again"] += 1
            self._write(client, *pending)
        return client

    def _batch(self, topic: str) -> list[tuple[bytes, bytes]]:
        start = len(self.records[topic])
        count = self.rng.randint(1, 20)
        return [(b"key-%d" % self.rng.randrange(KEYS), b"%d " % (start + at) + b"x" * self.rng.choice([0, 50, 200])) for at in range(count)]

    def _write(self, client: WireClient, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
        start = len(self.records[topic])
        records = [Record(at, TIMESTAMP + start + at, key, value) for at, (key, value) in enumerate(pairs)]
        batch = a_batch(records, self.rng.choice(CODECS), producer_id=7_000_000, base_sequence=start)
        data = PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        while True:
            result = client.ask(request, 9).responses[0].partition_responses[0]
            code = ErrorCode.of(result.error_code)
            if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
        assert code == ErrorCode.NONE, f"{topic}: {code.name} for records {start} to {start + len(pairs)}"
        assert result.base_offset == start, f"{topic}: offset {result.base_offset} where {start} was to come"
        self.records[topic] += pairs
        self.counts["batches"] += 1

    def _delete_records(self, client: WireClient, topic: str) -> None:
        end = len(self.records[topic])
        offset = self.rng.randint(min(self.deleted[topic], end), end)
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000)
        code = ErrorCode.of(client.ask(request, 2).topics[0].partitions[0].error_code)
        assert code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE), f"{topic}: {code.name}"
        self.deleted[topic] = max(self.deleted[topic], offset)
        self.counts["delete_records"] += 1

    def _check(self) -> None:
        found = read_all(self.broker.bootstrap, [(topic, 0) for topic in TOPICS])
        for topic in TOPICS:
            expected = self.records[topic]
            seen = [(record.offset or 0, record.key, record.value) for record in found[topic, 0]]
            offsets = [offset for offset, _, _ in seen]
            assert offsets == sorted(set(offsets)), f"{topic}: offsets out of order"
            assert all(expected[offset] == (key, value) for offset, key, value in seen), f"{topic}: another record than was written"
            if topic == "compact":
                latest = {key: offset for offset, (key, _) in enumerate(expected)}
                assert set(latest.values()) <= set(offsets), f"{topic}: the latest value of a key is gone"
            elif offsets:
                assert offsets == list(range(offsets[0], len(expected))), f"{topic}: a hole"
                assert topic != "kept" or offsets[0] <= self.deleted[topic], f"{topic}: {offsets[0]} is the first offset"
            else:
                assert self.deleted[topic] == len(expected) or topic == "short", f"{topic}: empty"
            self.counts["read"] += len(seen)
