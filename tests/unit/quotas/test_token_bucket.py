"""The quota for partitions that are created and deleted (KIP-599): strict for new versions of a request, permissive for old ones."""

import pytest

from ottla.broker.quotas.quota_bounds import Tags
from ottla.broker.quotas.sensors import Average, Rate
from ottla.broker.quotas.token_bucket import MutationQuota, TokenBucket
from ottla.controller.errors import ThrottlingQuotaExceeded


def a_bucket(bound: float = 10, seconds: int = 10) -> TokenBucket:
    bucket = TokenBucket(Tags("alice", ""), seconds, Rate(2, 30_000, 0), Average(2, 30_000, 0), 0)
    bucket.bound = bound
    return bucket


class Request:
    """A request on a bucket whose time is set by hand."""

    def __init__(self, bucket: TokenBucket | None, *, is_strict: bool) -> None:
        self.now_ms = 0
        self.quota = MutationQuota(bucket, lambda: self.now_ms, is_strict=is_strict)


def test_a_new_bucket_is_full_and_holds_what_flows_in_during_all_windows() -> None:
    bucket = a_bucket()
    assert bucket.tokens(0) == 100
    assert bucket.tokens(60_000) == 100
    bucket.take(60, 60_000)
    assert bucket.tokens(60_000) == 40
    assert bucket.tokens(61_500) == 55


def test_a_strict_quota_takes_any_number_until_it_is_exhausted() -> None:
    request = Request(a_bucket(), is_strict=True)
    request.quota.take(90)
    assert request.quota.throttle_time_ms() == 0
    request.quota.take(90)  # the bucket is at -80 now
    assert request.quota.throttle_time_ms() == 0
    with pytest.raises(ThrottlingQuotaExceeded):
        request.quota.take(90)
    assert request.quota.throttle_time_ms() == 8000
    request.now_ms = 5000
    assert request.quota.throttle_time_ms() == 3000


def test_a_refused_request_takes_nothing() -> None:
    bucket = a_bucket()
    bucket.take(110, 0)
    request = Request(bucket, is_strict=True)
    with pytest.raises(ThrottlingQuotaExceeded):
        request.quota.take(110)
    assert bucket.tokens(0) == -10
    request.now_ms = 1000
    request.quota.take(110)
    assert bucket.tokens(1000) == -110


def test_a_permissive_quota_refuses_nothing_and_throttles_afterwards() -> None:
    request = Request(a_bucket(), is_strict=False)
    request.quota.take(90)
    assert request.quota.throttle_time_ms() == 0
    request.quota.take(90)
    assert request.quota.throttle_time_ms() == 8000
    request.quota.take(90)
    assert request.quota.throttle_time_ms() == 17_000
    request.now_ms = 5000
    assert request.quota.throttle_time_ms() == 12_000


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_client_without_a_quota_is_not_limited(is_strict: bool) -> None:
    request = Request(None, is_strict=is_strict)
    request.quota.take(1_000_000)
    assert request.quota.throttle_time_ms() == 0


def test_a_quota_of_zero_refuses_all_but_the_first() -> None:
    request = Request(a_bucket(0), is_strict=True)
    request.quota.take(1)
    with pytest.raises(ThrottlingQuotaExceeded):
        request.quota.take(1)


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_quota_that_is_not_a_number_limits_nobody_and_leaves_the_bucket_whole(is_strict: bool) -> None:
    bucket = a_bucket(float("nan"))
    request = Request(bucket, is_strict=is_strict)
    request.quota.take(1_000)
    request.quota.take(1_000)
    assert request.quota.throttle_time_ms() == 0
    bucket.bound = 10
    assert bucket.tokens(0) == 100


def test_a_changed_quota_counts_at_once() -> None:
    bucket = a_bucket()
    bucket.take(150, 0)
    bucket.bound = 50
    assert bucket.throttle_time_ms(0) == 1000
    bucket.bound = 1
    assert bucket.tokens(600_000) == 10


def test_the_rate_of_mutations_is_measured() -> None:
    bucket = a_bucket()
    bucket.take(60, 0)
    assert bucket.mutation_rate.per_second(0) == 2
