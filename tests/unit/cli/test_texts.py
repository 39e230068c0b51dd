"""What people write on a command line, and what records look like when they are printed."""

import os

import pytest
from click import BadParameter, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.options import Amount, amounts, numbers, replica_assignment
from ottla.cli.produce import _reader
from ottla.cli.records.consume_range import limits, start_positions
from ottla.cli.records.record_format import parse_format, unescape
from ottla.cli.records.record_json import NotARecord, json_line, parse_json_line
from ottla.cli.times import parse_span, parse_time
from ottla.client.cluster import Cluster, parse_bootstrap
from ottla.client.errors import ClientError
from ottla.client.producer import OutgoingRecord
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

NOW = 1_700_000_000_000
P0 = TopicPartition("orders", 0)
RECORD = Record(7, NOW, b"k", b"v\xff", ((b"a", b"1"), (b"b", None)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-1h30m", NOW - 5_400_000),
        ("1700000000123", 1_700_000_000_123),
        ("1700000000", NOW),
        ("2023-11-14", 1_699_920_000_000),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T22:13:20.500", NOW + 500),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13:20Z", NOW),
        ("0001-01-01", 0),
        ("-9999w", 0),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("1d12h", 129_600_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("P2W", 1_209_600_000),
    ],
)
def test_spans(text: str, expected: int) -> None:
    assert parse_span(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-soon", "P", "PT", "12", "h", "1x", "9" * 19, f"{'9' * 400}d", f"PT{'9' * 400}S"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a "):
        parse_span(text)
    if text != "12":
        with pytest.raises(ValueError, match="is not a "):
            parse_time(text, NOW)


def test_bootstrap_servers() -> None:
    assert [str(found) for found in parse_bootstrap("a:1, b , [::1]:3,[::2]")] == ["a:1", "b:9092", "[::1]:3", "[::2]:9092"]
    for wrong in ("", ",", "a:x", "a:0", ":9092", "a:70000", "[]:9092", "[::1", "::1]:3", "::", f"a:{'9' * 5000}"):
        with pytest.raises(ClientError):
            parse_bootstrap(wrong)


@pytest.mark.parametrize(("text", "why"), [("9-2", "9-2 in '9-2' runs backwards"), ("1,0-9999999999999", "more than a million numbers")])
def test_a_span_of_numbers_that_cannot_be_meant(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        numbers(text)


def test_a_number_of_thousands_of_digits_is_none() -> None:
    with pytest.raises(UsageError, match="is not a list of numbers"):
        numbers("9" * 5000)
    with pytest.raises(UsageError, match="is not an assignment"):
        replica_assignment("9" * 5000)
    with Cluster("127.0.0.1:1") as cluster:
        for text in ("9" * 5000, f"+{'9' * 5000}", f"-{'9' * 5000}"):
            with pytest.raises(UsageError, match="is none of start, end"):
                start_positions(cluster, [], text, 0)
        with pytest.raises(UsageError, match="is none of end, OFFSET"):
            limits(cluster, [], "9" * 5000, 0)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400"])
def test_no_amount_is_without_end(text: str) -> None:
    with pytest.raises(BadParameter, match=r"is not a finite number|is not in the range"):
        Amount(min=0).convert(text, None, None)


@pytest.mark.parametrize("text", ["nan", "inf", "1e400"])
def test_no_quota_is_without_end(text: str) -> None:
    with pytest.raises(UsageError, match="is not a finite number"):
        amounts([f"request_percentage={text}"], "quota")


def test_lists_of_numbers_and_assignments() -> None:
    assert numbers("0,2,5-7") == [0, 2, 5, 6, 7]
    assert replica_assignment("0:1,1:2,2") == [[0, 1], [1, 2], [2]]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%t-%p@%o\n", b"orders-0@7\n"),
        ("%k=%s", b"k=v\xff"),
        ("%K %S %%", b"1 2 %"),
        ("%T", b"1700000000000"),
        ("%h", b"a=1,b=NULL"),
        ("%R%s", b"\0\0\0\2v\xff"),
        (r"\x1e\t\\\0", b"\x1e\t\\\0"),
        ("ü", "ü".encode()),
    ],
)
def test_formats(template: str, expected: bytes) -> None:
    assert parse_format(template)(P0, RECORD) == expected


def test_nulls_in_formats() -> None:
    tombstone = Record(8, NOW, None, None)
    assert parse_format("%k|%s|%K|%S|%R", null=b"NULL")(P0, tombstone) == b"NULL|NULL|-1|-1|\xff\xff\xff\xff"
    assert parse_format("%k|%s")(P0, tombstone) == b"|"


@pytest.mark.parametrize("wrong", ["%x", "%", "\\q", "\\xzz", "\\"])
def test_what_no_format_has_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):
        parse_format(wrong)


def test_delimiters() -> None:
    assert unescape(r"a\tb\x00") == b"a\tb\0"


def test_arguments_that_are_no_utf_8_are_the_bytes_that_were_typed() -> None:
    argument = os.fsdecode(b"a\xff")
    assert unescape(argument) == b"a\xff"
    assert parse_format(argument)(P0, RECORD) == b"a\xff"
    reader = _reader(argument, None, (f"{argument}={argument}",), None, None, empty_is_null=False)
    assert reader.record(b"v") == OutgoingRecord(b"v", b"a\xff", ((b"a\xff", b"a\xff"),))


TEXTS = st.binary(max_size=12) | st.none() | st.text(max_size=12).map(str.encode)


@given(key=TEXTS, value=TEXTS, headers=st.lists(st.tuples(st.text(max_size=5).map(str.encode), TEXTS), max_size=3), as_base64=st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_printed_as_json_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]], as_base64: bool
) -> None:
    record = Record(3, NOW, key, value, tuple(headers))
    line = json_line(P0, record, TimestampType.CREATE_TIME, as_base64=as_base64)
    assert "\n" not in line
    assert parse_json_line(line.encode(), as_base64=as_base64) == OutgoingRecord(value, key, tuple(headers), 0, NOW)


def test_json_that_others_write_is_understood() -> None:
    assert parse_json_line(b'{"value": {"a": 1}, "headers": {"x": "y"}}', as_base64=False) == OutgoingRecord(
        b'{"a":1}', headers=((b"x", b"y"),)
    )
    assert parse_json_line(b'{"key": 12, "value": null}', as_base64=False) == OutgoingRecord(None, b"12")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"value": "x", "partition": "0"}',
        b'{"value": "x", "headers": [1]}',
        b'{"value_base64": "?"}',
        b'{"value_base64": 1}',
        b'{"value": "\\ud800"}',
        b'{"value": "x", "headers": {"\\ud800": "x"}}',
        b'{"value": ' + b"[" * 200_000,
        b'{"value": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"value": "x", "timestamp": 9223372036854775808}',
    ],
)
def test_lines_that_are_no_records_are_refused(line: bytes) -> None:
    with pytest.raises(NotARecord):
        parse_json_line(line, as_base64=False)
