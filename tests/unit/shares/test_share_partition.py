"""A share partition delivers records to members, and follows what they say of them."""

import pytest

from ottla.coordination.shares.partition import MalformedState, SharePartition, ShareRules
from ottla.coordination.shares.record_states import AcknowledgeType, Acquired, RecordState, StateBatch
from ottla.protocol.errors import ErrorCode
from tests.support.share_partitions import SharePlayer, acknowledgement, extents

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
TEN_BATCHES = extents(*((first, first + 9) for first in range(0, 100, 10)))


def test_whole_batches_are_acquired_up_to_the_first_that_reaches_the_limit() -> None:
    player = SharePlayer(TEN_BATCHES)
    assert player.acquire("a", 15) == [Acquired(0, 19, 1)]
    assert player.acquire("b", 1) == [Acquired(20, 29, 1)]


def test_a_record_limit_is_kept_exactly() -> None:
    player = SharePlayer(TEN_BATCHES)
    assert player.acquire("a", 15, exact=True) == [Acquired(0, 14, 1)]
    assert player.acquire("b", 15, exact=True) == [Acquired(15, 29, 1)]


def test_acquired_ranges_end_with_the_batch_that_reaches_the_batch_size() -> None:
    player = SharePlayer(TEN_BATCHES)
    assert player.acquire("a", 40, batch_size=15) == [Acquired(0, 19, 1), Acquired(20, 39, 1)]


def test_no_record_is_acquired_by_two_members() -> None:
    player = SharePlayer(extents((0, 9)))
    assert player.acquire("a") == [Acquired(0, 9, 1)]
    assert player.acquire("b") == []


def test_accepted_records_move_the_start() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 20)
    assert player.acknowledge("a", acknowledgement(5, 9)) == ErrorCode.NONE
    assert player.partition.start_offset == 0
    assert player.acknowledge("a", acknowledgement(0, 4)) == ErrorCode.NONE
    assert player.partition.start_offset == 10
    assert player.states() == [(10, 19, "ACQUIRED", 1)]


def test_an_acknowledgement_is_answered_when_it_is_stored() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    assert player.acknowledge("a", acknowledgement(0, 9), stores=False) is None
    assert player.partition.start_offset == 0
    player.store()
    assert list(player.replies.values()) == [ErrorCode.NONE]
    assert player.partition.start_offset == 10


def test_acknowledgements_during_a_store_are_stored_together() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 30)
    for first in range(0, 30, 10):
        player.acknowledge("a", acknowledgement(first, first + 9), stores=False)
    (store,) = player.stores
    assert store.batches == (StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1),)
    player.stores.clear()
    player.carry_out(player.partition.on_stored(ErrorCode.NONE, player.now_ms))
    (store,) = player.stores
    assert [batch[:2] for batch in store.batches] == [(10, 19), (20, 29)]
    assert store.start_offset == 10


def test_a_failed_store_leaves_the_records_acquired() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    player.acknowledge("a", acknowledgement(0, 9), stores=False)
    player.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert list(player.replies.values()) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert player.states() == [(0, 9, "ACQUIRED", 1)]
    assert player.acknowledge("a", acknowledgement(0, 9)) == ErrorCode.NONE


def test_a_lock_that_ends_during_a_store_ends_when_the_store_fails() -> None:
    player = SharePlayer(extents((0, 9)))
    player.acquire("a")
    player.acknowledge("a", acknowledgement(0, 9), stores=False)
    player.pass_time(30_000)
    assert player.states() == [(0, 9, "ACQUIRED", 1)]
    player.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert player.states() == [(0, 9, "AVAILABLE", 1)]


def test_an_acknowledgement_that_waits_for_a_store_is_stored_although_that_fails() -> None:
    player = SharePlayer(extents((0, 1)))
    player.acquire("a")
    first, second = object(), object()
    player.carry_out(player.partition.acknowledge("a", [acknowledgement(0, 0)], first, player.now_ms))
    player.carry_out(player.partition.acknowledge("a", [acknowledgement(1, 1)], second, player.now_ms))
    player.pass_time(player.rules.lock_ms)
    player.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (player.replies[first], player.replies[second]) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    assert player.acquire("b") == [Acquired(0, 0, 2)]


def test_released_records_are_delivered_again() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    assert player.acknowledge("a", acknowledgement(3, 5, RELEASE)) == ErrorCode.NONE
    assert player.partition.next_fetch_offset() == 3
    assert player.acquire("b", 3) == [Acquired(3, 5, 2)]


def test_neighbours_with_equal_states_are_one_run_again() -> None:
    player = SharePlayer(extents((0, 99)))
    player.acquire("a")
    for offset in range(1, 99):
        player.acknowledge("a", acknowledgement(offset, offset, RELEASE))
    assert player.states() == [(0, 0, "ACQUIRED", 1), (1, 98, "AVAILABLE", 1), (99, 99, "ACQUIRED", 1)]


def test_each_record_may_have_its_own_type() -> None:
    player = SharePlayer(extents((0, 4)))
    player.acquire("a")
    assert player.acknowledge("a", acknowledgement(0, 4, RELEASE, ACCEPT, REJECT, GAP, RELEASE)) == ErrorCode.NONE
    assert player.states() == [
        (0, 0, "AVAILABLE", 1),
        (1, 1, "ACKNOWLEDGED", 1),
        (2, 3, "ARCHIVED", 1),
        (4, 4, "AVAILABLE", 1),
    ]
    assert player.partition.complete_count == 3


@pytest.mark.parametrize("types", [[RELEASE], [ACCEPT], [REJECT], [GAP]])
def test_records_are_acknowledged_once(types: list[AcknowledgeType]) -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 20)
    assert player.acknowledge("a", acknowledgement(10, 14, *types)) == ErrorCode.NONE
    assert player.acknowledge("a", acknowledgement(10, 14)) == ErrorCode.INVALID_RECORD_STATE


def test_records_of_another_member_cannot_be_acknowledged_and_nothing_else_of_the_request_changes() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    player.acquire("b", 10)
    assert player.acknowledge("a", acknowledgement(0, 9), acknowledgement(10, 19)) == ErrorCode.INVALID_RECORD_STATE
    assert player.states() == [(0, 9, "ACQUIRED", 1), (10, 19, "ACQUIRED", 1)]


def test_records_beyond_the_end_cannot_be_acknowledged() -> None:
    player = SharePlayer(TEN_BATCHES)
    assert player.acknowledge("a", acknowledgement(0, 9)) == ErrorCode.INVALID_RECORD_STATE
    player.acquire("a", 10)
    assert player.acknowledge("a", acknowledgement(5, 10)) == ErrorCode.INVALID_REQUEST


def test_batches_of_one_request_that_overlap_are_refused() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    assert player.acknowledge("a", acknowledgement(0, 3), acknowledgement(3, 4)) == ErrorCode.INVALID_RECORD_STATE
    assert player.states() == [(0, 9, "ACQUIRED", 1)]


def test_records_below_the_start_are_acknowledged_without_effect() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 20)
    player.partition.on_log_start(15)
    assert player.acknowledge("a", acknowledgement(0, 9)) == ErrorCode.NONE
    assert player.acknowledge("a", acknowledgement(10, 19)) == ErrorCode.NONE
    assert player.partition.start_offset == 20


def test_a_lock_ends_after_its_time() -> None:
    player = SharePlayer(extents((0, 9)))
    player.acquire("a")
    player.pass_time(29_999)
    assert player.acquire("b") == []
    player.pass_time(1)
    assert player.acquire("b") == [Acquired(0, 9, 2)]
    assert player.acknowledge("a", acknowledgement(0, 9)) == ErrorCode.INVALID_RECORD_STATE


def test_locks_end_at_will() -> None:
    player = SharePlayer(extents((0, 1), (2, 3), (4, 5)))
    player.acquire("a", 1)
    player.acquire("b", 1)
    player.acknowledge("a", acknowledgement(0, 0), stores=False)
    player.carry_out(player.partition.end_locks(player.now_ms))
    assert player.partition.ended_locks == 3
    player.store()
    assert list(player.replies.values()) == [ErrorCode.NONE]
    assert [each[:3] for each in player.acquire("c", 9)] == [(1, 3, 2), (4, 5, 1)]
    player.check()


def test_a_renewed_lock_begins_anew() -> None:
    player = SharePlayer(extents((0, 9)))
    player.acquire("a")
    player.pass_time(20_000)
    assert player.acknowledge("a", acknowledgement(0, 4, RENEW)) == ErrorCode.NONE
    assert player.stores == []
    player.pass_time(10_000)
    assert player.states() == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)]
    player.pass_time(20_000)
    assert player.states() == [(0, 9, "AVAILABLE", 1)]


def test_a_group_that_may_not_renew_is_refused() -> None:
    player = SharePlayer(extents((0, 9)), rules=ShareRules(may_renew=False))
    player.acquire("a")
    assert player.acknowledge("a", acknowledgement(0, 4, RENEW)) == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("ends", ["release", "timeout"])
def test_a_record_is_archived_after_its_last_delivery(ends: str) -> None:
    player = SharePlayer(extents((0, 0)), rules=ShareRules(delivery_limit=3))
    for delivery in (1, 2, 3):
        assert player.acquire("a") == [Acquired(0, 0, delivery)]
        if ends == "release":
            player.acknowledge("a", acknowledgement(0, 0, RELEASE))
        else:
            player.pass_time(30_000)
            player.store()
    assert player.acquire("a") == []
    assert player.partition.start_offset == 1
    player.crash()
    assert player.partition.next_fetch_offset() == 1


def test_records_that_failed_often_are_delivered_with_fewer_others_and_at_last_alone() -> None:
    player = SharePlayer(extents((0, 99)), rules=ShareRules(delivery_limit=5))
    sizes = []
    for _ in range(4):
        found = player.acquire("a")
        sizes.append(sum(last - first + 1 for first, last, _ in found))
        player.acknowledge("a", acknowledgement(found[0].first, found[-1].last, RELEASE))
    assert sizes == [100, 100, 100, 50]
    assert player.acquire("a") == [Acquired(0, 0, 5)]


def test_a_lower_limit_archives_what_was_delivered_more_often() -> None:
    player = SharePlayer(extents((0, 9)))
    for _ in range(3):
        player.acquire("a")
        player.acknowledge("a", acknowledgement(0, 9, RELEASE))
    player.partition.rules = ShareRules(delivery_limit=2)
    assert player.acquire("a") == []
    assert player.partition.start_offset == 10


def test_the_end_of_a_session_releases_its_records() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    player.acquire("b", 10)
    player.release("a")
    assert player.states() == [(0, 9, "AVAILABLE", 1), (10, 19, "ACQUIRED", 1)]
    assert player.acquire("b", 10) == [Acquired(0, 9, 2)]


def test_only_as_many_records_are_in_flight_as_allowed() -> None:
    player = SharePlayer(TEN_BATCHES, rules=ShareRules(max_locks=25))
    assert player.acquire("a") == [Acquired(0, 29, 1)]
    assert player.partition.next_fetch_offset() is None
    player.acknowledge("a", acknowledgement(10, 19, RELEASE))
    assert player.acquire("b") == [Acquired(10, 19, 2)]
    assert player.acquire("b") == []
    player.acknowledge("a", acknowledgement(0, 9))
    assert player.acquire("b") == [Acquired(30, 39, 1)]


def test_a_record_limit_holds_for_records_in_flight_as_well() -> None:
    player = SharePlayer(TEN_BATCHES, rules=ShareRules(max_locks=25))
    assert player.acquire("a", exact=True) == [Acquired(0, 24, 1)]
    player.acknowledge("a", acknowledgement(0, 24))
    assert player.acquire("a", 3, exact=True) == [Acquired(25, 27, 1)]


def test_offsets_without_records_are_archived() -> None:
    player = SharePlayer(extents((5, 9), (10, 10, False), (15, 19)))
    assert player.acquire("a") == [Acquired(5, 9, 1), Acquired(15, 19, 1)]
    assert player.partition.start_offset == 5
    assert player.states()[1] == (10, 14, "ARCHIVED", 0)
    player.store()
    assert player.acknowledge("a", acknowledgement(5, 9), acknowledgement(15, 19)) == ErrorCode.NONE
    assert player.partition.start_offset == 20
    assert player.stored.states[12] == (RecordState.ARCHIVED, 0)


def test_available_records_that_were_compacted_away_do_not_stop_the_partition() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    player.acknowledge("a", acknowledgement(0, 9, RELEASE))
    player.log = extents((50, 59))
    assert player.acquire("a") == [Acquired(50, 59, 1)]
    assert player.partition.start_offset == 50


def test_the_start_of_the_log_moves_the_start_and_the_end() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 20)
    player.partition.on_log_start(5)
    assert player.states() == [(5, 19, "ACQUIRED", 1)]
    player.partition.on_log_start(3)
    assert player.partition.start_offset == 5
    player.partition.on_log_start(50)
    player.check()
    assert (player.partition.start_offset, player.partition.next_fetch_offset()) == (50, 50)


def test_a_store_says_how_many_records_are_complete() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 20)
    player.acknowledge("a", acknowledgement(10, 14))
    player.acknowledge("a", acknowledgement(15, 16, REJECT), stores=False)
    assert player.stores[0].complete_count == 7
    assert player.stores[0].start_offset == 0


def test_what_could_not_be_stored_is_stored_with_the_next_change() -> None:
    player = SharePlayer(TEN_BATCHES)
    player.acquire("a", 10)
    player.pass_time(30_000)
    player.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (player.stores, player.stored.states) == ([], {})
    player.acquire("a", 20, exact=True)
    player.acknowledge("a", acknowledgement(10, 19))
    player.crash()
    assert player.states() == [(0, 9, "AVAILABLE", 1), (10, 19, "ACKNOWLEDGED", 1)]


def test_a_new_leader_continues_from_the_stored_state() -> None:
    stored = [
        StateBatch(10, 14, RecordState.ACKNOWLEDGED, 1),
        StateBatch(15, 19, RecordState.AVAILABLE, 2),
        StateBatch(30, 34, RecordState.ARCHIVED, 5),
    ]
    partition = SharePartition(10, stored, ShareRules())
    assert partition.start_offset == 15
    assert [(run.first, run.last, run.standing.delivery_count) for run in partition.runs] == [(15, 19, 2), (20, 29, 0), (30, 34, 5)]
    assert (partition.next_fetch_offset(), partition.end_offset, partition.complete_count) == (15, 35, 5)


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(5, 4, RecordState.AVAILABLE, 1)],
        [StateBatch(0, 4, RecordState.AVAILABLE, 1), StateBatch(4, 5, RecordState.AVAILABLE, 1)],
        [StateBatch(-3, 4, RecordState.AVAILABLE, 1)],
        [StateBatch(0, 4, RecordState.ACQUIRED, 1)],
        [StateBatch(0, 4, 3, 1)],
    ],
)
def test_a_stored_state_that_cannot_be_right_is_refused(batches: list[StateBatch]) -> None:
    with pytest.raises(MalformedState):
        SharePartition(0, batches, ShareRules())
