"""Members of share groups acquire records that are in the remote store only, and never see an error that only followers know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.broker.handlers.shares import waiting_fetch
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.coordination.shares.extents import Extents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import iter_records
from ottla.replication.reading import remote_read
from ottla.storage.log import lookups
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.transaction_index import AbortedTransaction
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.several_brokers import until
from tests.support.share_members import ShareMember, initialize
from tests.support.wire_client import WireClient

RECORDS = 200
VALUE = b"v" * 500
TOPIC = {"remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "remote.log.manager.task.interval.ms": "100",
    "remote.fetch.max.wait.ms": "1000",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    found = tmp_path / "shared"
    found.mkdir()
    return found


@pytest.fixture
def broker(tmp_path: Path, shared: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path / "logs", **SETTINGS, **{"rsm.config.dir": str(shared)}) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(30)
        yield started


def produce(broker: InProcessBroker, count: int = RECORDS, *, commits: bool | None = None) -> None:
    """Sends records, five in a batch; in a transaction that commits or aborts, if that is said."""
    transactional = {} if commits is None else {"transactional.id": "x"}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "batch.num.messages": 5, **transactional})
    if commits is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for _ in range(count):
        producer.produce("t", VALUE, partition=0)
    assert producer.flush(30) == 0
    if commits is not None:
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)


def local_start(broker: InProcessBroker) -> int:
    partition = broker.services.data.replica_manager.partitions["t"][0]
    found: int = broker.run(lambda: partition.log.local_log_start_offset)
    return found


def a_member(client: WireClient) -> ShareMember:
    """A member of a group whose share partition begins at the log start."""
    answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    topic_id: bytes = answer.topics[0].topic_id
    initialize(client, "g", topic_id)
    member = ShareMember(client, topic_id)
    member.fetch(0, max_wait_ms=0, max_records=0, max_bytes=0)
    return member


def acquire_all(member: ShareMember, end: int) -> tuple[list[int], list[int]]:
    """The offsets acquired up to `end`, and those of the records that were sent, in the order of the answers."""
    acquired: list[int] = []
    sent: list[int] = []
    fetches = 0
    while not acquired or acquired[-1] < end - 1:
        fetches += 1
        assert fetches < 500, acquired
        for found in member.fetch(max_wait_ms=1000, max_bytes=7000).values():
            assert found.error_code == 0
            for each in found.acquired_records:
                acquired += range(each.first_offset, each.last_offset + 1)
            data = bytes(found.records)
            for at, header in iter_batches(data):
                if not header.is_control:
                    records = list(iter_records(data, at, header))
                    assert all(record.value == VALUE for record in records)
                    sent += [record.offset for record in records]
    return acquired, sent


def test_a_member_acquires_all_records_from_the_log_start_on(broker: InProcessBroker, client: WireClient) -> None:
    produce(broker)
    until(lambda: local_start(broker) > RECORDS // 2)
    member = a_member(client)
    acquired, sent = acquire_all(member, RECORDS)
    assert acquired == sent == list(range(RECORDS))
    remote = broker.services.remote
    assert remote is not None
    assert remote.storage.counters.of("t").remote_fetch_bytes > 10_000


def read_committed(broker: InProcessBroker) -> None:
    """Has the group get records of committed transactions alone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    isolation = ConfigEntry("share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[isolation])
    for done in admin.incremental_alter_configs([group]).values():
        done.result(30)


@pytest.mark.parametrize("where", ["here", "in the store"])
def test_a_fetch_looks_at_few_aborted_transactions(
    where: str, broker: InProcessBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Counted(Extents):
        def __init__(self, region: FileRegion, aborted: Sequence[AbortedTransaction]) -> None:
            super().__init__(region, aborted)
            seen.append(len(aborted))

    monkeypatch.setattr(waiting_fetch, "Extents", Counted)
    for module in (lookups, remote_read):
        monkeypatch.setattr(module, "MOST_ABORTED", 3)
    read_committed(broker)
    for _ in range(12):
        produce(broker, 1, commits=False)
    produce(broker, 80 if where == "in the store" else 1)
    until(lambda: (local_start(broker) > 24) is (where == "in the store"))
    acquired, _ = acquire_all(a_member(client), 25)
    assert acquired[0] == 24
    assert max(seen) == 3


def test_records_of_aborted_transactions_in_the_store_are_not_acquired(broker: InProcessBroker, client: WireClient) -> None:
    read_committed(broker)
    produce(broker, 30, commits=True)  # and a marker
    produce(broker, 100, commits=False)
    produce(broker, 30, commits=True)
    until(lambda: local_start(broker) > 131)
    acquired, _ = acquire_all(a_member(client), 162)
    assert acquired == [*range(30), *range(132, 162)]


def test_a_store_without_the_records_is_a_storage_error_at_the_end_of_the_wait(
    broker: InProcessBroker, client: WireClient, shared: Path
) -> None:
    produce(broker)
    until(lambda: local_start(broker) > RECORDS // 2)
    for path in shared.rglob("*.log"):
        path.unlink()
    member = a_member(client)
    found: dict[int, Any] = member.fetch(max_wait_ms=10)
    assert found[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not found[0].acquired_records
