"""Converts records to lines of JSON and back: `consume --json` prints them, `produce --json` reads them.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v", "headers": [["name", "value"]]}

Bytes that are not UTF-8 are in base64 under a name with the suffix `_base64` (`value_base64`, and for headers [name,
null, value]), so that nothing is lost. With the base64 option all bytes are base64 under the names without suffix. Null
is null.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any

from ottla.client.producer import OutgoingRecord
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.topic_partition import TopicPartition

_SUFFIX = "_base64"
TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
"""The names of the types in lines."""
_WITH_BYTES = 3
_INT64 = range(-(2**63), 2**63)


class NotARecord(ValueError):
    """A line that is not a record; the message has the reason."""


def json_line(partition: TopicPartition, record: Record, timestamp_type: TimestampType, *, as_base64: bool) -> str:
    """One record as one line without a line end."""
    found: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[timestamp_type],
    }
    for name, data in (("key", record.key), ("value", record.value)):
        text = _text(data, as_base64)
        if data is None or text is not None:
            found[name] = text
        else:
            found[name + _SUFFIX] = base64.b64encode(data).decode()
    found["headers"] = json_headers(record.headers, as_base64=as_base64)
    return json.dumps(found, ensure_ascii=False)


def json_headers(headers: Iterable[Header], *, as_base64: bool) -> list[list[str | None]]:
    """The headers of a record as they are in a line."""
    return [_json_header(header, as_base64) for header in headers]


def _text(data: bytes | None, as_base64: bool) -> str | None:
    if data is None:
        return None
    if as_base64:
        return base64.b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _json_header(header: Header, as_base64: bool) -> list[str | None]:
    key, value = header
    text = _text(value, as_base64)
    name = key.decode("utf-8", "replace")
    return [name, text] if value is None or text is not None else [name, None, base64.b64encode(value).decode()]


def parse_json_line(line: bytes, *, as_base64: bool) -> OutgoingRecord:
    """The record of a line. Topic and offset are ignored; partition and timestamp are used unless the command sets
    them.

    Values that are not strings are stored as their JSON text. Raises NotARecord.
    """
    try:
        return _record(json.loads(line), as_base64)
    except NotARecord:
        raise
    except RecursionError:
        raise NotARecord("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise NotARecord("it has half of a surrogate pair, which is no character") from None
    except ValueError as error:
        raise NotARecord(f"it is not JSON: {error}") from None


def _record(found: object, as_base64: bool) -> OutgoingRecord:
    if not isinstance(found, dict):
        raise NotARecord("it is not a JSON object")
    if not found.keys() & {"key", "value", "key" + _SUFFIX, "value" + _SUFFIX}:
        raise NotARecord('it has neither "key" nor "value"')
    return OutgoingRecord(
        _bytes(found, "value", as_base64),
        _bytes(found, "key", as_base64),
        _headers(found.get("headers"), as_base64),
        _number(found, "partition"),
        _number(found, "timestamp"),
    )


def _bytes(found: dict[str, Any], name: str, as_base64: bool) -> bytes | None:
    if (encoded := found.get(name + _SUFFIX)) is not None:
        return _decoded(encoded, name + _SUFFIX)
    return _field_bytes(found.get(name), name, as_base64)


def _field_bytes(value: object, name: str, as_base64: bool) -> bytes | None:
    if value is None:
        return None
    if as_base64:
        return _decoded(value, name)
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _decoded(value: Any, name: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # other types raise
    except (binascii.Error, TypeError, ValueError):
        raise NotARecord(f'"{name}" is not base64') from None


def _number(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and type(value) is not int:
        raise NotARecord(f'"{name}" is not an integer')
    if value is not None and value not in _INT64:
        raise NotARecord(f'"{name}" is out of range')
    return value


def _headers(value: object, as_base64: bool) -> tuple[Header, ...]:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise NotARecord('"headers" is neither a list of pairs nor an object')
    found: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) not in (2, _WITH_BYTES) or not isinstance(pair[0], str):
            raise NotARecord(f'"headers" has {pair!r}, which is not a pair of name and value')
        data = _decoded(pair[2], "headers") if len(pair) == _WITH_BYTES else _field_bytes(pair[1], "headers", as_base64)
        found.append((pair[0].encode(), data))
    return tuple(found)
