"""The isolation level of a share group counts from its change on, also at a leader that has not heard of the change yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from ottla.broker.handlers.shares import waiting_fetch
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize
from tests.support.wire_client import WireClient

GROUP_RESOURCE, SET = 32, 0
LEVEL = "share.isolation.level"
SECONDS = 30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, share_coordinator_state_topic_num_partitions=1, transaction_state_log_num_partitions=1) as started:
        yield started


@pytest.fixture
def member(broker: InProcessBroker, client: WireClient) -> ShareMember:
    """A member of a group that reads an aborted record at offset 0 and a committed one at offset 2."""
    topic_id = create_topic(client, "t")
    initialize(client, "g", topic_id)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "id"})
    producer.init_transactions(SECONDS)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("t", b"value")
        producer.flush(SECONDS)
        end(SECONDS)
    return ShareMember(client, topic_id)


def set_level(client: WireClient, level: str) -> None:
    config = AlterableConfig(name=LEVEL, config_operation=SET, value=level)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[config])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == 0


def forget_change(broker: InProcessBroker, former: str) -> None:
    """Let the leader know the former level, as before the notification of the change."""
    configs = broker.services.administration.group_configs.configs
    broker.run(configs.__setitem__, "g", {LEVEL: former})


def acquired(member: ShareMember) -> set[int]:
    found: set[int] = set()
    for _ in range(2):
        for first, last, _ in member.acquire(0, max_wait_ms=5_000 if not found else 0):
            found |= set(range(first, last + 1))
    return found


def test_aborted_records_are_hidden_from_a_group_that_reads_committed_ones(client: WireClient, member: ShareMember) -> None:
    set_level(client, "read_committed")
    assert acquired(member) == {2}


def test_aborted_records_are_not_archived_after_a_change_that_is_still_on_the_way(
    broker: InProcessBroker, client: WireClient, member: ShareMember
) -> None:
    set_level(client, "read_uncommitted")
    forget_change(broker, "read_committed")
    assert acquired(member) == {0, 2}


def test_a_fetch_goes_on_behind_what_it_archives(client: WireClient, member: ShareMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_fetch, "MOST_BATCHES", 1)
    set_level(client, "read_committed")
    assert member.acquire(0, max_wait_ms=2_000) == [(2, 2, 1)]
