"""Records that take long in a thread of the broker, by very many headers or a long key: other threads run meanwhile."""

import threading
import time
from collections.abc import Callable

import pytest

from ottla.protocol.compiled import IS_COMPILED
from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_sets import down_convert, up_convert
from ottla.protocol.records.batch import HEADER_SIZE, parse_header
from ottla.protocol.records.builder import encode_varint
from ottla.protocol.records.reader import check_records
from tests.support.odd_batches import an_odd_record, framed
from tests.support.old_messages import Old, message

EMPTY_HEADER = b"\0\1"
KEY_BYTES = 100_000_000
HEADERS = 20_000_000


def nothing() -> None:
    """No event loop waits."""


def a_record_with_headers(count: int, index: int = 0) -> bytes:
    return an_odd_record(index, headers=encode_varint(count) + EMPTY_HEADER * count)


def the_check_of_headers() -> Callable[[], object]:
    records = a_record_with_headers(HEADERS)
    header = parse_header(framed(records, count=1))
    return lambda: check_records(iter([records]), header)


def the_check_of_some_records_with_headers() -> Callable[[], object]:
    records = b"".join(a_record_with_headers(250_000, index) for index in range(100))
    header = parse_header(framed(records, count=100))
    return lambda: check_records(iter([records]), header, nothing)


def the_conversion_of_a_message() -> Callable[[], object]:
    frame = memoryview(bytearray(message(1, Old(0, 0, bytes(KEY_BYTES), None))))
    return lambda: up_convert(frame, 0, len(frame), nothing)


def the_conversion_of_a_record() -> Callable[[], object]:
    frame = memoryview(bytearray(framed(an_odd_record(key=bytes(KEY_BYTES)), count=1)))
    return lambda: down_convert(DownConverter(1), frame, 0, len(frame), 0, nothing)


def longest_wait(work: Callable[[], object]) -> float:
    """The longest time in which another thread did not run, as a part of the time for the work."""
    took: list[float] = []

    def run() -> None:
        began = time.monotonic()
        work()
        took.append(time.monotonic() - began)

    thread = threading.Thread(target=run)
    longest, last = 0.0, time.monotonic()
    thread.start()
    while thread.is_alive():
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    return longest / took[0]


@pytest.mark.slow
@pytest.mark.skipif(not IS_COMPILED, reason="Python itself lets other threads run")
@pytest.mark.parametrize(
    "prepare", [the_check_of_headers, the_check_of_some_records_with_headers, the_conversion_of_a_message, the_conversion_of_a_record]
)
def test_other_threads_run_meanwhile(prepare: Callable[[], Callable[[], object]]) -> None:
    work = prepare()
    assert min(longest_wait(work) for _ in range(3)) < 0.25  # other programs run, too


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
