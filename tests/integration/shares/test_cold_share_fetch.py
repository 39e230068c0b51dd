"""A share fetch meets pages that are not in memory, or cannot be read, and connections that are lost meanwhile."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.handlers.shares import waiting_fetch
from ottla.coordination.shares import leader
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.segment.cold_lookups import ColdRead
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize, produce
from tests.support.wire_client import WireClient, a_wire_client

GROUP_RESOURCE, SET = 32, 0
LONG_MS = 20_000
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"


class Page:
    """A page of an index that is not in memory."""

    path, position = "00.txnindex", 0

    def __init__(self, warm: Callable[[], None]) -> None:
        self.warm = warm


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessBroker]:
    """It does not look for lost connections by itself during a test."""
    monkeypatch.setattr(leader, "LOOK_MS", 3_600_000)
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with a_broker_in_process(tmp_path, share_coordinator_state_topic_num_partitions=1, **{"log.dirs": directories}) as started:
        yield started


@pytest.fixture
def member(client: WireClient) -> ShareMember:
    """A member with two partitions of a group that reads committed records, of which each has ten."""
    config = AlterableConfig(name="share.isolation.level", config_operation=SET, value="read_committed")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[config])
    assert client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    topic_id = create_topic(client, "t", 2)
    found = ShareMember(client, topic_id)
    for index in (0, 1):
        initialize(client, "g", topic_id, index)
        produce(client, "t", 10, index)
    return found


def make_cold(monkeypatch: pytest.MonkeyPatch, warm: Callable[[], None]) -> None:
    """Aborted transactions of partition 0 are looked up in a page that is not in memory."""
    look_up = waiting_fetch.with_aborted

    def cold(log: Any, *arguments: Any) -> Any:
        if log.topic_partition.partition == 0:
            raise ColdRead(TopicPartition("t", 0), cast("Any", Page(warm)))
        return look_up(log, *arguments)

    monkeypatch.setattr(waiting_fetch, "with_aborted", cold)


def test_a_page_that_cannot_be_read_is_answered_at_once(member: ShareMember, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad_block() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    make_cold(monkeypatch, bad_block)
    began = time.monotonic()
    found = member.fetch(0, max_wait_ms=LONG_MS)
    assert time.monotonic() - began < LONG_MS / 2000
    assert found[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_whose_pages_stay_cold_does_not_keep_a_fetch_from_the_others(
    member: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch, lambda: time.sleep(0.01))
    found = member.fetch(0, 1, max_wait_ms=300)
    assert [(each.first_offset, each.last_offset) for each in found[1].acquired_records] == [(0, 9)]
    assert found[0].error_code == ErrorCode.NONE
    assert not found[0].acquired_records


def test_the_session_of_a_lost_connection_ends_with_its_fetch(broker: InProcessBroker, client: WireClient, member: ShareMember) -> None:
    member.acquire(0)

    def sessions() -> int:
        return int(broker.run(lambda: len(broker.services.coordinators.share_leader.sessions)))

    with a_wire_client(broker.port, seconds=0.5) as second, pytest.raises(TimeoutError):
        ShareMember(second, member.topic_id, OTHER).acquire(0, max_wait_ms=60_000)
    eventually(lambda: sessions() == 1, seconds=5.0)
