"""Selects records by text, key, header, time, or a value in their JSON. Filters cannot contain code."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from ottla.console.parameters import BadParameter
from ottla.protocol.records.reader import Record

MAX_FILTER_CHARACTERS: Final = 1000
"""Length of each text of a filter, characters."""
MAX_JSON_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a value that are parsed as JSON; larger values are not selected by a path."""
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_ABSENT: Final = object()


class RecordFilter(NamedTuple):
    """The conditions of a search; a record has to meet all of them. A condition that is None selects every record."""

    contains: bytes | None = None
    """In the key or the value; ASCII letters match in both cases."""
    key: bytes | None = None
    header: bytes | None = None
    """The name of a header, or its name and value as `NAME=VALUE`."""
    path: tuple[str | int, ...] | None = None
    equals: Any = None
    """The JSON value at `path`, or its text."""
    before_ms: int | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether every record is selected."""
        return self == RecordFilter()

    def takes(self, record: Record) -> bool:
        """Whether the record is selected."""
        if self.before_ms is not None and record.timestamp >= self.before_ms:
            return False
        if self.key is not None and (record.key is None or bytes(record.key) != self.key):
            return False
        if self.contains is not None and not any(
            self.contains in bytes(each).lower() for each in (record.key, record.value) if each is not None
        ):
            return False
        if self.header is not None and not any(self._is_header(name, value) for name, value in record.headers):
            return False
        return self.path is None or (record.value is not None and self._has_value(bytes(record.value)))

    def _is_header(self, name: bytes, value: bytes | None) -> bool:
        return self.header in (name, b"%b=%b" % (name, value or b""))

    def _has_value(self, data: bytes) -> bool:
        assert self.path is not None
        if len(data) > MAX_JSON_BYTES:
            return False
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return False
        for step in self.path:
            if isinstance(step, str) and isinstance(found, dict):
                found = found.get(step, _ABSENT)
            elif isinstance(step, int) and isinstance(found, list) and step < len(found):
                found = found[step]
            else:
                return False
        # True equals 1 in Python, and not in JSON.
        return found is not _ABSENT and found == self.equals and isinstance(found, bool) == isinstance(self.equals, bool)


def record_filter(
    *,
    contains: str | None = None,
    key: str | None = None,
    header: str | None = None,
    path: str | None = None,
    equals: str | None = None,
    before_ms: int | None = None,
) -> RecordFilter:
    """The filter of a request's parameters: `header` is NAME or NAME=VALUE, `path` is like `a.b[0]`. Raises BadParameter."""
    for name, text in (("contains", contains), ("key", key), ("header", header), ("path", path), ("equals", equals)):
        if text is not None and len(text) > MAX_FILTER_CHARACTERS:
            raise BadParameter(f"{name} has more than {MAX_FILTER_CHARACTERS} characters")
    if (path is None) is not (equals is None):
        raise BadParameter("path and equals need each other")
    return RecordFilter(
        contains.encode().lower() if contains else None,
        key.encode() if key is not None else None,
        header.encode() if header else None,
        _steps(path) if path is not None else None,
        _value(equals) if equals is not None else None,
        before_ms,
    )


def _steps(text: str) -> tuple[str | int, ...]:
    found: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise BadParameter("path is no path in JSON; write a.b[0]")
        found.append(step[1] if step[1] is not None else int(step[2]))
        at = step.end()
    return tuple(found)


def _value(text: str) -> Any:
    """The JSON value that a text is, or else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
