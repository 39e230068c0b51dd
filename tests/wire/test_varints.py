"""Unsigned varints of 32 bits, as lengths, counts and tags are written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.schema.wire import InvalidVarint, Truncated, read_uvarint, uvarint


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_written_is_read(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(b"?" + data + b"?", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("value", "data"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")])
def test_seven_bits_a_byte_the_lowest_first(value: int, data: str) -> None:
    assert uvarint(value).hex() == data


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(Truncated):
        read_uvarint(b"\x80\x80", 0)
    with pytest.raises(Truncated):
        read_uvarint(b"", 0)
    with pytest.raises(InvalidVarint):
        read_uvarint(b"\xff" * 11, 0)


def test_five_bytes_are_the_most() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(InvalidVarint):
        read_uvarint(b"\xff\xff\xff\xff\xff\x00", 0)
