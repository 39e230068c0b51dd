"""Decoders and encoders in steps do what those at once do, one element of an array after the other."""

from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from ottla.pauses import in_slices
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema.wire import ProtocolError
from tests.support.golden_frames import CAPTURES, golden_frames
from tests.support.pauses import at_once

_T = TypeVar("_T")


def taken(steps: Generator[None, None, _T]) -> tuple[int, _T]:
    """How many steps there were, and what came of them."""
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        return count, end.value


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES)
def test_every_recorded_frame_is_read_and_written_in_steps_as_at_once(capture: str) -> None:
    for frame in golden_frames(capture):
        _, offset = frame.header_class.decode(frame.data, frame.header_version)
        body, end = frame.body_class.decode(frame.data, frame.version, offset)
        assert taken(frame.body_class.decode_steps(frame.data, frame.version, offset))[1] == (body, end), frame.where
        assert b"".join(taken(body.encode_steps(frame.version))[1]) == body.encode(frame.version), frame.where


def test_a_step_is_one_element() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(10_000)])
    steps, parts = taken(request.encode_steps(12))
    assert steps >= 10_000
    assert len(parts) > 1
    data = b"".join(parts)
    assert data == request.encode(12)
    assert taken(MetadataRequest.decode_steps(data, 12))[0] >= 10_000


def test_a_tagged_field_is_a_step_of_decoding() -> None:
    request = MetadataRequest(topics=[])
    request.unknown_tagged_fields = {100 + number: b"" for number in range(1_000)}
    steps, (decoded, _) = taken(MetadataRequest.decode_steps(request.encode(12), 12))
    assert steps >= 1_000
    assert decoded == request


def outcome(decode: Callable[[], object]) -> object:
    """What decoding comes to: the message, or what is wrong."""
    try:
        return decode()
    except ProtocolError as error:
        return type(error), str(error)


def test_damaged_bytes_are_wrong_in_the_same_way() -> None:
    random = Random(20240603)
    frames = [frame for frame in golden_frames("clients") if frame.is_request]
    for _ in range(1000):
        frame = random.choice(frames)
        damaged = bytearray(frame.data)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        data = bytes(damaged[: random.randrange(len(damaged)) if random.random() < 0.3 else len(damaged)])
        _, offset = frame.header_class.decode(frame.data, frame.header_version)
        where = data, frame.version, offset
        steps = frame.body_class.decode_steps(*where)
        assert outcome(lambda steps=steps: taken(steps)[1]) == outcome(partial(frame.body_class.decode, *where)), frame.where


def test_long_names_are_joined_in_parts_that_take_little_time() -> None:
    """A part of 48 MB takes 20 ms, in which nobody else is served."""
    results = [DeletableGroupResult(group_id="x" * 32_000) for _ in range(1500)]
    parts = at_once(in_slices(DeleteGroupsResponse(results=results).encode_steps(2)))
    assert sum(map(len, parts)) > 48_000_000
    assert max(map(len, parts)) < 9_000_000
