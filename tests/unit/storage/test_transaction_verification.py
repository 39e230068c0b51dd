"""What a log demands of the batch that opens a transaction in it (KIP-890)."""

from __future__ import annotations

import pytest

from ottla.storage.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.state import MAX_EPOCH
from ottla.storage.producers.verification import MOST_VERIFICATIONS
from ottla.storage.validation.run import BatchRun
from tests.support.batches import a_batch, a_run
from tests.support.clocks import ManualClock
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import T0, a_context, a_log
from tests.support.transactions import a_marker_batch

PRODUCER = 5


def a_verifying_log(clock: ManualClock | None = None) -> PartitionLog:
    context = a_context(clock=clock)
    context.verifies_transactions = lambda: True
    return a_log(context)


def a_transactional_run(sequence: int = 0, epoch: int = 0, records: int = 1, producer_id: int = PRODUCER) -> BatchRun:
    return a_run(a_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True))


def append(log: PartitionLog, run: BatchRun, origin: int = AppendOrigin.CLIENT) -> BatchRun:
    log.append(run, 0, log.context.clock.now_ms(), origin)
    return run


def write(log: PartitionLog, sequence: int = 0, epoch: int = 0, guard: object = None) -> BatchRun:
    run = a_transactional_run(sequence, epoch)
    run.guard = guard
    return append(log, run)


def end_transaction(log: PartitionLog, epoch: int = 0) -> None:
    append(log, a_run(a_marker_batch(PRODUCER, epoch=epoch)), AppendOrigin.COORDINATOR)


def test_a_batch_that_nobody_verified_opens_no_transaction() -> None:
    log = a_verifying_log()
    with pytest.raises(InvalidTxnState):
        write(log)
    assert log.log_end_offset == 0
    assert log.active_producers() == []


def test_a_verified_batch_opens_it_and_those_that_follow_need_no_question() -> None:
    log = a_verifying_log()
    guard = log.begin_verification(PRODUCER, 0, 0)
    assert guard is not None
    write(log, guard=guard)
    assert log.begin_verification(PRODUCER, 1, 0) is None
    write(log, 1)
    assert log.log_end_offset == 2


def test_batches_that_ask_at_the_same_time_have_the_same_guard() -> None:
    log = a_verifying_log()
    assert log.begin_verification(PRODUCER, 0, 0) is log.begin_verification(PRODUCER, 1, 0)
    assert log.begin_verification(PRODUCER, 0, 0) is not log.begin_verification(PRODUCER + 1, 0, 0)


def test_a_marker_ends_what_was_verified_before_it() -> None:
    log = a_verifying_log()
    late = log.begin_verification(PRODUCER, 0, 0)
    end_transaction(log)
    with pytest.raises(InvalidTxnState):
        write(log, guard=late)
    # Nor does it help that the next transaction is being verified.
    guard = log.begin_verification(PRODUCER, 0, 0)
    with pytest.raises(InvalidTxnState):
        write(log, guard=late)
    assert write(log, guard=guard).first_offset == 1


def test_every_transaction_is_verified_anew() -> None:
    log = a_verifying_log()
    write(log, guard=log.begin_verification(PRODUCER, 0, 0))
    end_transaction(log)
    with pytest.raises(InvalidTxnState):
        write(log, 1)
    write(log, 1, guard=log.begin_verification(PRODUCER, 1, 0))


def test_a_batch_that_stands_in_the_log_is_recognised_without_a_question() -> None:
    log = a_verifying_log()
    write(log, guard=log.begin_verification(PRODUCER, 0, 0))
    end_transaction(log)
    again = write(log)
    assert (again.is_duplicate, again.first_offset) == (True, 0)


def test_a_batch_that_overtakes_one_that_was_not_verified_waits_for_it() -> None:
    log = a_verifying_log()
    guard = log.begin_verification(PRODUCER, 0, 0)
    assert log.begin_verification(PRODUCER, 1, 0) is guard
    with pytest.raises(OutOfOrderSequence):
        write(log, 1, guard=guard)
    write(log, 0, guard=guard)
    write(log, 1)


def test_a_lower_sequence_that_asks_later_counts() -> None:
    log = a_verifying_log()
    guard = log.begin_verification(PRODUCER, 3, 0)
    log.begin_verification(PRODUCER, 2, 0)
    with pytest.raises(OutOfOrderSequence):
        write(log, 3, guard=guard)


def test_the_sequences_of_a_newer_epoch_are_its_own() -> None:
    log = a_verifying_log()
    guard = log.begin_verification(PRODUCER, 0, 0)
    assert log.begin_verification(PRODUCER, 4, 1) is guard
    log.begin_verification(PRODUCER, 2, 0)
    write(log, 4, epoch=1, guard=guard)


def test_a_verified_batch_of_an_old_epoch_is_refused_for_its_epoch() -> None:
    log = a_verifying_log()
    write(log, epoch=2, guard=log.begin_verification(PRODUCER, 0, 2))
    end_transaction(log, epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        write(log, epoch=1, guard=log.begin_verification(PRODUCER, 0, 1))


def test_a_group_coordinator_needs_a_verification_as_well() -> None:
    log = a_verifying_log()
    run = a_transactional_run(sequence=-1)
    with pytest.raises(InvalidTxnState):
        append(log, run, AppendOrigin.COORDINATOR)
    run.guard = log.begin_verification(PRODUCER, -1, 0)
    append(log, run, AppendOrigin.COORDINATOR)


def test_a_batch_is_verified_although_its_log_moves_to_another_directory_meanwhile() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True, log_dir="/a")
    guard = log.begin_verification(PRODUCER, 0, 0)
    a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    disks.settle()
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_dir == "/b"
    write(moved, guard=guard)
    assert moved.log_end_offset == 1


def test_a_follower_asks_nobody() -> None:
    leader, follower = a_verifying_log(), a_verifying_log()
    write(leader, guard=leader.begin_verification(PRODUCER, 0, 0))
    region = leader.read(0, 1000, 1, True).region
    assert region is not None
    append(follower, BatchRun(memoryview(bytearray(region.read()))), AppendOrigin.REPLICATION)
    assert follower.begin_verification(PRODUCER, 1, 0) is None


def test_without_the_setting_nothing_is_verified() -> None:
    log = a_log()
    assert log.begin_verification(PRODUCER, 0, 0) is None
    write(log)


def test_plain_batches_of_a_producer_need_no_verification() -> None:
    log = a_verifying_log()
    append(log, a_run(a_batch(producer_id=PRODUCER)))
    assert log.log_end_offset == 1


def test_verifications_without_a_batch_end_with_the_producers() -> None:
    clock = ManualClock()
    log = a_verifying_log(clock)
    producers = log.producer_state
    producers.producer_id_expiration_ms = 1000
    late = log.begin_verification(PRODUCER, 0, 0)
    clock.move(500)
    guard = log.begin_verification(PRODUCER + 1, 0, 0)
    clock.move(500)
    producers.remove_expired_verifications(clock.now_ms())
    assert list(producers.state.verifications) == [PRODUCER + 1]
    assert log.begin_verification(PRODUCER + 1, 0, 0) is guard
    with pytest.raises(InvalidTxnState):
        write(log, guard=late)


def test_the_oldest_of_too_many_verifications_ends() -> None:
    log = a_verifying_log()
    for producer_id in range(MOST_VERIFICATIONS + 2):
        log.begin_verification(producer_id, 0, 0)
    verifications = log.producer_state.state.verifications
    assert len(verifications) == MOST_VERIFICATIONS
    assert min(verifications) == 2


# -- transactions of version 2 -----------------------------------------------------------------------------------------------


def mark(log: PartitionLog, epoch: int, *, raises_epoch: bool = True) -> None:
    run = a_run(a_marker_batch(PRODUCER, epoch=epoch))
    run.raises_epoch = raises_epoch
    append(log, run, AppendOrigin.COORDINATOR)


def begin(log: PartitionLog, epoch: int, sequence: int = 0) -> object:
    return log.begin_verification(PRODUCER, sequence, epoch, True)


def test_a_transaction_of_version_2_is_added_although_the_setting_is_off() -> None:
    log = a_log()
    assert begin(log, 0) is not None


def test_a_batch_of_an_old_epoch_is_refused_before_the_coordinator_is_asked() -> None:
    log = a_verifying_log()
    write(log, guard=begin(log, 0))
    mark(log, 1)
    with pytest.raises(InvalidProducerEpoch):
        begin(log, 0)
    with pytest.raises(InvalidProducerEpoch):
        write(log, 1)


def test_a_batch_that_was_added_before_the_marker_is_refused_for_its_epoch() -> None:
    log = a_verifying_log()
    late = begin(log, 0)
    mark(log, 1)
    with pytest.raises(InvalidProducerEpoch):
        write(log, guard=late)


def test_an_open_transaction_of_an_older_epoch_is_not_that_of_the_batch() -> None:
    log = a_verifying_log()
    write(log, guard=begin(log, 0))
    assert begin(log, 0, 1) is None
    assert begin(log, 1) is not None


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_marker_that_comes_once_more_leaves_the_verification_of_a_later_transaction(epoch: int) -> None:
    log = a_verifying_log()
    write(log, guard=begin(log, 0))
    mark(log, 1)
    guard = begin(log, epoch)
    mark(log, 1)
    write(log, epoch=epoch, guard=guard)
    with pytest.raises(InvalidProducerEpoch):
        mark(log, 1)  # it would end the transaction that is open now
    assert log.producer_state.state.has_open_transaction(PRODUCER)


def test_a_marker_of_version_2_needs_an_epoch_above_that_of_the_transaction() -> None:
    log = a_verifying_log()
    write(log, epoch=3, guard=begin(log, 3))
    with pytest.raises(InvalidProducerEpoch):
        mark(log, 3)
    mark(log, 3, raises_epoch=False)


def test_a_marker_of_the_largest_epoch_ends_what_no_greater_one_could() -> None:
    log = a_verifying_log()
    write(log, epoch=MAX_EPOCH, guard=begin(log, MAX_EPOCH))
    mark(log, MAX_EPOCH)
    assert not log.producer_state.state.has_open_transaction(PRODUCER)


def test_the_first_batch_of_an_unknown_producer_has_the_first_sequence_number() -> None:
    log = a_verifying_log()
    with pytest.raises(OutOfOrderSequence):
        write(log, 4, guard=begin(log, 0, 4))
    write(log, 0, guard=begin(log, 0))
