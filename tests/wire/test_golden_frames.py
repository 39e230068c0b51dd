"""Every recorded frame of real clients and brokers decodes, and encodes again to the same bytes."""

import pytest

from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema.message import Message
from tests.support.golden_frames import CAPTURES, GoldenFrame, all_golden_frames, golden_frames

# librdkafka says 3 bytes more than it means in Metadata 12, and one in AlterUserScramCredentials.
KNOWN_TRAILING_BYTES = {("MetadataRequest", 3), ("AlterUserScramCredentialsRequest", 1)}


def decode(frame: GoldenFrame, data: bytes | memoryview) -> tuple[Message, Message, int]:
    header, offset = frame.header_class.decode(data, frame.header_version)
    body, end = frame.body_class.decode(data, frame.version, offset)
    return header, body, end


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_recorded_frame_encodes_again_to_the_same_bytes(capture: str) -> None:
    for frame in golden_frames(capture):
        header, body, end = decode(frame, frame.data)
        trailing = len(frame.data) - end
        assert trailing == 0 or (type(body).__name__, trailing) in KNOWN_TRAILING_BYTES, frame.where
        assert header.encode(frame.header_version) + body.encode(frame.version) == frame.data[:end], frame.where


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_view_and_bytes_decode_to_equal_messages(capture: str) -> None:
    for frame in golden_frames(capture):
        assert decode(frame, frame.data) == decode(frame, memoryview(bytearray(frame.data))), frame.where


@pytest.mark.parametrize("capture", CAPTURES)
def test_parts_joined_are_the_encoded_message(capture: str) -> None:
    for frame in golden_frames(capture):
        _, body, _ = decode(frame, frame.data)
        assert b"".join(body.encode_parts(frame.version)) == body.encode(frame.version), frame.where


def test_a_message_is_found_at_an_offset_inside_other_bytes() -> None:
    for frame in golden_frames("sweep"):
        header, body, end = decode(frame, frame.data)
        shifted = b"\xff" * 11 + frame.data + b"\xff" * 5
        again, offset = frame.header_class.decode(shifted, frame.header_version, 11)
        body_again, end_again = frame.body_class.decode(shifted, frame.version, offset)
        assert (again, body_again, end_again) == (header, body, end + 11), frame.where


def test_the_captures_hold_every_client_facing_version() -> None:
    seen = {(frame.api.key, frame.version) for frame in all_golden_frames() if frame.is_request}
    assert len(seen) >= 259


def test_request_headers_name_the_api_and_version_of_the_frame() -> None:
    for frame in all_golden_frames():
        if frame.is_request:
            header, _ = RequestHeader.decode(frame.data, frame.header_version)
            assert (header.request_api_key, header.request_api_version) == (frame.api.key, frame.version), frame.where
