"""Decodes and checks answers that the load generator has shown, so that a benchmark does not measure errors."""

import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any

from benchmarks.loadgen.prepared import Prepared
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.records.batch import parse_header
from ottla.protocol.schema.message import Struct
from ottla.protocol.schema.registry import api

_PREFIX = struct.Struct(">II")
_KEY_AND_VERSION = struct.Struct(">hh")


class WrongAnswerError(ValueError):
    """An answer contains an error code, or does not match the request."""


def check_shown(file: IO[bytes], prepared: Sequence[Prepared]) -> int:
    """Check every answer in the file, and return their number. Raises WrongAnswerError, also when an expected answer is missing."""
    missing = {index for index, each in enumerate(prepared) if each.is_shown}
    count = len(missing)
    while head := file.read(_PREFIX.size):
        index, length = _PREFIX.unpack(head)
        check(prepared[index].frame, file.read(length))
        missing.discard(index)
    if missing:
        raise WrongAnswerError(f"no answer to {len(missing)} of {count} frames was seen")
    return count


def check(frame: bytes, answer: bytes) -> None:
    """Check that the answer to a frame, without its length, has no error code and all requested partitions. Raises WrongAnswerError."""
    key, version = _KEY_AND_VERSION.unpack_from(frame, 4)
    found = api(ApiKey(key))
    _, at = RequestHeader.decode(frame, found.request_header_version(version), 4)
    request, _ = found.request.decode(frame, version, at)
    _, at = ResponseHeader.decode(answer, found.response_header_version(version))
    response, end = found.response.decode(answer, version, at)
    name = f"{found.key.name} version {version}"
    if end != len(answer):
        raise WrongAnswerError(f"{name}: {len(answer) - end} bytes behind the answer")
    for where, code in _error_codes(response, name):
        if code:
            raise WrongAnswerError(f"{where}: error code {code}")
    if found.key is ApiKey.PRODUCE:
        _check_produced(name, request, response)
    elif found.key is ApiKey.FETCH:
        _check_fetched(name, request, response)


def _error_codes(message: Struct, where: str) -> Iterator[tuple[str, int]]:
    """Every error code in a message and its nested structures, with its place."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            yield where, value
        elif isinstance(value, list):
            for at, each in enumerate(value):
                if isinstance(each, Struct):
                    yield from _error_codes(each, f"{where}, {name} {at}")


def _check_produced(name: str, request: Any, response: Any) -> None:
    asked = {(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data}
    answered = {(topic.name, data.index) for topic in response.responses for data in topic.partition_responses}
    _check_partitions(name, asked, answered)
    if any(data.base_offset < 0 for topic in response.responses for data in topic.partition_responses):
        raise WrongAnswerError(f"{name}: no offset for a batch")


def _check_fetched(name: str, request: Any, response: Any) -> None:
    asked = {(topic.topic, topic.topic_id, each.partition): each.fetch_offset for topic in request.topics for each in topic.partitions}
    answered = {(topic.topic, topic.topic_id, each.partition_index): each for topic in response.responses for each in topic.partitions}
    # In a session the broker adds partitions with news that this request does not name.
    _check_partitions(name, asked.keys(), answered.keys() & asked.keys() if request.session_id else answered.keys())
    for partition, offset in asked.items():
        records = answered[partition].records
        if not records:
            continue  # caught up; where records must come, too short an answer was noticed
        header = parse_header(records)
        if not header.base_offset <= offset <= header.last_offset:
            raise WrongAnswerError(f"{name}: asked for offset {offset}, got a batch from {header.base_offset}")


def _check_partitions(name: str, asked: Any, answered: Any) -> None:
    if asked != answered:
        raise WrongAnswerError(
            f"{name}: {len(asked)} partitions were asked for, {len(answered)} answered, {len(asked - answered)} are missing"
        )
