"""Keys go where Java's producer puts them; what has no key stays together for a batch."""

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as aiokafkas_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.producer import StickyPartition
from ottla.protocol.murmur2 import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_apache_kafkas_own_test(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@given(st.binary(max_size=40))
@settings(max_examples=100, deadline=None)
def test_murmur2_is_that_of_another_client(data: bytes) -> None:
    assert murmur2(data) == aiokafkas_murmur2(data) % 2**32


def test_a_key_always_goes_to_the_same_partition() -> None:
    spread = Counter(partition_of_key(b"key-%d" % number, 6) for number in range(600))
    assert set(spread) == set(range(6))
    assert min(spread.values()) > 60


def test_records_without_a_key_change_the_partition_with_the_batch() -> None:
    sticky = StickyPartition(lambda available: available[0])
    assert [sticky.current([0, 1, 2]) for _ in range(3)] == [0, 0, 0]
    sticky.next_batch([0, 1, 2])
    assert sticky.current([0, 1, 2]) == 1
    sticky.next_batch([1])
    assert sticky.current([1]) == 1


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartition(lambda available: available[-1])
    assert sticky.current([0, 1]) == 1
    assert sticky.current([0]) == 0
