"""A disk becomes read-only while the broker runs, as Linux does with a file system that has errors: its directory goes offline."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ottla.broker.environment import Environment
from ottla.ephemeral.disk import DiskFaults, FaultyFileSystem
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from ottla.storage.disk.filesystem import File, RealFileSystem
from tests.support.admin_requests import a_topic, create
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

PARTITIONS = 4


class ReadOnly(DiskFaults):
    """Refuses each change below a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = str(directory)
        self.is_read_only = False

    def before_write(self, path: str) -> None:
        """See DiskFaults."""
        if self.is_read_only and path.startswith(self._directory):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class ReadOnlyFileSystem(FaultyFileSystem):
    """The real file system, with this fault."""

    def __init__(self, faults: ReadOnly) -> None:
        super().__init__(RealFileSystem(), faults)
        self._faults = faults

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """See FileSystem."""
        if not read_only:
            self._faults.before_write(path)
        return super().open(path, create=create, read_only=read_only)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self._faults.before_write(old)
        self._inner.rename(old, new)

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        self._faults.before_write(path)
        self._inner.unlink(path)

    def make_directory(self, path: str) -> None:
        """See FileSystem."""
        self._faults.before_write(path)
        self._inner.make_directory(path)


def write(client: WireClient, partition: int) -> ErrorCode:
    data = PartitionProduceData(index=partition, records=bytes(a_batch(1)))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    return ErrorCode(client.ask(request, 9).responses[0].partition_responses[0].error_code)


def records_of(client: WireClient, partition: int) -> int | ErrorCode:
    asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    answer = client.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[asked])]), 11)
    (found,) = answer.responses[0].partitions
    return ErrorCode(found.error_code) or sum(header.record_count for _, header in iter_batches(bytes(found.records or b"")))


def test_a_disk_that_becomes_read_only_costs_its_partitions_and_no_other(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    dirs = {"log_dirs": f"{good},{bad}"}
    faults = ReadOnly(bad)
    environment = Environment()
    environment.file_system = ReadOnlyFileSystem(faults)
    with a_broker_in_process(tmp_path, environment, **dirs) as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t", PARTITIONS))
        lost = sorted(int(path.name.rpartition("-")[2]) for path in bad.glob("t-?"))
        kept = sorted(set(range(PARTITIONS)) - set(lost))
        assert len(lost) == 2
        for _ in range(3):
            assert [write(client, partition) for partition in range(PARTITIONS)] == [ErrorCode.NONE] * PARTITIONS
        faults.is_read_only = True
        assert write(client, lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
        eventually(lambda: broker.run(lambda: list(broker.services.data.log_manager.offline_log_dirs)) == [str(bad)])
        assert write(client, lost[1]) != ErrorCode.NONE
        assert [write(client, partition) for partition in kept] == [ErrorCode.NONE] * 2
        assert [records_of(client, partition) for partition in kept] == [4] * 2
    with a_broker_in_process(tmp_path, **dirs) as broker, a_wire_client(broker.port) as client:
        eventually(lambda: [records_of(client, partition) for partition in lost] == [3] * 2)
        assert [records_of(client, partition) for partition in kept] == [4] * 2


def test_a_broker_whose_only_disk_becomes_read_only_ends(tmp_path: Path) -> None:
    faults = ReadOnly(tmp_path / "data")
    environment = Environment()
    environment.file_system = ReadOnlyFileSystem(faults)
    (tmp_path / "metadata").mkdir()
    config = {"log_dirs": tmp_path / "data", "ottla_metadata_file": tmp_path / "metadata" / "metadata.db"}
    with a_broker_in_process(tmp_path, environment, **config) as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t"))
        assert write(client, 0) == ErrorCode.NONE
        faults.is_read_only = True
        write(client, 0)
        eventually(lambda: broker.broker.failed)
