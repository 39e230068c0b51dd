"""A partition's roles and epochs, what holds its high watermark back, and what it refuses."""

from collections.abc import Callable

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RecordsNotDeletable,
    UnknownLeaderEpoch,
    UnknownReplica,
)
from ottla.replication.reading.asked_partition import DEBUGGING_CONSUMER
from ottla.storage.errors import OffsetOutOfRange
from ottla.storage.log.origins import COORDINATOR
from tests.support.batches import a_run
from tests.support.replicas import LAG_MS, TOPIC_ID, Asked, Replicas, state
from tests.support.transactions import a_marker_batch, write_in_transaction


class CountingWaiter:
    """Waits for ever; counts how often it was told to look."""

    def __init__(self) -> None:
        self.completed = False
        self.looks = 0

    def try_complete(self) -> bool:
        self.looks += 1
        return False


def leading(**topic_config: str) -> Replicas:
    """Broker 0 leads orders-0 with 1 and 2 in sync."""
    replicas = Replicas(**topic_config)
    replicas.say(state(), topic_id=TOPIC_ID)
    return replicas


# -- the high watermark ------------------------------------------------------------------------------------------------


def test_without_followers_what_is_appended_is_committed() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    replicas.append(3)
    assert replicas.partition.log.high_watermark == 3


def test_the_high_watermark_is_what_every_member_of_the_isr_has() -> None:
    replicas = leading()
    replicas.append(5)
    assert replicas.partition.log.high_watermark == 0
    replicas.follow(1, 5)
    assert replicas.partition.log.high_watermark == 0
    replicas.follow(2, 3)
    assert replicas.partition.log.high_watermark == 3
    replicas.follow(2, 5)
    assert replicas.partition.log.high_watermark == 5


def test_a_follower_that_fetches_from_further_back_does_not_take_the_high_watermark_back() -> None:
    replicas = leading()
    replicas.append(5)
    replicas.follow(1, 5)
    replicas.follow(2, 5)
    replicas.follow(2, 1)
    assert replicas.partition.log.high_watermark == 5


def test_a_live_replica_outside_the_isr_that_keeps_up_holds_the_high_watermark_back_so_that_it_can_come_in() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0, 1]))
    replicas.follow(1, 0)
    replicas.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
    replicas.append(5)
    assert replicas.partition.log.high_watermark == 0
    replicas.clock.move(LAG_MS + 1)
    replicas.append(1)
    assert replicas.partition.log.high_watermark == 6


def test_a_dead_replica_outside_the_isr_holds_nothing_back() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0, 1]))
    replicas.follow(1, 0)
    replicas.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
    replicas.alive(0)
    replicas.append(5)
    assert replicas.partition.log.high_watermark == 5


def test_below_min_insync_replicas_the_high_watermark_stands_still() -> None:
    replicas = leading(min_insync_replicas="2")
    replicas.say(state(epoch=1, isr=[0], partition_epoch=1))
    replicas.clock.move(LAG_MS + 1)
    replicas.append(3, acks=1)
    assert replicas.partition.log.high_watermark == 0
    replicas.say(state(epoch=2, isr=[0, 1], partition_epoch=2))
    replicas.follow(1, 3)
    assert replicas.partition.log.high_watermark == 3


def test_an_isr_that_shrinks_to_the_leader_commits_what_it_has() -> None:
    replicas = leading()
    replicas.append(3)
    replicas.clock.move(LAG_MS + 1)
    replicas.say(state(epoch=1, isr=[0], partition_epoch=1))
    assert replicas.partition.log.high_watermark == 3


# -- acks=all ----------------------------------------------------------------------------------------------------------


def test_while_the_isr_has_a_member_that_is_no_replica_any_more_nothing_is_committed() -> None:
    """The last steps of a reassignment: broker 2 is out of the replicas, and whoever becomes controller now may still elect it."""
    replicas = leading()
    replicas.say(state(isr=[0, 1, 2], replicas=[0, 1], epoch=6, partition_epoch=8))
    replicas.append(3)
    replicas.follow(1, 3)
    assert replicas.partition.log.high_watermark == 0
    replicas.say(state(isr=[0, 1], replicas=[0, 1], epoch=7, partition_epoch=9))
    replicas.follow(1, 3)
    assert replicas.partition.log.high_watermark == 3


def test_the_last_replica_that_stays_commits_nothing_before_the_others_have_left_the_isr() -> None:
    replicas = leading()
    replicas.say(state(isr=[0, 1], replicas=[0], epoch=6, partition_epoch=8))
    replicas.append(3)
    assert replicas.partition.log.high_watermark == 0
    replicas.partition.confirm_isr((0,), 9)
    replicas.append(1)
    assert replicas.partition.log.high_watermark == 4


def test_acks_all_is_refused_below_min_insync_replicas_and_acks_1_is_not() -> None:
    replicas = leading(min_insync_replicas="2")
    replicas.say(state(epoch=1, isr=[0], partition_epoch=1))
    with pytest.raises(NotEnoughReplicas):
        replicas.append(acks=-1)
    assert replicas.partition.log.log_end_offset == 0
    assert replicas.append(acks=1).first_offset == 0


def test_no_more_replicas_can_be_asked_for_than_there_are() -> None:
    replicas = Replicas(min_insync_replicas="2")
    replicas.say(state(isr=[0], replicas=[0]))
    replicas.append(acks=-1)
    assert replicas.partition.log.high_watermark == 1


# -- leader and follower -----------------------------------------------------------------------------------------------


def test_a_new_leader_starts_its_epoch_where_its_log_ends() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.say(state(epoch=5, partition_epoch=1))
    assert replicas.partition.leader_epoch_start_offset == 4
    assert replicas.partition.log.end_offset_for_epoch(0) == (0, 4)
    assert replicas.partition.log.latest_epoch == 5


def test_a_new_leader_knows_nothing_of_its_followers_and_one_elected_again_does() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.follow(1, 4)
    replicas.say(state(epoch=1, partition_epoch=1))
    assert replicas.partition.followers[1].log_end_offset == 4
    replicas.say(state(leader=1, epoch=2, partition_epoch=2))
    replicas.say(state(leader=0, epoch=3, partition_epoch=3))
    assert replicas.partition.followers[1].log_end_offset == -1


def test_latest_is_not_told_before_the_high_watermark_reached_the_epoch() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.say(state(epoch=1, partition_epoch=1))
    with pytest.raises(OffsetNotAvailable):
        replicas.partition.check_offset_is_available()
    replicas.follow(1, 4)
    replicas.follow(2, 4)
    replicas.partition.check_offset_is_available()


def test_a_follower_accepts_no_producer_and_knows_no_isr() -> None:
    replicas = leading()
    replicas.say(state(leader=2, epoch=1, partition_epoch=1))
    with pytest.raises(NotLeaderOrFollower) as refused:
        replicas.append()
    assert (refused.value.leader_id, refused.value.leader_epoch) == (2, 1)
    assert replicas.partition.isr == ()
    assert replicas.partition.followers == {}


def waiters_for_each_offset(replicas: Replicas) -> Callable[[], tuple[int, int, int]]:
    """One for each offset. Returns a function that tells how often those for the log end, high watermark and stable offset have looked."""
    partition = replicas.partition
    waiters = CountingWaiter(), CountingWaiter(), CountingWaiter()
    for waiter, of_offset in zip(waiters, (partition.end_waiters, partition.waiters, partition.stable_waiters), strict=True):
        of_offset.add(waiter)
    return lambda: (waiters[0].looks, waiters[1].looks, waiters[2].looks)


def test_those_who_wait_for_an_offset_look_when_it_moves_and_not_before() -> None:
    replicas = leading()
    for broker_id in (1, 2):
        replicas.follow(broker_id, 0)
    looks = waiters_for_each_offset(replicas)
    replicas.append(2)
    assert looks() == (1, 0, 0)
    replicas.follow(1, 2)
    assert looks() == (1, 0, 0)
    replicas.follow(2, 2)
    assert looks() == (1, 1, 1)


def test_while_a_transaction_is_open_those_who_wait_for_the_last_stable_offset_do_not_look() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    write_in_transaction(replicas, 7)
    looks = waiters_for_each_offset(replicas)
    replicas.append(3)
    assert looks() == (1, 1, 0)
    replicas.partition.append(a_run(a_marker_batch(7)), -1, replicas.clock.now_ms(), COORDINATOR)
    assert looks() == (2, 2, 1)


def test_those_who_wait_for_any_offset_look_when_leadership_goes() -> None:
    replicas = leading()
    looks = waiters_for_each_offset(replicas)
    replicas.say(state(leader=2, epoch=1, partition_epoch=1))
    assert looks() == (1, 1, 1)


def test_a_state_of_an_older_partition_epoch_is_passed_over() -> None:
    replicas = leading()
    replicas.say(state(epoch=1, isr=[0, 1], partition_epoch=5))
    assert not replicas.partition.become_leader(state(epoch=2, isr=[0], partition_epoch=4), 0)
    assert not replicas.partition.become_follower(state(leader=1, epoch=2, partition_epoch=4))
    assert replicas.partition.leader_epoch == 1
    assert replicas.partition.isr == (0, 1)


def test_a_replica_that_was_removed_is_forgotten() -> None:
    replicas = leading()
    replicas.say(state(epoch=1, isr=[0, 1], replicas=[0, 1], partition_epoch=1))
    assert list(replicas.partition.followers) == [1]


# -- fetches -----------------------------------------------------------------------------------------------------------


def test_consumers_see_what_is_committed_and_followers_and_debuggers_everything() -> None:
    replicas = leading()
    replicas.append(2)
    assert replicas.fetch(Asked(0)).records == b""
    assert len(replicas.follow(1, 0).records or b"") > 0
    assert len(replicas.fetch(Asked(0), DEBUGGING_CONSUMER, or_follower=True).records or b"") > 0


def test_consumers_that_may_are_served_by_a_follower_and_others_are_not() -> None:
    replicas = leading()
    replicas.append(2)
    replicas.follow(1, 2)
    replicas.follow(2, 2)
    replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert len(replicas.fetch(Asked(0), or_follower=True).records or b"") > 0
    with pytest.raises(NotLeaderOrFollower):
        replicas.fetch(Asked(0))


def test_an_epoch_that_is_over_is_fenced_and_one_to_come_is_unknown() -> None:
    replicas = leading()
    replicas.say(state(epoch=3, partition_epoch=1))
    replicas.fetch(Asked(0, leader_epoch=3))
    with pytest.raises(FencedLeaderEpoch):
        replicas.fetch(Asked(0, leader_epoch=2))
    with pytest.raises(UnknownLeaderEpoch):
        replicas.fetch(Asked(0, leader_epoch=4))


@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize("is_online", [True, False])
@pytest.mark.parametrize("or_follower", [True, False])
@pytest.mark.parametrize("asked_epoch", [-1, 2, 3, 4])
def test_a_read_is_refused_exactly_where_the_epoch_is_not_served(leader: int, is_online: bool, or_follower: bool, asked_epoch: int) -> None:
    replicas = leading()
    replicas.say(state(leader=leader, epoch=3, partition_epoch=1))
    partition = replicas.partition
    if not is_online:
        partition.take_offline()
    serves = is_online and (leader == 0 or or_follower) and asked_epoch in (-1, 3)
    assert partition.serves(asked_epoch, or_follower) == serves
    if serves:
        assert partition.check_leader(asked_epoch, or_follower) is partition.log
    else:
        with pytest.raises({2: FencedLeaderEpoch, 4: UnknownLeaderEpoch}.get(asked_epoch, NotLeaderOrFollower)):
            partition.check_leader(asked_epoch, or_follower)


def test_a_broker_that_is_no_replica_may_not_follow() -> None:
    replicas = leading()
    with pytest.raises(UnknownReplica):
        replicas.fetch(Asked(0), 7)
    with pytest.raises(UnknownLeaderEpoch):
        replicas.fetch(Asked(0, leader_epoch=0), 7)


def test_another_topic_of_that_name_is_not_read_by_the_old_id() -> None:
    replicas = leading()
    replicas.fetch(Asked(0, topic_id=TOPIC_ID))
    replicas.fetch(Asked(0, topic_id=ZERO_UUID))
    with pytest.raises(InconsistentTopicId):
        replicas.fetch(Asked(0, topic_id=b"some other topic"))


def test_where_a_log_parts_from_the_leaders_is_said() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.say(state(epoch=3, partition_epoch=1))
    replicas.append(2)
    diverging = replicas.fetch(Asked(5, last_fetched_epoch=1), 1).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 4)
    beyond = replicas.fetch(Asked(6, last_fetched_epoch=0), 1).diverging_epoch
    assert (beyond.epoch, beyond.end_offset) == (0, 4)
    assert replicas.fetch(Asked(4, last_fetched_epoch=0), 1).diverging_epoch.epoch == -1
    with pytest.raises(OffsetOutOfRange):
        replicas.fetch(Asked(4, last_fetched_epoch=4), 1)


def test_a_follower_that_diverged_is_not_taken_at_its_word() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.say(state(epoch=3, partition_epoch=1))
    replicas.fetch(Asked(5, last_fetched_epoch=1), 1)
    assert replicas.partition.followers[1].log_end_offset == -1


def test_a_fetch_that_is_read_again_says_nothing_new_of_its_follower() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.follow(1, 4)
    moved = replicas.partition.followers[1].last_fetch_ms
    replicas.clock.move(1000)
    replicas.fetch(Asked(4, start=0), 1, is_first_read=False)
    assert replicas.partition.followers[1].last_fetch_ms == moved


# -- DeleteRecords -----------------------------------------------------------------------------------------------------


def test_records_are_deleted_up_to_the_high_watermark_and_not_beyond() -> None:
    replicas = Replicas()
    replicas.say(state(isr=[0], replicas=[0]))
    replicas.append(4)
    assert replicas.partition.delete_records(2) == 2
    assert replicas.partition.low_watermark == 2
    assert replicas.partition.delete_records(-1) == 4
    for offset in (-2, 5):
        with pytest.raises(OffsetOutOfRange):
            replicas.partition.delete_records(offset)


def test_the_low_watermark_is_that_of_the_live_replica_furthest_behind_and_who_waits_for_it_is_told() -> None:
    replicas = leading()
    replicas.append(4)
    replicas.follow(1, 4)
    replicas.follow(2, 4)
    replicas.partition.delete_records(3)
    assert replicas.partition.low_watermark == 0
    waiter = CountingWaiter()
    replicas.partition.waiters.add(waiter)
    replicas.follow(1, 4, start=3)
    assert waiter.looks == 1
    assert replicas.partition.low_watermark == 0
    replicas.alive(0, 1)
    assert replicas.partition.low_watermark == 3


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted() -> None:
    replicas = leading(cleanup_policy="compact")
    with pytest.raises(RecordsNotDeletable):
        replicas.partition.delete_records(0)
