"""A stream is cut into frames under a limit, however it arrives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.schema.framing import FrameReader, InvalidFrame, frame, frame_length


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(1, 17))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(frame(body) for body in bodies)
    reader = FrameReader(max_bytes=64)
    found = [body for start in range(0, len(stream), step) for body in reader.feed(stream[start : start + step])]
    assert found == bodies
    assert list(reader.feed(frame(b"next"))) == [b"next"]


def test_an_empty_frame_is_a_frame() -> None:
    assert list(FrameReader(10).feed(frame(b""))) == [b""]


@pytest.mark.parametrize("length", [-1, -(2**31), 11, 2**31 - 1])
def test_a_negative_or_oversized_length_is_refused_before_its_body_comes(length: int) -> None:
    reader = FrameReader(max_bytes=10)
    with pytest.raises(InvalidFrame) as caught:
        list(reader.feed(length.to_bytes(4, "big", signed=True)))
    assert (caught.value.length, caught.value.max_bytes) == (length, 10)


def test_frames_before_a_bad_length_are_handed_out() -> None:
    frames = FrameReader(10).feed(frame(b"good") + b"\xff" * 4)
    assert next(frames) == b"good"
    with pytest.raises(InvalidFrame):
        next(frames)


def test_a_frame_is_made_of_parts_without_joining_them_first() -> None:
    assert frame(b"ab", memoryview(b"cd")) == b"\x00\x00\x00\x04abcd"
    assert frame_length(b"\x00\x00\x00\x04", 0, 4) == 4


def test_half_a_frame_waits() -> None:
    reader = FrameReader(10)
    assert list(reader.feed(b"\x00\x00\x00\x04ab")) == []
    assert list(reader.feed(b"cd")) == [b"abcd"]
