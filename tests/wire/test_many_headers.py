"""Records with very many headers take long, in a thread of the broker. Other threads run meanwhile."""

import threading
import time

import pytest

from ottla.protocol.compiled import IS_COMPILED
from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.records.batch import HEADER_SIZE, parse_header
from ottla.protocol.records.builder import encode_varint
from ottla.protocol.records.reader import check_records
from tests.support.odd_batches import an_odd_record, framed

EMPTY_HEADER = b"\0\1"


def a_record_with_headers(count: int, index: int = 0) -> bytes:
    return an_odd_record(index, headers=encode_varint(count) + EMPTY_HEADER * count)


@pytest.mark.skipif(not IS_COMPILED, reason="Python itself lets other threads run")
def test_other_threads_run_while_the_headers_of_one_record_are_checked() -> None:
    records = a_record_with_headers(20_000_000)
    header = parse_header(framed(records, count=1))
    took: list[float] = []

    def check() -> None:
        began = time.monotonic()
        check_records(iter([records]), header)
        took.append(time.monotonic() - began)

    thread = threading.Thread(target=check)
    longest, last = 0.0, time.monotonic()
    thread.start()
    while thread.is_alive():
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    assert longest < took[0] / 2


def test_a_slice_of_a_conversion_has_fewer_records_if_they_have_many_headers() -> None:
    batch = framed(b"".join(a_record_with_headers(16_000, index) for index in range(6)), count=6)
    frame = memoryview(bytearray(batch))
    converter = DownConverter(1)
    converter.begin(frame, HEADER_SIZE, len(frame), parse_header(batch), 0, False)
    assert not converter.convert(2000)
    assert converter.count == 2
    assert not converter.convert(2000)
    assert converter.convert(2000 + 3)
    assert converter.count == 6
