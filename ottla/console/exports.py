"""Writes records as the lines of files: JSON as `ottla consume --json` has it, or CSV (RFC 4180) that is safe in spreadsheets.

A spreadsheet interprets a cell that begins with certain characters as a formula, which may send data to other hosts or run programs. An
apostrophe precedes such a cell, and also a cell that begins with an apostrophe. So the first apostrophe of a cell is never a part of the
data.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.cli.records.record_json import TIMESTAMP_TYPES, json_headers, json_line
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition

COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key_form", "key", "value_form", "value", "headers", "error"
)  # fmt: skip
"""The columns of CSV. A form is `text`, `base64` or `null`; `error` is empty in all lines but a last one."""
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|['\t\r\n]")
"""Also the wide forms of + - = @, which spreadsheets take for the narrow ones."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters, which are no text of CSV. Tabs and ends of lines are allowed."""


class ExportForm(NamedTuple):
    """A format of exported files. All texts include their line ends."""

    media_type: str
    suffix: str
    heading: str
    line: Callable[[TopicPartition, Record, TimestampType], str]
    error: Callable[[str], str]
    """A last line with an error, for an export that is not complete."""


def csv_line(cells: Sequence[str | int]) -> str:
    """A line of CSV with CRLF at its end: texts are in quotes, and none is a formula."""
    line = io.StringIO(newline="")
    writer = csv.writer(line, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([_no_formula(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue()


def _no_formula(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text


def _csv_record(where: TopicPartition, record: Record, timestamp_type: TimestampType) -> str:
    headers = json.dumps(json_headers(record.headers, as_base64=False), ensure_ascii=False) if record.headers else ""
    own = (where.topic, where.partition, record.offset, record.timestamp, TIMESTAMP_TYPES[timestamp_type])
    return csv_line((*own, *_cells(record.key), *_cells(record.value), headers, ""))


def _cells(data: bytes | None) -> tuple[str, str]:
    """The form of a key or a value, and its text in that form."""
    if data is None:
        return "null", ""
    with suppress(UnicodeDecodeError):
        text = bytes(data).decode()
        if not _CONTROL.search(text):
            return "text", text
    return "base64", base64.b64encode(data).decode()


def _csv_error(text: str) -> str:
    return csv_line((*[""] * (len(COLUMNS) - 1), text))


def _json_record(where: TopicPartition, record: Record, timestamp_type: TimestampType) -> str:
    return json_line(where, record, timestamp_type, as_base64=False) + "\n"


def _json_error(text: str) -> str:
    return json.dumps({"error": text}) + "\n"


EXPORTS: Final = {
    "json": ExportForm("application/x-ndjson", "ndjson", "", _json_record, _json_error),
    "csv": ExportForm("text/csv; charset=utf-8; header=present", "csv", csv_line(COLUMNS), _csv_record, _csv_error),
}
"""The forms by name."""
