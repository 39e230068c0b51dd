"""Decompressed pieces are joined in order, whatever was expected, and long ones while other threads run."""

import sys
import threading

import pytest

from ottla.protocol.compiled import IS_COMPILED
from ottla.protocol.records.joined import Joined, give_back

LONG = 1 << 20


@pytest.mark.parametrize("expected", [0, 1, 7, 10 * LONG])
def test_the_pieces_follow_each_other(expected: int) -> None:
    pieces = [b"", b"a", b"bc" * 100, bytes(range(256)) * 4096, b"", b"z"]
    joined = Joined(expected)
    for number, piece in enumerate(pieces):
        joined.add(piece)
        assert bytes(joined.view()) == b"".join(pieces[: number + 1])
    assert joined.size == len(joined.view())


def test_a_view_of_another_buffer_is_a_piece() -> None:
    first = Joined(2)
    first.add(b"abc")
    second = Joined(0)
    second.add(first.view()[1:])
    second.add(memoryview(b"d"))
    assert bytes(second.view()) == b"bcd"


def test_the_view_can_be_written_and_outlives_its_owner() -> None:
    joined = Joined(0)
    joined.add(b"abc")
    view = joined.view()
    del joined
    view[0] = ord("x")
    assert bytes(view) == b"xbc"


def test_pieces_are_added_in_several_threads_at_the_same_time() -> None:
    """Each has a buffer of its own."""

    def add(letter: bytes, into: dict[bytes, bytes]) -> None:
        joined = Joined(LONG)
        for _ in range(20):
            joined.add(letter * LONG)
        into[letter] = bytes(joined.view())

    found: dict[bytes, bytes] = {}
    threads = [threading.Thread(target=add, args=(letter, found)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {letter: letter * 20 * LONG for letter in (b"a", b"b", b"c")}


@pytest.mark.parametrize("start", [0, 1, 70_000, 1_000_000])
def test_memory_that_is_given_back_keeps_what_is_before_and_can_be_freed(start: int) -> None:
    data = bytearray(b"x" * 1_000_000)
    give_back(data, start)
    assert data[:start] == b"x" * start
    del data[start:]
    assert len(data) == start


def test_the_system_has_memory_that_is_given_back() -> None:
    data = bytearray(b"x" * LONG)
    give_back(data)
    assert (data.count(0) > LONG // 2) == (IS_COMPILED and sys.platform == "linux")


@pytest.mark.parametrize("start", [-1, 11])
def test_no_memory_beyond_a_buffer_is_given_back(start: int) -> None:
    with pytest.raises(IndexError):
        give_back(memoryview(bytearray(10)), start)
