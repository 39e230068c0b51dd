"""Reads metrics in the format OTLP of OpenTelemetry: a protobuf message MetricsData, as clients push it (KIP-714).

Pure. The reader is strict about protobuf: lengths, numbers and texts are checked, and groups, which OTLP does not have, are malformed.
Fields that are not needed are skipped: exemplars, buckets, summaries, exponential histograms, scopes. A histogram has two values, the
number and the sum of its measurements. Values that are no finite numbers are left out.

Labels are those of the point and of its resource. They are limited in number and length, because the labels of a resource belong to each
of its points.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Final, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_LABELS: Final = 32
"""Most labels of a point. Further ones are ignored."""
MAX_TEXT_BYTES: Final = 256
"""Longest name of a metric, and longest name or value of a label. A metric with a longer name is left out, and so is such a label."""

_MAX_VARINT_BYTES: Final = 10
_MAX_TAG: Final = 2**32 - 1
_DELTA: Final = 1
_NO_RECORDED_VALUE: Final = 1
_DOUBLE: Final = struct.Struct("<d")
_INTEGER: Final = struct.Struct("<q")
_COUNT: Final = struct.Struct("<Q")

Labels = dict[str, str]
Field = tuple[int, int, int]
"""Tag, then the number of a VARINT or the position where the others begin, then the position behind the field."""


class MalformedMetrics(Exception):
    """The bytes are no MetricsData."""


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    labels: Labels
    value: float
    is_delta: bool = False
    """Whether the value is the change since the previous push."""
    is_counter: bool = False
    """Whether the value never falls."""


def _tag(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


# MetricsData, ResourceMetrics, Resource, ScopeMetrics
_RESOURCE_METRICS: Final = _tag(1, BYTES)
_RESOURCE, _SCOPE_METRICS = _tag(1, BYTES), _tag(2, BYTES)
_RESOURCE_ATTRIBUTES: Final = _tag(1, BYTES)
_METRICS: Final = _tag(2, BYTES)
# Metric
_NAME, _GAUGE, _SUM, _HISTOGRAM = _tag(1, BYTES), _tag(5, BYTES), _tag(7, BYTES), _tag(9, BYTES)
# Gauge, Sum, Histogram
_DATA_POINTS, _TEMPORALITY, _IS_MONOTONIC = _tag(1, BYTES), _tag(2, VARINT), _tag(3, VARINT)
# NumberDataPoint
_AS_DOUBLE, _AS_INT, _ATTRIBUTES, _FLAGS = _tag(4, FIXED64), _tag(6, FIXED64), _tag(7, BYTES), _tag(8, VARINT)
# HistogramDataPoint
_HISTOGRAM_COUNT, _HISTOGRAM_SUM, _HISTOGRAM_ATTRIBUTES, _HISTOGRAM_FLAGS = (
    _tag(4, FIXED64),
    _tag(5, FIXED64),
    _tag(9, BYTES),
    _tag(10, VARINT),
)
# KeyValue, AnyValue
_KEY, _VALUE = _tag(1, BYTES), _tag(2, BYTES)
_TEXT, _BOOL, _INT, _FLOAT = _tag(1, BYTES), _tag(2, VARINT), _tag(3, VARINT), _tag(4, FIXED64)


def points_of(data: bytes, pause: Callable[[], None] = lambda: None) -> Iterator[Point]:
    """The points of a MetricsData, in its order. `pause` is called for each field. Raises MalformedMetrics, perhaps behind some points."""
    return _Reader(data, pause).points()


class _Reader:
    """Reads one MetricsData. Fields of a message have any order, so a message is read once for what describes its parts, then for these."""

    __slots__ = ("_data", "_pause")

    def __init__(self, data: bytes, pause: Callable[[], None]) -> None:
        self._data = data
        self._pause = pause

    def points(self) -> Iterator[Point]:
        for tag, at, end in self._fields(0, len(self._data)):
            if tag == _RESOURCE_METRICS:
                yield from self._of_resource(at, end)

    def _of_resource(self, at: int, end: int) -> Iterator[Point]:
        labels: Labels = {}
        for tag, begin, stop in self._fields(at, end):
            if tag == _RESOURCE:
                for inner, inner_at, inner_end in self._fields(begin, stop):
                    if inner == _RESOURCE_ATTRIBUTES:
                        self._add_label(labels, inner_at, inner_end)
        for tag, begin, stop in self._fields(at, end):
            if tag == _SCOPE_METRICS:
                for inner, inner_at, inner_end in self._fields(begin, stop):
                    if inner == _METRICS:
                        yield from self._of_metric(inner_at, inner_end, labels)

    def _of_metric(self, at: int, end: int, labels: Labels) -> Iterator[Point]:
        name = None
        for tag, begin, stop in self._fields(at, end):
            if tag == _NAME:
                name = self._text(begin, stop)
        for tag, begin, stop in self._fields(at, end):
            if tag in (_GAUGE, _SUM):
                yield from self._numbers(name, begin, stop, labels, is_sum=tag == _SUM)
            elif tag == _HISTOGRAM:
                yield from self._histograms(name, begin, stop, labels)

    def _numbers(self, name: str | None, at: int, end: int, labels: Labels, *, is_sum: bool) -> Iterator[Point]:
        is_delta = is_monotonic = False
        for tag, value, _ in self._fields(at, end):
            if is_sum and tag == _TEMPORALITY:
                is_delta = value == _DELTA
            elif is_sum and tag == _IS_MONOTONIC:
                is_monotonic = value != 0
        for tag, begin, stop in self._fields(at, end):
            if tag == _DATA_POINTS:
                number, own = self._number(begin, stop, labels)
                if name and number is not None and isfinite(number):
                    yield Point(name, own, number, is_delta, is_monotonic)

    def _number(self, at: int, end: int, labels: Labels) -> tuple[float | None, Labels]:
        own = dict(labels)
        number: float | None = None
        is_recorded = True
        for tag, begin, stop in self._fields(at, end):
            if tag == _AS_DOUBLE:
                (number,) = _DOUBLE.unpack_from(self._data, begin)
            elif tag == _AS_INT:
                number = float(_INTEGER.unpack_from(self._data, begin)[0])
            elif tag == _ATTRIBUTES:
                self._add_label(own, begin, stop)
            elif tag == _FLAGS:
                is_recorded = not begin & _NO_RECORDED_VALUE
        return number if is_recorded else None, own

    def _histograms(self, name: str | None, at: int, end: int, labels: Labels) -> Iterator[Point]:
        is_delta = False
        for tag, value, _ in self._fields(at, end):
            if tag == _TEMPORALITY:
                is_delta = value == _DELTA
        for tag, begin, stop in self._fields(at, end):
            if tag == _DATA_POINTS:
                yield from self._histogram(name, begin, stop, labels, is_delta=is_delta)

    def _histogram(self, name: str | None, at: int, end: int, labels: Labels, *, is_delta: bool) -> Iterator[Point]:
        own = dict(labels)
        count = total = None
        is_recorded = True
        for tag, begin, stop in self._fields(at, end):
            if tag == _HISTOGRAM_COUNT:
                count = float(_COUNT.unpack_from(self._data, begin)[0])
            elif tag == _HISTOGRAM_SUM:
                (total,) = _DOUBLE.unpack_from(self._data, begin)
            elif tag == _HISTOGRAM_ATTRIBUTES:
                self._add_label(own, begin, stop)
            elif tag == _HISTOGRAM_FLAGS:
                is_recorded = not begin & _NO_RECORDED_VALUE
        if name and is_recorded:
            for suffix, value in ((".count", count), (".sum", total)):
                if value is not None and isfinite(value):
                    yield Point(name + suffix, own, value, is_delta)

    def _add_label(self, labels: Labels, at: int, end: int) -> None:
        key = value = None
        for tag, begin, stop in self._fields(at, end):
            if tag == _KEY:
                key = self._text(begin, stop)
            elif tag == _VALUE:
                value = self._any_value(begin, stop)
        if key and value is not None and (key in labels or len(labels) < MAX_LABELS):
            labels[key] = value

    def _any_value(self, at: int, end: int) -> str | None:
        """The text of a value; None for lists, bytes, and what is too long."""
        value = None
        for tag, begin, stop in self._fields(at, end):
            if tag == _TEXT:
                value = self._text(begin, stop)
            elif tag == _BOOL:
                value = "true" if begin else "false"
            elif tag == _INT:
                value = str(begin - 2**64 if begin >= 2**63 else begin)
            elif tag == _FLOAT:
                value = str(_DOUBLE.unpack_from(self._data, begin)[0])
        return value

    def _text(self, at: int, end: int) -> str | None:
        """A text; None if it is too long."""
        try:
            text = self._data[at:end].decode()
        except UnicodeDecodeError as error:
            raise MalformedMetrics(f"a text at byte {at} is not UTF-8: {error.reason}") from None
        return text if end - at <= MAX_TEXT_BYTES else None

    def _fields(self, at: int, end: int) -> Iterator[Field]:
        data = self._data
        while at < end:
            self._pause()
            begin = at
            tag, at = self._varint(at, end)
            if not 8 <= tag <= _MAX_TAG:
                raise MalformedMetrics(f"the field at byte {begin} has no valid number")
            wire_type = tag & 7
            if wire_type == VARINT:
                value, at = self._varint(at, end)
                yield tag, value, at
                continue
            if wire_type == BYTES:
                size, at = self._varint(at, end)
            elif wire_type == FIXED64:
                size = 8
            elif wire_type == FIXED32:
                size = 4
            else:
                raise MalformedMetrics(f"the field at byte {begin} has the unknown type {wire_type}")
            if size > end - at:
                raise MalformedMetrics(f"the field at byte {begin} claims {size} bytes where {end - at} remain of {len(data)}")
            yield tag, at, at + size
            at += size

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        data = self._data
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            if at >= end:
                raise MalformedMetrics(f"a number is cut off at byte {at}")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value & (2**64 - 1), at
        raise MalformedMetrics(f"a number before byte {at} is too long")
