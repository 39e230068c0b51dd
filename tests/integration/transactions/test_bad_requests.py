"""Sends requests that no correct producer, group member or coordinator sends; the codes are those of Apache Kafka 3.9.1.

After each of them the transaction is as it was, except where the case says otherwise, and in the end nothing holds a partition back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from tests.integration.transactions.conftest import Topic
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.judged_broker import JUDGED_BY_APACHE, JudgedBroker, needs_its_broker
from tests.support.transaction_requests import Owner, Scene

pytestmark = needs_its_broker

LONG = "x" * 10_000
MAX_TIMEOUT_MS = 900_000
"""transaction.max.timeout.ms, by default."""

VERY_MANY = 10_000 if JUDGED_BY_APACHE else 100_000
"""Partitions in a request; Apache Kafka takes half a minute and more for the larger number."""


@pytest.fixture(scope="module")
def scene(broker: JudgedBroker) -> Iterator[Scene]:
    """A connection for all tests of the module."""
    with Scene(broker.port) as connected:
        connected.find_coordinators()
        yield connected


@pytest.fixture
def target(topic: Topic, scene: Scene) -> Iterator[str]:
    """A topic of three partitions; in the end nothing of it is held back."""
    made = topic(partitions=3)
    yield made
    for partition in range(3):
        eventually(lambda partition=partition: scene.holds_nothing_back(made, partition), 20, f"nothing of {made}-{partition} is held back")


@pytest.fixture
def owner(scene: Scene, target: str, name: str) -> Iterator[Owner]:
    """A new producer; what it leaves open is aborted by a successor, before the target is looked at."""
    yield scene.owner(name)
    scene.owner(name)


def opened(scene: Scene, owner: Owner, topic: str) -> Owner:
    """The owner, with a record in partition 0."""
    assert scene.add(owner, topic, 0) == [E.NONE]
    assert scene.write(owner, topic) == E.NONE
    return owner


# ---- InitProducerId


def test_a_transactional_id_may_be_long_and_not_empty(scene: Scene, target: str) -> None:
    long = Owner(LONG, *scene.owner(LONG)[1:])
    opened(scene, long, target)
    assert scene.end(long, commit=True) == E.NONE
    assert scene.wait_until_completed(LONG).state == "CompleteCommit"
    for version in range(5):
        assert scene.init("", version=version).error_code == E.INVALID_REQUEST
    assert scene.describe("").error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1])
def test_a_timeout_must_be_between_one_and_the_maximum(scene: Scene, name: str, timeout_ms: int) -> None:
    assert scene.init(name, timeout_ms).error_code == E.INVALID_TRANSACTION_TIMEOUT
    assert scene.described(name) is None


def test_the_longest_timeout_is_taken(scene: Scene, name: str) -> None:
    assert scene.init(name, MAX_TIMEOUT_MS).error_code == E.NONE


def test_a_producer_id_and_an_epoch_come_together_or_not_at_all(scene: Scene, owner: Owner) -> None:
    before = scene.described(owner.transactional_id)
    for partial in (owner._replace(epoch=-1), owner._replace(producer_id=-1)):
        assert scene.init(owner.transactional_id, owner=partial).error_code == E.INVALID_REQUEST
    for negative in (owner._replace(epoch=-2), owner._replace(producer_id=-7)):
        assert scene.init(owner.transactional_id, owner=negative).error_code == E.PRODUCER_FENCED
    assert scene.described(owner.transactional_id) == before


def test_without_a_transactional_id_every_question_gets_a_new_producer_id(scene: Scene) -> None:
    given = [scene.init(None, timeout) for timeout in (60_000, 0, -1)]
    assert {each.error_code for each in given} == {E.NONE}
    assert {each.producer_epoch for each in given} == {0}
    assert len({each.producer_id for each in given}) == 3


def test_an_idempotent_producer_cannot_ask_for_a_producer_id_of_its_choice(scene: Scene) -> None:
    answer = scene.init(None, owner=Owner("", 4_000_000, 3))
    assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
    assert answer.producer_id != 4_000_000


# ---- AddPartitionsToTxn


def test_partitions_that_do_not_exist_keep_out_those_beside_them(scene: Scene, owner: Owner, target: str) -> None:
    before = scene.described(owner.transactional_id)
    topics = [AddPartitionsToTxnTopic(name=target, partitions=[0, 7, 1]), AddPartitionsToTxnTopic(name="no-such-topic", partitions=[0])]
    for version in (0, 3, 5):
        found = scene.add_topics(owner, topics, version=version)
        assert sorted(found) == sorted([E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION] * 2)
    assert scene.add(owner, target, -1) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert scene.described(owner.transactional_id) == before


def test_very_many_partitions_that_do_not_exist_are_all_refused(scene: Scene, owner: Owner, target: str) -> None:
    before = scene.described(owner.transactional_id)
    found = scene.add(owner, target, *range(VERY_MANY))
    assert found.count(E.OPERATION_NOT_ATTEMPTED) == 3
    assert found.count(E.UNKNOWN_TOPIC_OR_PARTITION) == VERY_MANY - 3 == len(found) - 3
    assert scene.described(owner.transactional_id) == before


def test_a_partition_may_be_added_twice_and_is_in_once(scene: Scene, owner: Owner, target: str) -> None:
    assert set(scene.add(owner, target, 0, 1, 0)) == {E.NONE}
    assert set(scene.add(owner, target, 1, 2)) == {E.NONE}
    described = scene.described(owner.transactional_id)
    assert described is not None
    assert described.partitions == ((target, 0), (target, 1), (target, 2))


def test_no_partitions_at_all_open_a_transaction(scene: Scene, owner: Owner, target: str) -> None:
    assert scene.add_topics(owner, []) == []
    described = scene.described(owner.transactional_id)
    assert described is not None
    assert described.state == "Ongoing"


def test_an_empty_transactional_id_owns_nothing(scene: Scene, target: str) -> None:
    nobody = Owner("", 5, 0)
    assert scene.add(nobody, target, 0) == [E.INVALID_REQUEST]
    assert scene.add_offsets(nobody, "g") == E.INVALID_REQUEST
    assert scene.end(nobody, commit=True) == E.INVALID_REQUEST


# ---- Produce


def test_only_a_partition_that_was_added_can_be_written_to(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    batch = bytes(a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=0, transactional=True))
    next_batch = bytes(a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=1, transactional=True))
    assert scene.produce(owner.transactional_id, target, {0: next_batch, 1: batch}) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert scene.produce(owner.transactional_id, target, {1: batch}, version=10) == [E.INVALID_TXN_STATE]
    assert scene.end_offset(target, 1, committed=False) == 0


def test_a_transactional_id_cannot_write_for_the_producer_of_another(scene: Scene, owner: Owner, target: str, name: str) -> None:
    other = scene.owner(f"{name}.other")
    opened(scene, other, target)
    batch = bytes(a_batch(1, producer_id=other.producer_id, producer_epoch=other.epoch, base_sequence=0, transactional=True))
    assert scene.produce(owner.transactional_id, target, {1: batch}) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert scene.end_offset(target, 1, committed=False) == 0
    assert scene.end(other, commit=True) == E.NONE


def test_a_transactional_batch_needs_a_transactional_id(scene: Scene, owner: Owner, target: str) -> None:
    batch = bytes(a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=0, transactional=True))
    assert scene.produce(None, target, {0: batch}) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert scene.produce("", target, {0: batch}) == [E.INVALID_REQUEST]
    assert scene.end_offset(target, committed=False) == 0


def test_a_producer_cannot_write_outside_its_transaction(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    outside = bytes(a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=1))
    assert scene.produce(owner.transactional_id, target, {0: outside}) == [E.INVALID_TXN_STATE]
    assert scene.end_offset(target, committed=False) == 1


def test_a_plain_batch_may_come_with_a_transactional_id(scene: Scene, owner: Owner, target: str) -> None:
    assert scene.produce(owner.transactional_id, target, {0: bytes(a_batch())}) == [E.NONE]


def test_control_batches_are_not_taken_from_clients(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    control = a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=1, transactional=True, control=True)
    assert scene.produce(owner.transactional_id, target, {0: bytes(control)}) == [E.INVALID_RECORD]
    assert scene.end_offset(target, committed=False) == 1


def test_two_producers_in_one_request_are_refused(scene: Scene, owner: Owner, target: str, name: str) -> None:
    other = scene.owner(f"{name}.other")
    assert scene.add(owner, target, 0) == [E.NONE]
    assert scene.add(other, target, 1) == [E.NONE]
    batches = {
        partition: bytes(a_batch(1, producer_id=each.producer_id, producer_epoch=each.epoch, base_sequence=0, transactional=True))
        for partition, each in enumerate((owner, other))
    }
    assert scene.produce(owner.transactional_id, target, batches) == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    scene.owner(other.transactional_id)


def test_sequences_are_checked_within_a_transaction(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    assert scene.write(owner, target, sequence=5) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert scene.write(owner, target, sequence=0) == E.NONE, "a duplicate is answered as the first was"
    assert scene.write(owner, target, sequence=1) == E.NONE
    assert scene.end_offset(target, committed=False) == 2


def test_a_late_record_of_a_transaction_that_has_ended_opens_no_other(scene: Scene, owner: Owner, target: str) -> None:
    opened(scene, owner, target)
    for commit in (True, False):
        assert scene.end(owner, commit=commit) == E.NONE
        scene.wait_until_completed(owner.transactional_id)
        assert scene.write(owner, target, sequence=1) == E.TRANSACTION_ABORTABLE
        assert scene.write(owner, target, sequence=1, version=10) == E.INVALID_TXN_STATE
        assert scene.open_transactions(target) == {}
        assert scene.add(owner, target, 1) == [E.NONE]
