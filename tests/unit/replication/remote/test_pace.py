"""How fast segments are copied, and how long the tasks wait after failures."""

import asyncio
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.replication.remote.byte_quota import COPY, ByteQuota
from ottla.replication.remote.settings import RemoteSettings
from tests.support.virtual_time import in_virtual_time

LIMIT = "remote.log.manager.copy.max.bytes.per.second"


def a_quota(config: BrokerConfig) -> ByteQuota:
    clock: Any = asyncio.get_running_loop()
    return ByteQuota(config, COPY, clock)


async def seconds_for(quota: ByteQuota, size: int) -> float:
    """How long a copy of so many bytes waits."""
    began = asyncio.get_running_loop().time()
    await quota.wait(size)
    return asyncio.get_running_loop().time() - began


@in_virtual_time
async def test_a_copy_waits_until_the_bytes_before_may_have_been_sent() -> None:
    quota = a_quota(BrokerConfig({LIMIT: "1000"}))
    assert await seconds_for(quota, 5000) == 0
    assert 4 < await seconds_for(quota, 5000) < 6
    assert quota.bytes_per_second() > 0
    assert quota.throttled == 1
    assert quota.throttle_ms_max == quota.throttle_ms_total > 4000


@in_virtual_time
async def test_segments_larger_than_the_limit_of_all_windows_keep_to_it() -> None:
    quota = a_quota(BrokerConfig({LIMIT: "1000", "remote.log.manager.copy.quota.window.num": "2"}))
    assert 19 < sum([await seconds_for(quota, 10_000) for _ in range(3)]) < 21


@in_virtual_time
async def test_bytes_that_were_not_sent_do_not_count() -> None:
    quota = a_quota(BrokerConfig({LIMIT: "1000"}))
    await quota.wait(5000)
    quota.give_back(5000)
    assert await seconds_for(quota, 5000) == 0


@in_virtual_time
async def test_a_copy_that_waits_notices_another_limit() -> None:
    config = BrokerConfig({LIMIT: "1"})
    quota = a_quota(config)
    await quota.wait(5000)
    asyncio.get_running_loop().call_later(3, config.update_dynamic, {LIMIT: "1000000"}, {})
    assert 3 <= await seconds_for(quota, 1) < 5


@in_virtual_time
async def test_without_a_limit_nothing_waits() -> None:
    quota = a_quota(BrokerConfig({}))
    for _ in range(100):
        assert await seconds_for(quota, 1 << 30) == 0


@pytest.mark.parametrize(
    ("failures", "random", "wait_ms"),
    [(1, 0.5, 500), (2, 0.5, 1000), (3, 0.5, 2000), (7, 0.5, 30_000), (10_000, 0.5, 30_000), (1, 0.0, 400), (1, 1.0, 600)],
)
def test_the_wait_doubles_up_to_its_limit_and_is_a_little_random(failures: int, random: float, wait_ms: float) -> None:
    settings = RemoteSettings(BrokerConfig({}), 1, lambda: random)
    assert settings.wait_ms(failures) == pytest.approx(wait_ms)


def test_pools_without_a_size_have_that_of_the_tasks() -> None:
    settings = RemoteSettings(BrokerConfig({"remote.log.manager.thread.pool.size": "3"}), 1, lambda: 0.0)
    assert (settings.copiers, settings.expirers) == (3, 3)
    own = BrokerConfig({"remote.log.manager.copier.thread.pool.size": "4", "remote.log.manager.expiration.thread.pool.size": "5"})
    settings = RemoteSettings(own, 1, lambda: 0.0)
    assert (settings.copiers, settings.expirers) == (4, 5)
