"""Varints, signed and unsigned, of 32 and 64 bits."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.wire import (
    InvalidVarint,
    Truncated,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    uvarint,
    varint,
    varlong,
)

Reader = Callable[[bytes, int], tuple[int, int]]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_is_read(unsigned: int, signed: int, long: int) -> None:
    for value, write, read in ((unsigned, uvarint, read_uvarint), (signed, varint, read_varint), (long, varlong, read_varlong)):
        data = write(value)
        assert read(b"?" + data + b"?", 1) == (value, 1 + len(data))
    assert read_uvarlong(uvarint(unsigned), 0)[0] == unsigned


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-(2**31), "ffffffff0f"), (2**31 - 1, "feffffff0f")],
)
def test_zigzag_is_kafkas(value: int, data: str) -> None:
    assert varint(value).hex() == data


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_uvarlong, read_varlong])
def test_a_varint_that_does_not_end_is_refused(read: Reader) -> None:
    with pytest.raises(Truncated):
        read(b"\x80\x80", 0)
    with pytest.raises(Truncated):
        read(b"", 0)
    with pytest.raises(InvalidVarint):
        read(b"\xff" * 11, 0)


def test_five_bytes_are_the_most_of_32_bits_and_ten_of_64() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(InvalidVarint):
        read_uvarint(b"\xff\xff\xff\xff\xff\x00", 0)
    assert read_uvarlong(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
