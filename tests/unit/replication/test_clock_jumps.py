"""The wall clock of a leader jumps: what is measured between two moments is measured by the clock that does not.

The ISR, the throttle of replication and the sessions of fetches.
"""

import pytest

from ottla.config.topic import LEADER_REPLICATION_THROTTLED_REPLICAS
from ottla.replication.leader.isolation import Isolation
from ottla.replication.ports.throttle import ReplicationQuota
from ottla.storage.disk.clock import NEVER_MS
from tests.support.clocks import ManualClock
from tests.support.replicas import LAG_MS, Replicas, state

HOUR_MS = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 400 * 24 * HOUR_MS, -400 * 24 * HOUR_MS, 50, -50])


def leader(isr: tuple[int, ...] = (0, 1, 2)) -> Replicas:
    replicas = Replicas()
    replicas.alive(0, 1, 2)
    replicas.code_of(state(isr=list(isr), replicas=[0, 1, 2]))
    return replicas


@JUMPS
def test_no_follower_leaves_the_isr_for_a_jump(jump_ms: int) -> None:
    replicas = leader()
    for broker_id in (1, 2):
        replicas.follow(broker_id, 0)
    replicas.append()  # none has that
    replicas.clock.move(LAG_MS - 1)
    replicas.clock.set_back(-jump_ms)
    assert replicas.shrink() == 0


@JUMPS
def test_a_dead_follower_leaves_it_in_time_all_the_same(jump_ms: int) -> None:
    replicas = leader()
    for broker_id in (1, 2):
        replicas.follow(broker_id, 0)
    replicas.append()
    replicas.clock.set_back(-jump_ms)
    replicas.follow(1, 1)
    replicas.clock.move(LAG_MS + 1)
    assert replicas.shrink() == 1
    assert replicas.proposals.made[-1].isr == (0, 1)


@JUMPS
def test_a_replica_that_never_fetched_is_not_waited_for(jump_ms: int) -> None:
    """However short ago the machine was started: the clock that does not jump begins with its start."""
    replicas = leader(isr=(0,))
    replicas.clock.set_back(-jump_ms)
    assert replicas.partition.followers[1].last_caught_up_ms == NEVER_MS
    replicas.append()
    assert replicas.partition.log.high_watermark == 1


@JUMPS
def test_a_jump_cuts_no_leader_off(jump_ms: int) -> None:
    replicas = leader()
    for broker_id in (1, 2):
        replicas.follow(broker_id, 0)
    isolation = Isolation(replicas.manager, lambda: False, 18_000, replicas.clock)
    isolation.look()
    replicas.clock.move(17_000)
    replicas.clock.set_back(-jump_ms)
    isolation.look()
    assert isolation.cut_off == 0
    replicas.clock.move(2_000)
    isolation.look()
    assert isolation.cut_off == 1


@JUMPS
def test_the_throttle_of_replication_goes_on(jump_ms: int) -> None:
    clock = ManualClock()
    quota = ReplicationQuota(0, LEADER_REPLICATION_THROTTLED_REPLICAS, clock, 11, 1000)
    quota.set_limit(1000)
    quota.count(20_000)
    clock.set_back(-jump_ms)
    assert quota.is_exceeded()
    clock.move(12_000)
    assert not quota.is_exceeded()
