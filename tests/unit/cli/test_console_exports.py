"""An export is a file that other programs read without loss, and that does nothing in a spreadsheet."""

import base64
import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.exports import COLUMNS, EXPORTS, csv_line
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from tests.support.console_requests import ConsoleUnderTest

CSV, JSON = EXPORTS["csv"], EXPORTS["json"]
WHERE = TopicPartition("t", 3)
FIRST_CHARACTERS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""What spreadsheets take for the beginning of a formula, or skip before one."""


def a_record(key: bytes | None, value: bytes | None, headers: tuple[tuple[bytes, bytes | None], ...] = ()) -> Record:
    return Record(7, 1_700_000_000_000, key, value, headers)


def read_again(text: str) -> list[dict[str, str]]:
    """The rows of a file by column, as Python's reader of RFC 4180 finds them."""
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert all(len(row) == len(COLUMNS) for row in rows)
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def line_of(record: Record) -> str:
    return CSV.line(WHERE, record, TimestampType.CREATE_TIME)


def data_of(form: str, cell: str) -> bytes | None:
    """The bytes that a cell stands for, as docs/console.md says."""
    text = cell.removeprefix("'")
    if form == "null":
        return None
    return text.encode() if form == "text" else base64.b64decode(text)


def test_a_file_begins_with_the_names_of_its_columns() -> None:
    assert (
        CSV.heading
        == '"topic","partition","offset","timestamp","timestamp_type","key_form","key","value_form","value","headers","error"\r\n'
    )
    assert JSON.heading == ""


@pytest.mark.parametrize(
    ("key", "value", "cells"),
    [
        (b"k", b"v", '"text","k","text","v"'),
        (None, b"", '"null","","text",""'),
        (b'say "a, b"', b"two\r\nlines", '"text","say ""a, b""","text","two\r\nlines"'),
        (b"\xff\x00", b"a\0b", '"base64","/wA=","base64","YQBi"'),
        (b"\xf8\x00", b"\x7f", '"base64","\'+AA=","base64","fw=="'),
        (b"=1+1", b"'quoted", '"text","\'=1+1","text","\'\'quoted"'),
        (b"  @SUM(A1)", "\u202e-7".encode(), '"text","\'  @SUM(A1)","text","\u202e-7"'),
        (b"a=1", b"1-2", '"text","a=1","text","1-2"'),
    ],
)
def test_a_record_is_a_line_of_csv(key: bytes | None, value: bytes | None, cells: str) -> None:
    assert line_of(a_record(key, value)) == f'"t",3,7,1700000000000,"CreateTime",{cells},"",""\r\n'


def test_headers_are_json_in_a_cell() -> None:
    headers = ((b"=h", b"v"), (b"empty", None), (b"raw", b"\xff"))
    (row,) = read_again(line_of(a_record(b"k", b"v", headers)))
    assert json.loads(row["headers"]) == [["=h", "v"], ["empty", None], ["raw", None, "/w=="]]


@given(
    st.one_of(st.none(), st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    st.text(alphabet=FIRST_CHARACTERS + "'a\" ,;", max_size=8),
)
def test_no_cell_is_a_formula_and_no_byte_is_lost(key: bytes | None, value: str) -> None:
    (row,) = read_again(line_of(a_record(key, value.encode())))
    assert data_of(row["key_form"], row["key"]) == key
    assert data_of(row["value_form"], row["value"]) == value.encode()
    for cell in (row["key"], row["value"], row["headers"], row["topic"]):
        assert not cell.startswith(tuple(FIRST_CHARACTERS))
        assert not cell.lstrip().startswith(tuple(FIRST_CHARACTERS))


def test_the_names_of_hostile_topics_and_errors_are_no_formulas() -> None:
    line = CSV.line(TopicPartition("-topic", 0), a_record(None, None), TimestampType.LOG_APPEND_TIME)
    assert read_again(line)[0]["topic"] == "'-topic"
    (row,) = read_again(CSV.error("=the broker went away"))
    assert row["error"] == "'=the broker went away"
    assert set(row.values()) == {"", "'=the broker went away"}


def test_numbers_are_no_texts() -> None:
    assert csv_line((-1, 2**62, "")) == f'-1,{2**62},""\r\n'


def test_an_error_is_the_last_line_of_json() -> None:
    assert json.loads(JSON.error("gone")) == {"error": "gone"}


def test_a_form_that_does_not_exist_is_refused() -> None:
    console = ConsoleUnderTest()
    answer = console.get("/api/v1/topics/t/export?format=xlsx")
    assert (answer.status, answer.error, console.asked) == (400, "format is one of json, csv", 0)


@pytest.mark.parametrize(
    ("query", "suffix", "media_type"), [("", "ndjson", "application/x-ndjson"), ("?format=csv", "csv", CSV.media_type)]
)
def test_an_export_of_a_dead_cluster_is_a_file_that_says_so(query: str, suffix: str, media_type: str) -> None:
    answer = ConsoleUnderTest().get(f"/api/v1/topics/t/export{query}")
    assert answer.headers["content-disposition"] == f'attachment; filename="t.{suffix}"'
    assert answer.headers["content-type"] == media_type
    lines = answer.body.decode().splitlines()
    assert "no broker can be reached" in lines[-1]
    assert len(lines) == (2 if suffix == "csv" else 1)
