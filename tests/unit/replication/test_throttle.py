"""Replication quotas: the rate, who is throttled, and what followers and leaders make of it."""

from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.topic import FOLLOWER_REPLICATION_THROTTLED_REPLICAS, LEADER_REPLICATION_THROTTLED_REPLICAS
from ottla.replication.ports.throttle import ReplicationQuota, ReplicationQuotas, WindowedRate, throttled_indexes
from tests.support.clocks import ManualClock
from tests.support.followers import Follower, ScriptedPeer, answer, batch, data, until
from tests.support.logs import a_config, a_log
from tests.support.replicas import Asked, Replicas, state
from tests.support.virtual_time import in_virtual_time


def test_the_first_window_counts_in_full() -> None:
    rate = WindowedRate(11, 1000)
    assert rate.per_second(0) == 0
    rate.count(500, 0)
    assert rate.per_second(1) == 500
    rate.count(500, 500)
    assert rate.per_second(500) == 1000
    assert rate.per_second(2000) == 500


def test_what_is_older_than_all_windows_counts_no_more() -> None:
    rate = WindowedRate(3, 1000)
    rate.count(3000, 0)
    assert rate.per_second(2999) == pytest.approx(1000, rel=0.01)
    assert rate.per_second(3000) == 0


def test_a_steady_stream_has_its_own_rate() -> None:
    rate = WindowedRate(11, 1000)
    for now_ms in range(0, 60_000, 100):
        rate.count(100, now_ms)
    assert rate.per_second(60_000) == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ((), frozenset()),
        (("",), frozenset()),
        (("*",), None),
        (("0:1", "1:2", "3:1"), frozenset({0, 3})),
        ((" 0:1 ", "1:2"), frozenset({0})),
        (("0:11",), frozenset()),
    ],
)
def test_only_the_replicas_on_this_broker_are_meant(replicas: tuple[str, ...], expected: frozenset[int] | None) -> None:
    assert throttled_indexes(replicas, 1) == expected


def a_quota(clock: ManualClock, limit: int | None = 1000) -> ReplicationQuota:
    quota = ReplicationQuota(1, LEADER_REPLICATION_THROTTLED_REPLICAS, clock, 11, 1000)
    if limit is not None:
        quota.set_limit(limit)
    return quota


def test_without_a_limit_nothing_is_throttled() -> None:
    quota = a_quota(ManualClock(), None)
    log = a_log(**{"leader.replication.throttled.replicas": "*"})

    assert not quota.is_limited
    assert not quota.is_throttled(log)
    assert not quota.is_exceeded()


def test_a_quota_is_exceeded_until_time_has_made_up_for_it() -> None:
    clock = ManualClock()
    quota = a_quota(clock)
    quota.count(1000)
    assert not quota.is_exceeded()
    quota.count(1000)
    assert quota.is_exceeded()
    assert quota.rate() == 2000
    clock.move(2000)
    assert not quota.is_exceeded()


def test_who_was_refused_first_goes_first_as_long_as_it_asks() -> None:
    clock = ManualClock()
    quota = a_quota(clock)
    quota.count(1500)
    assert not quota.is_open_to(2)
    for _ in range(2):
        assert not quota.is_open_to(3)
        clock.move(800)
        assert not quota.is_exceeded() or not quota.is_open_to(2)
    assert not quota.is_open_to(3)
    assert quota.is_open_to(2)
    quota.end_turn(2)
    assert not quota.is_open_to(2)
    clock.move(1001)  # broker 3 asks no more
    assert quota.is_open_to(2)


def test_a_topic_that_is_configured_anew_is_throttled_anew() -> None:
    quota = a_quota(ManualClock())
    log = a_log()
    assert not quota.is_throttled(log)
    log.update_config(a_config(**{"leader.replication.throttled.replicas": "0:1"}))
    assert quota.is_throttled(log)
    log.update_config(a_config(**{"leader.replication.throttled.replicas": "0:2"}))
    assert not quota.is_throttled(log)


def test_the_limits_follow_the_dynamic_configuration() -> None:
    config = BrokerConfig({})
    quotas = ReplicationQuotas(config, 1, ManualClock())
    assert not quotas.leader.is_limited

    config.update_dynamic({"leader.replication.throttled.rate": "100", "follower.replication.throttled.rate": "200"}, {})
    assert (quotas.leader.limit, quotas.follower.limit) == (100, 200)
    config.update_dynamic({"follower.replication.throttled.rate": "200"}, {})
    assert (quotas.leader.is_limited, quotas.follower.is_limited) == (False, True)


THROTTLED = {FOLLOWER_REPLICATION_THROTTLED_REPLICAS.name: "0:1"}


@pytest.mark.slow
@in_virtual_time
async def test_a_throttled_follower_that_is_behind_waits_for_its_quota_and_others_do_not() -> None:
    big = bytes(batch(0, 1, value_bytes=3000))
    peer = ScriptedPeer(
        answer(data(0, found=big, high_watermark=9), data(1, found=big, high_watermark=9)),
        answer(data(1, found=bytes(batch(1)), high_watermark=9)),
    )
    follower = Follower(peer, topic_config=THROTTLED)
    follower.quotas.follower.set_limit(1000)
    follower.follow(0, 1)
    await until(lambda: len(peer.asked) == 3)

    second = peer.fetches[1]
    assert [topic.partitions for topic in second.forgotten_topics_data] == [[0]]
    assert [each.partition for topic in second.topics for each in topic.partitions] == [1]

    loop: Any = follower.disks.clock
    began = loop.time()

    def is_asked_for_again() -> bool:
        if not peer.script:
            peer.script.append(answer())
        return any(each.partition == 0 for topic in peer.fetches[-1].topics for each in topic.partitions)

    await until(is_asked_for_again)
    assert loop.time() - began > 1.5
    await follower.pool.close()


@in_virtual_time
async def test_a_follower_in_sync_is_never_held_back() -> None:
    big = bytes(batch(0, 1, value_bytes=3000))
    peer = ScriptedPeer(answer(data(0, found=big, high_watermark=1)))
    follower = Follower(peer, topic_config=THROTTLED)
    follower.quotas.follower.set_limit(1000)
    follower.follow(0)
    await until(lambda: len(peer.asked) == 2)

    assert follower.quotas.follower.is_exceeded()
    assert peer.fetches[1].forgotten_topics_data == []
    await follower.pool.close()


@in_virtual_time
async def test_when_everything_is_throttled_nothing_is_asked_until_the_quota_allows() -> None:
    big = bytes(batch(0, 1, value_bytes=5000))
    peer = ScriptedPeer(answer(data(0, found=big, high_watermark=9)), answer(session_id=0))
    follower = Follower(peer, topic_config=THROTTLED)
    follower.quotas.follower.set_limit(1000)
    follower.follow(0)
    await until(lambda: len(peer.asked) == 2)
    loop: Any = follower.disks.clock
    began = loop.time()
    await until(lambda: len(peer.asked) == 3)

    assert 3.9 < loop.time() - began < 7
    assert [each.fetch_offset for topic in peer.fetches[2].topics for each in topic.partitions] == [1]
    await follower.pool.close()


def a_leader(**topic_config: str) -> Replicas:
    """Leads orders-0 with broker 1 in sync and broker 2 behind; its quota as a leader is exceeded."""
    replicas = Replicas(**topic_config)
    replicas.say(state(0, 1, isr=(0, 1)))
    quota = a_quota_of_broker_0(replicas)
    replicas.manager.leader_quota = quota
    replicas.append(3)
    quota.count(5000)
    return replicas


def a_quota_of_broker_0(replicas: Replicas) -> ReplicationQuota:
    quota = ReplicationQuota(0, LEADER_REPLICATION_THROTTLED_REPLICAS, replicas.clock, 11, 1000)
    quota.set_limit(1000)
    return quota


def test_a_leader_withholds_data_from_a_throttled_follower_that_is_behind_but_learns_of_it() -> None:
    replicas = a_leader(leader_replication_throttled_replicas="0:0")
    found = replicas.follow(2, 0)

    assert not found.records
    assert found.high_watermark == replicas.partition.log.high_watermark
    assert replicas.partition.followers[2].log_end_offset == 0
    replicas.clock.move(6000)
    assert replicas.follow(2, 0).records


def test_a_leader_withholds_nothing_from_followers_in_sync() -> None:
    replicas = a_leader(leader_replication_throttled_replicas="*")

    assert replicas.follow(1, 0).records


def test_a_leader_withholds_nothing_of_partitions_that_are_not_named() -> None:
    replicas = a_leader(leader_replication_throttled_replicas="1:0,0:2")

    assert replicas.follow(2, 0).records


def test_a_consumer_is_never_held_back_by_the_replication_quota() -> None:
    replicas = a_leader(leader_replication_throttled_replicas="*")
    replicas.follow(1, 3)

    assert replicas.fetch(Asked(0)).records
