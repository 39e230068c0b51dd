"""Who comes into the ISR and who leaves it, and what the high watermark waits for while the controller has not decided (KIP-497)."""

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.controller_requests import EPOCH_DURING_DELETE
from tests.support.pauses import turns_by_hand
from tests.support.replicas import LAG_MS, TOPIC, TOPIC_ID, Asked, Replicas, state


def leading(isr: tuple[int, ...] = (0, 1, 2), **topic_config: str) -> Replicas:
    """Broker 0 leads orders-0 with replicas on 1 and 2."""
    replicas = Replicas(**topic_config)
    replicas.say(state(isr=isr))
    return replicas


def lagging(*broker_ids: int, records: int = 3, **topic_config: str) -> Replicas:
    """Records were appended; of the followers those named did not fetch them in time, the others did."""
    replicas = leading(**topic_config)
    for broker_id in (1, 2):
        replicas.follow(broker_id, 0)
    replicas.append(records)
    replicas.clock.move(LAG_MS + 1)
    for broker_id in {1, 2} - set(broker_ids):
        replicas.follow(broker_id, records)
    return replicas


# -- coming in ---------------------------------------------------------------------------------------------------------


def test_a_follower_that_has_what_is_committed_is_proposed_behind_the_others() -> None:
    replicas = leading(isr=(2, 0))
    replicas.append(3)
    replicas.follow(2, 3)
    replicas.follow(1, 3)
    (proposal,) = replicas.proposals.made
    assert proposal == (TopicPartition(TOPIC, 0), TOPIC_ID, 0, 0, (2, 0, 1), 0)


def test_with_a_follower_no_member_is_proposed_that_is_no_replica_any_more() -> None:
    """The controller would refuse all of it, as after a crash in the middle of a reassignment, and nothing would be committed."""
    replicas = leading(isr=(0, 1, 3))
    replicas.append(3)
    replicas.follow(1, 3)
    replicas.follow(2, 3)
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0, 1, 2)]
    assert set(replicas.partition.maximal_isr) == {0, 1, 2, 3}
    assert replicas.partition.log.high_watermark == 0
    replicas.proposals.confirm()
    assert replicas.partition.log.high_watermark == 3


def test_a_follower_below_the_high_watermark_is_not_proposed() -> None:
    replicas = leading(isr=(0,))
    replicas.append(3)
    assert replicas.partition.log.high_watermark == 3
    replicas.follow(1, 2)
    assert not replicas.proposals.made


def test_a_follower_that_has_not_reached_the_leader_epoch_is_not_proposed() -> None:
    """What an earlier leader committed may lie beyond the high watermark known here."""
    replicas = leading()
    replicas.append(5)
    replicas.say(state(epoch=1, isr=(0, 2), partition_epoch=1))
    assert replicas.partition.log.high_watermark == 0
    replicas.follow(1, 4)
    assert not replicas.proposals.made
    replicas.follow(1, 5)
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0, 2, 1)]


def test_a_dead_follower_is_not_proposed() -> None:
    replicas = leading(isr=(0,))
    replicas.alive(0, 2)
    replicas.follow(1, 0)
    assert not replicas.proposals.made


def test_a_fetch_that_only_looks_again_after_it_waited_proposes_nobody() -> None:
    replicas = leading(isr=(0,))
    replicas.fetch(Asked(0, start=0), 1, is_first_read=False)
    assert not replicas.proposals.made


def test_only_one_change_is_in_flight() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.follow(2, 0)
    replicas.follow(1, 0)
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0, 1)]
    replicas.proposals.confirm()
    replicas.follow(2, 0)
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0, 1), (0, 1, 2)]
    assert replicas.proposals.made[1].partition_epoch == 1


def test_a_member_that_is_not_confirmed_yet_holds_the_high_watermark_back_and_one_that_is_confirmed_goes_on_doing_so() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.clock.move(LAG_MS + 1)
    replicas.append(5)
    assert replicas.partition.log.high_watermark == 0
    assert replicas.partition.isr == (0,)
    replicas.proposals.confirm()
    assert replicas.partition.isr == (0, 1)
    assert replicas.partition.log.high_watermark == 0
    replicas.follow(1, 5)
    assert replicas.partition.log.high_watermark == 5
    assert replicas.manager.isr_changes.expands == 1


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_that_changed_nothing_takes_the_proposal_back(code: ErrorCode) -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.proposals.refuse(code)
    partition = replicas.partition
    assert (partition.isr, partition.maximal_isr, partition.isr_change) == ((0,), (0,), None)
    assert replicas.manager.isr_changes.failed == 1
    replicas.follow(1, 0)
    assert len(replicas.proposals.made) == 2


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_a_follower_that_lags_is_proposed_to_leave_and_holds_the_high_watermark_back_until_it_has() -> None:
    replicas = lagging(2)
    assert replicas.shrink() == 1
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0, 1)]
    assert replicas.partition.log.high_watermark == 0
    replicas.proposals.confirm()
    assert replicas.partition.isr == (0, 1)
    assert replicas.partition.partition_epoch == 1
    assert replicas.partition.log.high_watermark == 3
    assert replicas.manager.isr_changes.shrinks == 1


def test_all_who_lag_leave_at_once_in_the_order_of_the_rest() -> None:
    replicas = lagging(1, 2)
    replicas.shrink()
    assert [proposal.isr for proposal in replicas.proposals.made] == [(0,)]


def test_a_follower_that_has_everything_stays_however_long_ago_it_fetched() -> None:
    replicas = leading()
    replicas.append(2)
    for broker_id in (1, 2):
        replicas.follow(broker_id, 2)
    replicas.clock.move(10 * LAG_MS)
    assert replicas.shrink() == 0


def test_a_follower_that_fetches_steadily_without_ever_being_at_the_end_stays() -> None:
    replicas = leading()
    for end_offset in range(1, 20):
        replicas.append(1)
        replicas.clock.move(LAG_MS // 3)
        for broker_id in (1, 2):
            replicas.follow(broker_id, end_offset - 1)
        assert replicas.shrink() == 0


def test_a_follower_that_was_in_sync_when_the_epoch_began_gets_the_whole_time_to_fetch() -> None:
    replicas = leading()
    replicas.append(1)
    replicas.clock.move(LAG_MS)
    assert replicas.shrink() == 0
    replicas.clock.move(1)
    assert replicas.shrink() == 1


@pytest.mark.parametrize("dies", [True, False])
def test_what_waited_for_a_follower_outside_is_committed_once_that_is_gone_or_lags(dies: bool) -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.append()
    replicas.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
    assert replicas.shrink() == 0
    assert replicas.partition.log.high_watermark == 0, "it may come in"
    if dies:
        replicas.alive(0, 2)
    else:
        replicas.clock.move(LAG_MS + 1)
    assert replicas.shrink() == 0
    assert replicas.partition.log.high_watermark == 1


def test_nothing_is_proposed_while_a_change_is_in_flight() -> None:
    replicas = lagging(2)
    assert replicas.shrink() == 1
    assert replicas.shrink() == 0


def test_a_follower_does_not_decide_about_the_isr() -> None:
    replicas = lagging(2)
    replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    assert replicas.shrink() == 0


def test_a_changed_limit_of_lag_is_obeyed_at_once() -> None:
    replicas = lagging(2)
    replicas.manager.isr_changes.replica_lag_time_max_ms = 10 * LAG_MS
    assert replicas.shrink() == 0


def test_below_min_insync_replicas_a_shrink_commits_nothing() -> None:
    replicas = lagging(1, 2, min_insync_replicas="2")
    replicas.shrink()
    replicas.proposals.confirm()
    assert replicas.partition.isr == (0,)
    assert replicas.partition.log.high_watermark == 0


# -- decisions that are not about what is true now ---------------------------------------------------------------------

MAY_HAVE_HAPPENED = [
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
]


@pytest.mark.parametrize("code", MAY_HAVE_HAPPENED)
def test_when_the_picture_may_be_old_the_maximal_isr_holds_until_the_controller_speaks(code: ErrorCode) -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.proposals.refuse(code)
    replicas.append(1)
    replicas.clock.move(2 * LAG_MS)
    replicas.follow(2, 1)
    assert replicas.partition.maximal_isr == (0, 1)
    assert replicas.partition.log.high_watermark == 0
    assert replicas.shrink() == 0
    assert len(replicas.proposals.made) == 1
    replicas.say(state(epoch=1, isr=(0, 2), partition_epoch=1))
    replicas.follow(2, 1)
    assert replicas.partition.log.high_watermark == 1


def test_any_other_error_is_answered_with_the_same_proposal() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.proposals.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert replicas.proposals.made[0] is replicas.proposals.made[1]
    replicas.proposals.confirm()
    assert replicas.partition.isr == (0, 1)
    assert replicas.manager.isr_changes.failed == 1


def test_a_proposal_that_is_refused_again_and_again_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    for code in (ErrorCode.UNKNOWN_SERVER_ERROR,) * 3 + (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,) * 2:
        replicas.proposals.refuse(code)
    lines = [record.getMessage() for record in caplog.records if "could not be proposed" in record.getMessage()]
    assert ["UNKNOWN_SERVER_ERROR" in line for line in lines] == [True, False]


def test_what_a_partition_proposed_that_is_gone_is_not_proposed_again_in_the_way_of_the_next_one_of_its_name() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.stop(EPOCH_DURING_DELETE, delete=True)
    replicas.say(state(isr=(0,)))
    replicas.proposals.refuse(ErrorCode.NOT_CONTROLLER)  # it knows a topic without an id by its name, and the next one's epochs are lower
    replicas.follow(2, 0)
    assert [proposal.isr for proposal, _ in replicas.proposals.undecided] == [(0, 2)]


def test_a_decision_that_comes_after_the_controller_spoke_is_passed_over() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.say(state(epoch=1, isr=(0, 2), partition_epoch=2))
    replicas.proposals.confirm()
    assert replicas.partition.isr == (0, 2)
    assert replicas.partition.partition_epoch == 2


def test_a_refusal_that_comes_after_the_controller_spoke_does_not_touch_the_change_that_is_in_flight_now() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.say(state(epoch=1, isr=(0,), partition_epoch=1))
    late = replicas.proposals.undecided.pop()
    replicas.follow(1, 0)
    replicas.proposals.undecided.insert(0, late)
    replicas.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
    assert replicas.partition.maximal_isr == (0, 1)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 1), (0, -1)])
def test_a_decision_of_another_epoch_changes_nothing(leader_epoch: int, partition_epoch: int) -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.proposals.confirm(leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert replicas.partition.isr == (0,)
    assert replicas.partition.maximal_isr == (0, 1)
    assert replicas.manager.isr_changes.failed == 1


def test_what_the_controller_decided_counts_even_if_it_is_not_what_was_proposed() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.proposals.confirm((0, 1, 2), partition_epoch=0)
    assert replicas.partition.isr == (0, 1, 2)
    assert replicas.partition.isr_change is None


def test_a_proposal_that_cannot_be_made_because_an_older_one_is_under_way_is_taken_back() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.say(state(epoch=1, isr=(0,), partition_epoch=1))
    replicas.follow(1, 0)
    partition = replicas.partition
    assert (partition.maximal_isr, partition.isr_change) == ((0,), None)
    assert replicas.manager.isr_changes.failed == 1


def test_a_deposed_leader_hears_the_decision_in_vain() -> None:
    replicas = leading(isr=(0,))
    replicas.follow(1, 0)
    replicas.say(state(leader=1, epoch=1, partition_epoch=1))
    replicas.proposals.confirm()
    assert replicas.partition.isr == ()


# -- reassignments -----------------------------------------------------------------------------------------------------


def test_replicas_that_a_reassignment_adds_do_not_make_the_partition_under_replicated() -> None:
    replicas = Replicas()
    during = state(isr=(0, 1), replicas=(0, 1, 2))
    during.adding_replicas = [2]
    replicas.say(during)
    partition = replicas.partition
    assert partition.is_reassigning
    assert partition.replication_factor == 2


def test_many_partitions_are_looked_at_with_pauses() -> None:
    replicas = Replicas()
    for index in range(5):
        replicas.say(state(index=index))
        replicas.append(index=index)
    replicas.clock.move(LAG_MS + 1)
    with turns_by_hand() as loop:
        found = [replicas.shrink()]
        while loop.turn():
            found.append(replicas.changes_in_flight)
    assert sorted(set(found)) == [1, 2, 3, 4, 5]
