"""Sends offsets, markers and questions that no correct client or coordinator sends; the codes are those of Apache Kafka 3.9.1."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest

from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.integration.transactions.conftest import SECONDS, Topic, create_topic
from tests.support.broker_process import eventually
from tests.support.judged_broker import JudgedBroker, needs_its_broker
from tests.support.transaction_requests import Owner, Scene

pytestmark = needs_its_broker

MAX_METADATA = 4096
"""offset.metadata.max.bytes, by default."""


@pytest.fixture(scope="module")
def scene(broker: JudgedBroker) -> Iterator[Scene]:
    """A connection for all tests of the module."""
    with Scene(broker.port) as connected:
        connected.find_coordinators()
        yield connected


@pytest.fixture
def target(topic: Topic, scene: Scene) -> Iterator[str]:
    """A topic of which nothing is held back in the end."""
    made = topic()
    yield made
    eventually(lambda: scene.holds_nothing_back(made), 20, f"nothing of {made} is held back")


@pytest.fixture
def owner(scene: Scene, target: str, name: str) -> Iterator[Owner]:
    """A new producer; what it leaves open is aborted by a successor, before the target is looked at."""
    yield scene.owner(name)
    scene.owner(name)


def committed(scene: Scene, group: str, topic: str, *, stable: bool = True) -> tuple[int, E]:
    """The group's offset of partition 0, and the code beside it."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    (found,) = scene.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 9).groups[0].topics[0].partitions
    return found.committed_offset, E(found.error_code)


class Membership(NamedTuple):
    """The only member of a group, and its generation."""

    member_id: str
    generation_id: int
    instance_id: str | None


def join(scene: Scene, group: str, instance_id: str | None = None, member_id: str = "") -> Membership:
    """Become the group's only member."""
    found: list[Any] = []

    def is_in() -> bool:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=found[0].member_id if found else member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        found[:] = [scene.ask(request, 9)]
        return found[0].error_code == 0

    eventually(is_in, SECONDS, "the member is in")
    answer = found[0]
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")],
    )
    assert scene.ask(sync, 5).error_code == 0
    return Membership(answer.member_id, answer.generation_id, instance_id)


# ---- TxnOffsetCommit


def test_offsets_of_members_that_are_none_any_more_are_refused(scene: Scene, owner: Owner, target: str, name: str) -> None:
    member = join(scene, name)
    assert scene.add_offsets(owner, name) == E.NONE
    right = {"generation_id": member.generation_id, "member_id": member.member_id}

    assert scene.commit_offset(owner, name, target, offset=1, **right) == E.NONE
    assert scene.commit_offset(owner, name, target, offset=2, **right | {"generation_id": 7}) == E.ILLEGAL_GENERATION
    assert scene.commit_offset(owner, name, target, offset=3, **right | {"member_id": "zombie"}) == E.UNKNOWN_MEMBER_ID
    assert scene.commit_offset(owner, name, target, offset=4, **right, instance_id="nobody") == E.UNKNOWN_MEMBER_ID
    assert scene.commit_offset(owner, name, target, offset=5, member_id="zombie") == E.UNKNOWN_MEMBER_ID
    assert scene.commit_offset(owner, name, target, offset=6, generation_id=member.generation_id) == E.UNKNOWN_MEMBER_ID

    assert scene.end(owner, commit=True) == E.NONE
    scene.wait_until_completed(owner.transactional_id)
    assert committed(scene, name, target) == (1, E.NONE)


def test_a_static_member_that_was_replaced_is_fenced(scene: Scene, owner: Owner, target: str, name: str) -> None:
    first = join(scene, name, "one")
    second = join(scene, name, "one")
    assert first.member_id != second.member_id
    assert scene.add_offsets(owner, name) == E.NONE
    for offset, member, code in ((1, first, E.FENCED_INSTANCE_ID), (2, second, E.NONE)):
        found = scene.commit_offset(owner, name, target, offset=offset, **member._asdict())
        assert found == code
    assert scene.end(owner, commit=True) == E.NONE
    scene.wait_until_completed(owner.transactional_id)
    assert committed(scene, name, target) == (2, E.NONE)


def test_a_group_without_members_takes_offsets_of_no_generation(scene: Scene, owner: Owner, target: str, name: str) -> None:
    assert scene.add_offsets(owner, name) == E.NONE
    assert scene.commit_offset(owner, name, target, offset=1) == E.NONE
    assert scene.commit_offset(owner, name, target, offset=2, generation_id=3, member_id="m") == E.UNKNOWN_MEMBER_ID
    assert scene.end(owner, commit=True) == E.NONE
    scene.wait_until_completed(owner.transactional_id)
    assert committed(scene, name, target) == (1, E.NONE)


def test_offsets_of_topics_that_do_not_exist_are_refused(scene: Scene, owner: Owner, target: str, name: str, broker: JudgedBroker) -> None:
    gone = create_topic(broker, f"{name}.gone")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    assert scene.add_offsets(owner, name) == E.NONE
    assert scene.commit_offset(owner, name, gone, offset=1) == E.NONE
    admin.delete_topics([gone])[gone].result(SECONDS)
    eventually(
        lambda: scene.commit_offset(owner, name, gone, offset=2) == E.UNKNOWN_TOPIC_OR_PARTITION, SECONDS, "the topic is known to be gone"
    )
    assert scene.commit_offset(owner, name, target, partition=9) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.commit_offset(owner, name, "no-such-topic") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert scene.commit_offset(owner, name, target, offset=5) == E.NONE
    assert scene.end(owner, commit=True) == E.NONE
    scene.wait_until_completed(owner.transactional_id)
    assert committed(scene, name, target) == (5, E.NONE)


def test_metadata_may_not_be_too_long(scene: Scene, owner: Owner, target: str, name: str) -> None:
    assert scene.add_offsets(owner, name) == E.NONE
    assert scene.commit_offset(owner, name, target, metadata="m" * (MAX_METADATA + 1)) == E.OFFSET_METADATA_TOO_LARGE
    assert scene.commit_offset(owner, name, target, metadata="m" * MAX_METADATA) == E.NONE


def test_a_group_that_was_not_added_takes_no_offsets_of_the_transaction(scene: Scene, owner: Owner, target: str, name: str) -> None:
    assert scene.add(owner, target, 0) == [E.NONE]
    assert scene.commit_offset(owner, name, target, offset=1) == E.TRANSACTION_ABORTABLE
    assert scene.commit_offset(owner, name, target, offset=1, version=3) == E.INVALID_TXN_STATE
    assert committed(scene, name, target) == (-1, E.NONE)


def test_an_empty_group_id_is_taken_for_a_transaction_and_refused_for_offsets(scene: Scene, owner: Owner, target: str) -> None:
    scene.find_coordinators("")
    assert scene.add_offsets(owner, "") == E.NONE
    assert scene.commit_offset(owner, "", target) == E.INVALID_GROUP_ID


def test_pending_offsets_are_told_to_those_who_do_not_ask_for_stable_ones(scene: Scene, owner: Owner, target: str, name: str) -> None:
    assert scene.add_offsets(owner, name) == E.NONE
    assert scene.commit_offset(owner, name, target, offset=3) == E.NONE
    assert committed(scene, name, target) == (-1, E.UNSTABLE_OFFSET_COMMIT)
    assert committed(scene, name, target, stable=False) == (-1, E.NONE)
    assert scene.end(owner, commit=False) == E.NONE
    scene.wait_until_completed(owner.transactional_id)
    assert committed(scene, name, target) == (-1, E.NONE)


# ---- WriteTxnMarkers


def opened(scene: Scene, owner: Owner, topic: str) -> Owner:
    """The owner, with a record in partition 0."""
    assert scene.add(owner, topic, 0) == [E.NONE]
    assert scene.write(owner, topic) == E.NONE
    return owner


def test_a_marker_ends_the_transaction_of_the_partition_whoever_sends_it(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    assert scene.mark(owner, target, commit=False, coordinator_epoch=0) == [E.NONE]
    assert scene.open_transactions(target) == {}
    assert scene.holds_nothing_back(target)


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_an_older_epoch_is_refused_and_one_of_a_newer_or_unknown_producer_written(
    scene: Scene, owner: Owner, target: str, version: int
) -> None:
    second = opened(scene, scene.owner(owner.transactional_id), target)
    ends = [scene.end_offset(target, committed=False)]
    codes = []
    for each in (second.stranger(), second.older(), second.newer()):
        codes += scene.mark(each, target, commit=True, version=version)
        ends.append(scene.end_offset(target, committed=False))
    assert codes == [E.NONE, E.INVALID_PRODUCER_EPOCH, E.NONE]
    assert [later - earlier for earlier, later in pairwise(ends)] == [1, 0, 1]


def test_markers_of_partitions_that_are_not_here(scene: Scene, owner: Owner, target: str) -> None:
    assert scene.mark(owner, target, [0, 5, -1], commit=True) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert scene.mark(owner, "no-such-topic", commit=True) == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_marker_of_an_older_coordinator_is_fenced(scene: Scene, owner: Owner, topic: Topic) -> None:
    # The coordinator's own markers are fenced on this topic from now on, so that it is none that a test waits for.
    fenced = topic(".fenced")
    assert scene.mark(owner, fenced, commit=True, coordinator_epoch=5) == [E.NONE]
    assert scene.mark(owner, fenced, commit=True, coordinator_epoch=4) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert scene.mark(owner, fenced, commit=True, coordinator_epoch=5) == [E.NONE]
    assert scene.end_offset(fenced, committed=False) == 2


def test_no_markers_are_answered_with_none(scene: Scene) -> None:
    assert scene.ask(WriteTxnMarkersRequest(markers=[]), 1).markers == []


# ---- questions


def test_transactional_ids_that_are_unknown_or_empty_are_described_so(scene: Scene, owner: Owner) -> None:
    asked = DescribeTransactionsRequest(transactional_ids=["no-such-id", owner.transactional_id, "", "x" * 10_000])
    found = {each.transactional_id: E(each.error_code) for each in scene.ask(asked, 0).transaction_states}
    assert found == {
        "no-such-id": E.TRANSACTIONAL_ID_NOT_FOUND,
        owner.transactional_id: E.NONE,
        "": E.INVALID_REQUEST,
        "x" * 10_000: E.TRANSACTIONAL_ID_NOT_FOUND,
    }


def test_transactions_are_listed_by_state_producer_and_duration(scene: Scene, owner: Owner, target: str) -> None:
    def listed(version: int = 1, **filters: Any) -> set[str]:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        for key, value in filters.items():
            setattr(request, key, value)
        answer = scene.ask(request, version)
        assert answer.error_code == E.NONE
        assert answer.unknown_state_filters == [each for each in filters.get("state_filters", []) if each == "Nonsense"]
        return {each.transactional_id for each in answer.transaction_states} & {owner.transactional_id}

    mine = {owner.transactional_id}
    assert listed() == mine
    assert listed(state_filters=["Empty"]) == mine
    assert listed(state_filters=["Ongoing"]) == set()
    opened(scene, owner, target)
    assert listed(version=0, state_filters=["Ongoing", "PrepareAbort", "Nonsense"]) == mine
    assert listed(state_filters=["Nonsense"]) == set()
    assert listed(producer_id_filters=[owner.producer_id, 5_000_000]) == mine
    assert listed(producer_id_filters=[5_000_000]) == set()
    assert listed(duration_filter=600_000) == set()
    assert listed(duration_filter=-1) == mine
    eventually(lambda: listed(duration_filter=1, state_filters=["Ongoing"]) == mine, SECONDS, "it is open for longer than a millisecond")


def test_producers_of_partitions_that_are_not_here(scene: Scene, target: str) -> None:
    asked = [TopicRequest(name=target, partition_indexes=[0, 3, -1]), TopicRequest(name="no-such-topic", partition_indexes=[0])]
    found = scene.ask(DescribeProducersRequest(topics=asked), 0)
    codes = {(topic.name, each.partition_index): E(each.error_code) for topic in found.topics for each in topic.partitions}
    assert codes == {
        (target, 0): E.NONE,
        (target, 3): E.UNKNOWN_TOPIC_OR_PARTITION,
        (target, -1): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
