"""How far a log is on the disk, when its next flush is due, and what a truncation leaves of both."""

from ottla.storage.log.flushes import Flushes, FlushPlan
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import NEVER
from tests.support.logs import a_config, a_log


def settings(flush_messages: int) -> LogSettings:
    return LogSettings(a_config(flush_messages=flush_messages))


def flushes_from(recovery_point: int, settings: LogSettings) -> Flushes:
    log = a_log()
    return Flushes(log.files, LogSegments(settings), log.producer_state, log.rolls, recovery_point)


def a_plan(recovery_point: int) -> FlushPlan:
    return FlushPlan(a_log().files, [], None, recovery_point, has_new_names=False)


def test_a_flush_is_due_with_the_last_of_so_many_records() -> None:
    flushes = flushes_from(10, settings(5))
    assert flushes.request_offset == 14
    flushes.become_due(15)
    assert (flushes.due_offset, flushes.request_offset) == (15, 19)


def test_only_records_that_a_flush_is_due_for_have_to_be_on_the_disk() -> None:
    flushes = flushes_from(10, settings(5))
    assert flushes.covers(14)
    flushes.become_due(15)
    assert [flushes.covers(end) for end in (10, 11, 15, 16)] == [True, False, False, True]
    flushes.advance(15)
    assert flushes.covers(15)


def test_a_limit_that_is_never_reached_may_be_as_large_as_any_offset() -> None:
    flushes = flushes_from(10, settings(NEVER))
    assert flushes.request_offset == NEVER - 1


def test_another_limit_counts_from_the_recovery_point() -> None:
    flushes = flushes_from(10, settings(5))
    flushes.become_due(15)
    flushes.use_settings(settings(2))
    assert flushes.request_offset == 11


def test_a_flush_that_is_done_moves_the_recovery_point_only_forward() -> None:
    flushes = flushes_from(0, settings(5))
    first, second = a_plan(4), a_plan(6)
    flushes.plans.append(first)
    flushes.plans.append(second)
    flushes.finish(second)
    assert (flushes.recovery_point, flushes.plans) == (6, [first])
    flushes.finish(first)
    assert (flushes.recovery_point, flushes.plans, flushes.request_offset) == (6, [], 10)


def test_a_flush_that_is_given_up_leaves_the_recovery_point() -> None:
    flushes = flushes_from(0, settings(5))
    plan = a_plan(4)
    flushes.plans.append(plan)
    flushes.give_up(plan)
    flushes.give_up(plan)
    assert (flushes.recovery_point, flushes.plans) == (0, [])


def test_a_truncation_lowers_everything_and_what_was_due() -> None:
    flushes = flushes_from(3, settings(5))
    plan = a_plan(8)
    flushes.plans.append(plan)
    flushes.become_due(8)
    flushes.truncate(2)
    assert (flushes.recovery_point, flushes.due_offset, flushes.request_offset, plan.recovery_point) == (2, 2, 6, 2)
    flushes.finish(plan)
    assert flushes.recovery_point == 2
