"""The reader of OTLP: gauges, sums and histograms with their labels, and bytes that are no metrics."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.telemetry.otlp import MAX_LABELS, MalformedMetrics, Point, points_of
from tests.support.otlp import CUMULATIVE, DELTA, fixed, gauge, histogram, message, metrics, number, point, total, varint

NAME = "org.apache.kafka.producer.connection.count"
PUSH = metrics(
    gauge(NAME, point(3, node="1"), point(2.5)),
    total("sent", point(7)),
    total("kept", point(8), temporality=CUMULATIVE, is_monotonic=False),
    histogram("time", 4, 10.5, node="2"),
    client_rack="r",
)


def test_points_have_the_labels_of_their_own_and_of_their_resource() -> None:
    assert list(points_of(PUSH)) == [
        Point(NAME, {"client_rack": "r", "node": "1"}, 3.0),
        Point(NAME, {"client_rack": "r"}, 2.5),
        Point("sent", {"client_rack": "r"}, 7.0, is_delta=True, is_counter=True),
        Point("kept", {"client_rack": "r"}, 8.0),
        Point("time.count", {"client_rack": "r", "node": "2"}, 4.0, is_delta=True),
        Point("time.sum", {"client_rack": "r", "node": "2"}, 10.5, is_delta=True),
    ]


def test_values_that_are_no_finite_numbers_are_left_out() -> None:
    without_value = message(1, fixed(3, 1))
    not_recorded = message(1, fixed(4, 1.0), number(8, 1))
    points = [point(value) for value in (float("nan"), float("inf"), float("-inf"))]
    assert list(points_of(metrics(gauge("g", *points, without_value, not_recorded)))) == []


def test_values_of_labels_are_texts_numbers_and_truths() -> None:
    values = {"a": message(1, b"x"), "b": number(2, 1), "c": number(3, -5), "d": fixed(4, 1.5), "e": message(7, b"bytes"), "f": b""}
    labels = b"".join(message(7, message(1, key.encode()), message(2, value)) for key, value in values.items())
    (found,) = points_of(metrics(gauge("g", message(1, fixed(6, 1), labels))))
    assert found.labels == {"a": "x", "b": "true", "c": "-5", "d": "1.5"}


def test_labels_beyond_the_limits_are_left_out() -> None:
    many = {f"l{at}": "x" for at in range(MAX_LABELS + 5)}
    (found,) = points_of(metrics(gauge("g", point(1, **many, long="y" * 257))))
    assert len(found.labels) == MAX_LABELS
    assert list(points_of(metrics(gauge("n" * 257, point(1))))) == []


def test_unknown_fields_are_skipped() -> None:
    unknown = number(99, 5) + fixed(98, 1.0) + message(97, b"x") + varint(96 << 3 | 5) + b"1234"
    data = metrics(message(2, unknown, message(1, b"g"), unknown, message(5, unknown, message(1, fixed(6, 9), unknown))))
    assert [(each.name, each.value) for each in points_of(unknown + data)] == [("g", 9.0)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "a number is cut off at byte 1"),
        (b"\x0a\x05abc", "the field at byte 0 claims 5 bytes where 3 remain of 5"),
        (b"\x00\x01", "the field at byte 0 has no valid number"),
        (b"\x0b", "the field at byte 0 has the unknown type 3"),
        (b"\x09abc", "the field at byte 0 claims 8 bytes where 3 remain of 4"),
        (b"\xff" * 11, "a number before byte 10 is too long"),
        (metrics(message(2, message(1, b"\xff"))), "is not UTF-8"),
        (b"no metrics", "the field at byte 0 has the unknown type 6"),
    ],
)
def test_malformed_bytes_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMetrics, match=reason):
        list(points_of(data))


@given(st.integers(0, len(PUSH) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_truncated_and_changed_bytes_have_points_or_are_refused(at: int, inserted: bytes, removed: int) -> None:
    for data in (PUSH[:at], PUSH[:at] + inserted + PUSH[at + removed :]):
        try:
            for each in points_of(data):
                assert each.value - each.value == 0, "finite"
                assert all(isinstance(text, str) for text in each.labels.values())
        except MalformedMetrics:
            pass


@given(st.binary(max_size=200))
def test_random_bytes_have_points_or_are_refused(data: bytes) -> None:
    with suppress(MalformedMetrics):
        list(points_of(data))


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=60), st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False))
    ),
    st.sampled_from((DELTA, CUMULATIVE)),
)
def test_what_was_written_is_read(values: list[tuple[str, float]], temporality: int) -> None:
    data = metrics(*(total(name, point(value), temporality=temporality) for name, value in values))
    assert [(each.name, each.value, each.is_delta) for each in points_of(data)] == [
        (name, float(value), temporality == DELTA) for name, value in values
    ]
