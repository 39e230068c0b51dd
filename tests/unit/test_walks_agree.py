"""All that read the records of a batch agree about every one of them: they loop over one strict step."""

import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.cli.dump.segment_check import SegmentTask, check_segment
from ottla.coordination.groups.classic_group import GroupSettings
from ottla.coordination.groups.loading import GroupLoader
from ottla.coordination.groups.repeated_commits import _parts
from ottla.coordination.transactions.loading import TransactionLoader
from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_sets import down_convert
from ottla.protocol.conversion.old_logs import no_yield, offsets_and_timestamps_at, records_at
from ottla.protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header
from ottla.protocol.records.errors import InvalidRecord, MalformedMessage, OverlongLength
from ottla.protocol.records.reader import check_records, iter_keys_and_values, join_header_keys, outline_records
from ottla.protocol.records.walk import RecordWalk
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.records import keep, keep_by_position
from ottla.storage.errors import InvalidRecord as RefusedRecord
from ottla.storage.validation.record_errors import UnreadableRecords
from ottla.storage.validation.records import check_produced
from ottla.storage.validation.rules import ValidationRules
from tests.support.batches import judged
from tests.support.examples import number_of
from tests.support.odd_batches import framed, mutated_records

RULES = ValidationRules(TopicPartition("orders", 0))
Caller = Callable[[bytes, bytes, BatchHeader], object]


def _judge(batch: bytes, data: bytes, header: BatchHeader) -> None:
    try:
        judged(batch, RULES, 0)
    except (RefusedRecord, UnreadableRecords) as error:
        raise InvalidRecord(str(error)) from None


def _check_produced(batch: bytes, data: bytes, header: BatchHeader) -> None:
    try:
        check_produced(batch, header, RULES, 0)
    except (RefusedRecord, UnreadableRecords) as error:
        raise InvalidRecord(str(error)) from None


def _in_pieces(batch: bytes, data: bytes, header: BatchHeader) -> None:
    check_records(iter([data[at : at + 7] for at in range(0, len(data), 7)]), header)


def _down_converted(batch: bytes, data: bytes, header: BatchHeader) -> None:
    with suppress(MalformedMessage):  # a timestamp below -1
        down_convert(DownConverter(1), memoryview(bytearray(batch)), 0, len(batch), 0, no_yield)


def _added_to_a_map(batch: bytes, data: bytes, header: BatchHeader) -> None:
    OffsetMap(1 << 20).add(data, header, 0, 1000)


def _added_to_a_small_map(batch: bytes, data: bytes, header: BatchHeader) -> None:
    OffsetMap(24 * 100).add(data, header, 0, 100)


def _looked_up(batch: bytes, data: bytes, header: BatchHeader) -> None:
    OffsetMap(1 << 20).superseded(data, header, drop_tombstones=True)


def _commits(batch: bytes, data: bytes, header: BatchHeader) -> None:
    """The number of parts is less, too, if a record has no key or value, or headers."""
    if len(_parts(data, header.record_count, header.record_count)) == header.record_count:
        return
    walk = RecordWalk(data, header.record_count)
    while walk.advance():
        pass


CALLERS: dict[str, Caller] = {
    "check": lambda batch, data, header: check_records(iter((data,)), header),
    "check of pieces": _in_pieces,
    "records": lambda batch, data, header: list(records_at(batch, 0, header)),
    "keys of headers": lambda batch, data, header: list(records_at(batch, 0, header, read_headers=join_header_keys)),
    "outlines": lambda batch, data, header: list(outline_records(data, header)),
    "offsets and timestamps": lambda batch, data, header: list(offsets_and_timestamps_at(batch, 0, header)),
    "keys and values": lambda batch, data, header: list(iter_keys_and_values(data, header)),
    "judgement": _judge,
    "judgement by a worker": _check_produced,
    "down-conversion": _down_converted,
    "kept records": lambda batch, data, header: keep(data, header, ()),
    "kept records by position": lambda batch, data, header: keep_by_position(data, bytearray(header.record_count)),
    "map of keys": _added_to_a_map,
    "small map of keys": _added_to_a_small_map,
    "look-up of keys": _looked_up,
    "repeated commits": _commits,
}


def is_well_formed(data: bytes, count: int) -> bool:
    walk = RecordWalk(data, count)
    try:
        while walk.advance():
            walk.read_headers()
    except InvalidRecord:
        return False
    return True


@pytest.mark.parametrize("caller", CALLERS)
def test_all_walks_agree_about_changed_records(caller: str) -> None:
    chance = random.Random(11)
    read = refused = 0
    for _ in range(number_of(400)):
        count, data = mutated_records(chance)
        batch = framed(data, count=count)
        try:
            CALLERS[caller](batch, data, parse_header(batch))
        except InvalidRecord:
            assert not is_well_formed(data, count), data.hex()
            refused += 1
        else:
            assert is_well_formed(data, count), data.hex()
            read += 1
    assert min(read, refused) > 10


def test_loaders_leave_out_the_same_batches_and_a_segment_check_names_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(12)
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for _ in range(number_of(60)):
        count, data = mutated_records(chance)
        batch = framed(data, count=count)
        expected = not is_well_formed(data, count)
        for loader in (GroupLoader("__consumer_offsets-0", GroupSettings()), TransactionLoader("__transaction_state-0")):
            caplog.clear()
            with caplog.at_level(logging.DEBUG):
                for _pause in loader.feed(batch):
                    pass
            assert ("the batch at offset 0" in caplog.text) == expected, data.hex()
        (directory / "00000000000000000000.log").write_bytes(batch)
        report = check_segment(SegmentTask(str(directory), 0, True, True))
        assert report is not None
        assert len(report.unreadable) == expected
        assert all("orders-0 can go on at offset" in text for text in report.unreadable)


def test_a_length_of_more_than_five_bytes_has_an_error_of_its_own() -> None:
    data = b"\xff" * 10
    with pytest.raises(OverlongLength):
        RecordWalk(data, 1).advance()
    with pytest.raises(UnreadableRecords):
        judged(framed(data, count=1), RULES, 0)


def test_a_record_is_read_at_its_place_in_the_batch() -> None:
    batch = framed(b"\x16\x00\x02\x04\x02k\x02v\x02\x02h\x01", count=1)
    walk = RecordWalk(batch[HEADER_SIZE:], 1)
    assert walk.advance()
    assert (walk.elapsed, walk.delta, walk.key(), walk.value(), walk.read_headers()) == (1, 2, b"k", b"v", ((b"h", None),))
    assert (walk.start, walk.delta_at, walk.body_at, walk.end) == (0, 3, 4, len(batch) - HEADER_SIZE)
    assert not walk.advance()
