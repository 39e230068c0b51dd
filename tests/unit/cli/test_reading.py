"""Reading pieces from a pipe, plans from files, and what of a log a transactional reader sees."""

import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click import UsageError

from ottla.cli.offset_reset import read_plan
from ottla.cli.output import cell_text, print_table
from ottla.cli.produce import _reader
from ottla.cli.records import record_input
from ottla.cli.records.record_input import LineReader, pieces
from ottla.cli.users import _password
from ottla.client.errors import ClientError
from ottla.client.fetcher import AbortedFilter
from ottla.client.producer import OutgoingRecord
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.segment.transaction_index import TransactionIndex
from tests.support.golden_logs import LOGS


@contextmanager
def a_pipe(*written: bytes, delimiter: bytes = b"\n") -> Iterator[Iterator[bytes | None]]:
    """Pieces of a pipe into which each part is written when the one before was read."""
    reading, writing = os.pipe()
    waiting = list(written)

    def patience() -> float | None:
        if waiting:
            os.write(writing, waiting.pop(0))
        elif patience.open:  # type: ignore[attr-defined]  # a flag of this function
            patience.open = False  # type: ignore[attr-defined]  # likewise
            os.close(writing)
        return None

    patience.open = True  # type: ignore[attr-defined]  # likewise
    try:
        yield pieces(reading, delimiter, patience)
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("written", "delimiter", "expected"),
    [
        ([b"a\nb\n"], b"\n", [b"a", b"b"]),
        ([b"a\nb"], b"\n", [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n", b"\n"], b"\n", [b"ab", b"c", b""]),
        ([b"a;", b";b;;"], b";;", [b"a", b"b"]),
        ([b"a-", b"-", b">b--", b"c"], b"-->", [b"a", b"b--c"]),
        ([], b"\n", []),
    ],
)
def test_pieces_stand_between_delimiters(written: list[bytes], delimiter: bytes, expected: list[bytes]) -> None:
    with a_pipe(*written, delimiter=delimiter) as found:
        assert list(found) == expected


def test_a_large_piece_is_not_copied_at_each_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "_READ_BYTES", 4096)
    (tmp_path / "large").write_bytes(b"x" * (16 << 20) + b"\ny")
    with (tmp_path / "large").open("rb", buffering=0) as file:
        began = time.process_time()
        found = [len(each or b"") for each in pieces(file.fileno(), b"\n", lambda: None)]
        assert time.process_time() - began < 1.0  # copies at each of the 4096 reads take several seconds
    assert found == [16 << 20, 1]


def test_nothing_comes_while_nobody_types() -> None:
    reading, writing = os.pipe()
    try:
        assert next(pieces(reading, b"\n", lambda: 0.0)) is None
    finally:
        os.close(reading)
        os.close(writing)


def test_keys_are_split_off_once() -> None:
    reader = LineReader(key=b"all", key_delimiter=b":", headers=(), partition=None, timestamp_ms=None, empty_is_null=True)
    assert reader.record(b"k:v:w") == OutgoingRecord(b"v:w", b"k")
    assert reader.record(b"v") == OutgoingRecord(b"v", b"all")
    assert reader.record(b":") == OutgoingRecord(None, None)


def test_what_the_command_says_completes_what_a_line_says() -> None:
    reader = LineReader(key=b"k", key_delimiter=None, headers=((b"h", b"1"),), partition=3, timestamp_ms=None, empty_is_null=False)
    assert reader.complete(OutgoingRecord(b"v", None, (), 1, 7)) == OutgoingRecord(b"v", b"k", ((b"h", b"1"),), 3, 7)


def test_headers_of_one_name_are_all_written_in_their_order() -> None:
    reader = _reader(None, None, ("a=1", "b=", "a=2=3"), None, None, empty_is_null=False)
    assert reader.record(b"v").headers == ((b"a", b"1"), (b"b", b""), (b"a", b"2=3"))


def test_plans() -> None:
    assert read_plan(["t,0,5\n", "\n", "t,1,6\n"], "g") == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    assert read_plan(["g,t,0,5\n", "h,t,0,6\n"], "g") == {TopicPartition("t", 0): 5}
    for wrong in (["t,0\n"], ["t,0,-5\n"], [], ["h,t,0,1\n"], [f"t,0,{'9' * 5000}\n"], [f"{'t' * 200_000},0,1\n"]):
        with pytest.raises(ClientError):
            read_plan(wrong, "g")
    with pytest.raises(ClientError, match="the file is not UTF-8"):
        read_plan(io.TextIOWrapper(io.BytesIO(b"t,0,1\n\xff,0,1\n"), encoding="utf-8"), "g")


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_password_that_is_no_text_is_refused(errors: str) -> None:
    with pytest.raises(UsageError, match="The password is not UTF-8"):
        _password("alice", io.TextIOWrapper(io.BytesIO(b"se\xffsame\n"), encoding="utf-8", errors=errors))


def test_batches_of_aborted_transactions_are_hidden() -> None:
    directory = LOGS / "clean" / "log-txn-0"
    log = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    entries = [
        entry
        for path in sorted(directory.glob("*.txnindex"))
        for entry in TransactionIndex(RealFileSystem(), str(path), 0, path.stat().st_size).entries()
    ]
    assert entries
    seen = AbortedFilter([AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in entries])
    for at, header in iter_batches(log):
        inside = any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset for entry in entries
        )
        assert seen.hides(header, log, at) == (header.is_control or (header.is_transactional and inside))


def test_cells() -> None:
    assert [cell_text(cell) for cell in (None, "", [], [1, 2], True, 0, "x")] == ["-", "-", "-", "1,2", "true", "0", "x"]


def test_piped_tables_are_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [["long name", 1], ["x", None]])
    print_table(("a", "b"), [], title="nothing")
    assert capsys.readouterr().out == "NAME       N\nlong name  1\nx          -\nnothing\nA  B\n"


def test_tables_are_drawn_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(("name", "n"), [["[x]", 1]], title="[t]")
    drawn = capsys.readouterr().out
    assert "[t]" in drawn
    assert "[x]" in drawn
    assert "─" in drawn
