"""Regions of logs whose batches are converted for old consumers: the bytes that are sent, and how much is converted at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import LOG_OVERHEAD
from ottla.protocol.records.errors import CorruptRecord, InvalidRecord
from ottla.storage.disk import yielding
from ottla.storage.disk.yielding import PacedYield, no_yield
from ottla.storage.segment.converted_region import PIECE_BYTES, ConvertedRegion, NotConvertible
from ottla.storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFileSystem
from tests.support.old_messages import Old, messages, read, wrapped

CODECS = ["none", "gzip", "snappy", "lz4"]


class Sent:
    """What a client gets of a log with these bytes, and what was counted."""

    def __init__(self, data: bytes, *, magic: int = 1, first_offset: int = 0, takes_piece: bool = True, length: int | None = None) -> None:
        self.converted = self.reports = 0
        files = MemoryFileSystem()
        files.make_directory("/data")
        file = files.open("/data/log", create=True)
        file.write(b"in front" + data)
        size = len(data) if length is None else length
        self.region = ConvertedRegion(FileRegion(file, 8, size), magic, first_offset, None, self._count)  # type: ignore[arg-type]  # no threads
        self.converted_bytes = self.region.begin(no_yield, takes_piece=takes_piece)
        self.length = len(self.region)
        self.is_complete = self.region.is_complete
        self.region.report()
        self.pieces = [bytes(self.region.take_begun())]

    def _count(self, records: int, nanoseconds: int, temporary_bytes: int) -> None:
        self.converted += records
        self.reports += 1
        assert nanoseconds > 0
        assert temporary_bytes > 0

    def all(self) -> bytes:
        while len(self.region):
            self.pieces.append(bytes(self.region.next_piece()))
            assert self.pieces[-1]
            self.region.report()
        found = b"".join(self.pieces)
        assert len(found) == self.length
        return found


def batches(*codecs: str, records: int = 10, value_bytes: int = 100) -> bytes:
    """A batch for each codec, with offsets that follow each other."""
    made = [a_batch(records, codec, at * records, value_bytes=value_bytes) for at, codec in enumerate(codecs)]
    return b"".join(map(bytes, made))


def offsets(data: bytes) -> list[int]:
    return [old.offset for old in read(data)]


@settings(max_examples=40, deadline=None)
@given(
    codecs=st.lists(st.sampled_from(CODECS), min_size=1, max_size=40),
    value_bytes=st.sampled_from([1, 100, 2000]),
    magic=st.sampled_from([0, 1]),
    cut=st.integers(min_value=0, max_value=200),
)
def test_the_bytes_do_not_depend_on_what_was_converted_before_the_answer(codecs: list[str], value_bytes: int, magic: int, cut: int) -> None:
    data = batches(*codecs, value_bytes=value_bytes)
    length = max(len(data) - cut, len(a_batch(10, codecs[0], value_bytes=value_bytes)))
    early, late = (Sent(data, magic=magic, takes_piece=takes_piece, length=length) for takes_piece in (True, False))
    assert early.all() == late.all()
    found = offsets(early.all())
    assert len(found) >= 10
    assert found == list(range(len(found)))


def test_a_small_region_is_converted_to_its_end_before_the_answer() -> None:
    sent = Sent(batches("none", "none"))
    assert sent.is_complete
    assert sent.pieces == [sent.all()]
    assert offsets(sent.all()) == list(range(17))  # the messages are larger than the records were
    assert sent.reports == 1


def test_a_large_region_begins_with_one_batch_or_one_and_a_piece() -> None:
    data = batches(*["none"] * 200, value_bytes=500)
    assert len(data) > 7 * PIECE_BYTES
    one, more = Sent(data, takes_piece=False), Sent(data, takes_piece=True)
    assert one.converted == 10
    assert one.converted_bytes == len(data) // 200
    assert not more.is_complete
    assert PIECE_BYTES / 2 < more.converted_bytes - one.converted_bytes <= PIECE_BYTES
    assert more.converted == more.converted_bytes // one.converted_bytes * 10
    assert all(len(piece) < 2 * PIECE_BYTES for piece in more.pieces)


def test_batches_behind_the_end_of_the_answer_are_not_converted() -> None:
    data = batches(*["none"] * 300, value_bytes=1)
    sent = Sent(data)
    found = offsets(sent.all())
    assert len(found) < 3000
    assert sent.converted <= len(found) + 10


def test_messages_of_the_format_of_the_client_are_sent_as_they_are() -> None:
    olds = [Old(offset, 1000 + offset, b"k", b"v") for offset in range(3)]
    old = messages(1, olds[:2]) + wrapped(1, 1, olds[2:])
    assert Sent(old).all() == old
    assert Sent(old).converted == 0
    mixed = Sent(old + bytes(a_batch(3, base_offset=3)))
    assert mixed.all()[: len(old)] == old
    assert offsets(mixed.all())[:4] == [0, 1, 2, 3]
    assert mixed.converted == 3


def test_messages_of_format_1_are_converted_to_format_0() -> None:
    olds = [Old(offset, 1000, b"k", b"v") for offset in range(4)]
    sent = Sent(messages(1, olds[:2]) + wrapped(1, 1, olds[2:]), magic=0)
    assert read(sent.all())[:2] == [old._replace(timestamp=-1) for old in olds[:2]]


def test_single_messages_in_front_of_the_asked_offset_are_left_out_and_compressed_ones_are_not() -> None:
    assert offsets(Sent(batches("none", "none"), first_offset=5).all())[0] == 5
    assert offsets(Sent(batches("gzip", "gzip"), first_offset=5).all())[0] == 0


def test_zstd_in_front_is_refused_and_behind_it_takes_the_batches_of_its_piece_with_it() -> None:
    with pytest.raises(NotConvertible):
        Sent(batches("zstd", "none"))
    for takes_piece in (True, False):
        sent = Sent(batches("none", "none", "none", "zstd", value_bytes=1), takes_piece=takes_piece)
        assert offsets(sent.all()) == list(range(10))


@pytest.mark.parametrize("takes_piece", [True, False])
def test_damage_behind_the_first_batch_ends_what_is_sent(takes_piece: bool) -> None:
    first, second, third = (bytearray(a_batch(10, base_offset=10 * at, value_bytes=1000)) for at in range(3))
    second[61:70] = b"\xff" * 9
    sent = Sent(bytes(first + second + third), takes_piece=takes_piece)
    assert offsets(sent.all()) == list(range(10))
    second = bytearray(a_batch(10, base_offset=10, value_bytes=1000))
    third[8:12] = b"\0\0\0\1"
    sent = Sent(bytes(first + second + third), takes_piece=takes_piece)
    assert offsets(sent.all()) == list(range(20))


def test_damage_in_the_first_batch_is_an_error() -> None:
    damaged = bytearray(a_batch(10))
    damaged[61:70] = b"\xff" * 9
    with pytest.raises(InvalidRecord):
        Sent(bytes(damaged))
    for size in (b"\0\0\0\1", b"\0\0\0\x20"):  # less than any message has, less than a batch has
        damaged = bytearray(a_batch(10))
        damaged[8:12] = size
        with pytest.raises(CorruptRecord):
            Sent(bytes(damaged))


def test_control_batches_are_passed_over() -> None:
    marker = bytes(a_batch(1, control=True, transactional=True, producer_id=1))
    assert offsets(Sent(marker + bytes(a_batch(3, base_offset=1))).all()) == [1, 2, 3]
    sent = Sent(marker + marker)
    assert sent.is_complete
    assert (len(sent.all()), read(sent.all())) == (LOG_OVERHEAD, [])


def test_a_first_batch_that_is_larger_than_a_piece_is_sent_whole() -> None:
    data = batches("none", "none", records=300, value_bytes=1000)
    assert len(data) > 4 * PIECE_BYTES
    assert offsets(Sent(data, length=len(data) // 2).all()) == list(range(300))


def test_many_small_batches_let_the_loop_run_every_half_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []
    monkeypatch.setattr(yielding, "time", SimpleNamespace(perf_counter=lambda: now[0], sleep=slept.append))
    between = PacedYield()
    for _ in range(100):
        now[0] += 0.0001
        between()
    assert 10 <= len(slept) <= 20
