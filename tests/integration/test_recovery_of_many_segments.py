"""A killed broker checks more segments than it may open files, and starts in no other way than with a high limit.

All segments count as unflushed: the checkpoint is removed, if a slow machine has taken so long that there is one.
"""

import os
import resource
import signal
import time
from pathlib import Path

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.broker_process import a_broker
from tests.support.segment_files import batch_headers
from tests.support.serve_command import serving
from tests.support.wire_client import WireClient, a_wire_client

SEGMENT_BYTES = 1000
LATEST = -1
START_SECONDS = 600.0
"""A busy machine takes minutes for ten thousand segments."""


def write_segments(client: WireClient, topic: str, count: int) -> None:
    """A topic with so many segments of one batch each."""
    config = [CreatableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES))]
    created = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=config)
    assert client.ask(CreateTopicsRequest(topics=[created], timeout_ms=60_000), 5).topics[0].error_code == 0
    batch = bytes(a_batch(1, value_bytes=SEGMENT_BYTES * 3 // 4))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data])
    for _ in range(count):
        assert client.ask(request, 7).responses[0].partition_responses[0].error_code == 0


def end_of(client: WireClient, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return int(client.ask(request, 5).topics[0].partitions[0].offset)


def killed_with(directory: Path, segments: int) -> Path:
    """The data of a broker that was killed with so many unflushed segments."""
    with a_broker(directory, log_retention_ms=-1) as broker:
        with a_wire_client(broker.port) as client:
            write_segments(client, "topic", segments)
        broker.kill()
        (broker.data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    assert len(list((broker.data / "topic-0").glob("*.log"))) == segments
    return broker.data


def recovered(directory: Path, data: Path, segments: int, limit: int) -> float:
    """Starts a broker that may open `limit` files; it has all records. Returns the seconds until it listens, and kills it."""
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={data}", "log.retention.ms=-1"]
    began = time.monotonic()
    with serving(directory, *settings, script=f'ulimit -n {limit}; exec "$@"', start_seconds=START_SECONDS) as broker:
        seconds = time.monotonic() - began
        with a_wire_client(broker.ports[0]) as client:
            assert end_of(client, "topic") == segments
        assert "after a crash: checking the unflushed part" in broker.log()
        assert "offline" not in broker.log()
        broker.signal(signal.SIGKILL)
    assert len(batch_headers(data / "topic-0")) == segments
    return seconds


@pytest.mark.slow
def test_a_killed_broker_with_more_segments_than_it_may_open_files_starts_with_all_records(tmp_path: Path) -> None:
    segments = 400
    data = killed_with(tmp_path / "killed", segments)
    recovered(tmp_path, data, segments, limit=96)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_segments_are_recovered_with_256_files_as_with_65536(tmp_path: Path) -> None:
    segments = 10_000
    data = killed_with(tmp_path / "killed", segments)
    high = 65_536 if os.geteuid() == 0 else min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for limit in (256, high) * 3:
        print(f"{segments} segments with {limit} files: ready after {recovered(tmp_path, data, segments, limit):.1f} s")
