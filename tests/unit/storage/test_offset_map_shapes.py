"""The map of the cleaner says the same of every shape of record, however fast it reads the common one."""

from random import Random

import pytest

from ottla.protocol.records.batch import parse_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.errors import InvalidRecord
from ottla.protocol.records.reader import Record, iter_records, record_data
from ottla.storage.cleaner.offset_map import LIVE, TOMBSTONE, OffsetMap
from ottla.storage.cleaner.records import keep, keep_by_position
from tests.support.examples import number_of


def records_of(seed: int, count: int) -> list[Record]:
    """Mostly common ones, now and then one with a long key, no key, no value, a long value, or an offset left out before it."""
    random = Random(seed)
    found = []
    offset = 1000
    for _ in range(count):
        odd = random.randrange(12)
        key: bytes | None = b"%d" % random.randrange(count)
        if odd == 0:
            key = bytes(random.randrange(33, 300)) + b"%d" % random.randrange(9)
        elif odd == 1 and seed % 2:
            key = None
        elif odd == 2:
            key = b""
        elif odd == 3 and seed % 3 == 0:
            offset += random.randrange(1, 300)
        value = None if random.randrange(4) == 0 else bytes(random.choice([0, 5, 70, 9000 if odd == 4 else 80]))
        found.append(Record(offset, 10**12 + random.choice([0, 50, 5000, 10**7]) * random.randrange(5), key, value))
        offset += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 64, 65, 200, 9000])
@pytest.mark.parametrize("seed", range(number_of(6)))
def test_every_shape_of_record_is_found(seed: int, count: int) -> None:
    batch = bytes(build_batch(records_of(seed, count)))
    header = parse_header(batch)
    latest: dict[bytes, int] = {}
    for record in iter_records(batch):
        if record.key is not None:
            latest[record.key] = record.offset
    known = OffsetMap(64 << 20, 1000)
    assert known.add(record_data(batch, 0, header), header, 1000, known.max_slots)
    assert {key: known.get(key) for key in latest} == latest
    assert known.size == len(latest)
    assert known.without_key == sum(record.key is None for record in iter_records(batch))
    offsets = [record.offset for record in iter_records(batch)]
    assert bool(known.irregular) == (offsets != list(range(offsets[0], offsets[0] + count)))


def runs_of(seed: int, count: int) -> list[Record]:
    """Runs of records of one length; here and there another key length in the same total, a tombstone, another time."""
    random = Random(seed)
    found: list[Record] = []
    while len(found) < count:
        key_length, value_length = random.choice([(8, 100), (1, 20), (32, 5), (16, 0), (10, 3000)])
        later = random.choice([0, 1, 63, 64, 9000, 10**6])
        for _ in range(random.choice([3, 9, 40, 200])):
            odd = random.randrange(30)
            key = b"%d" % random.randrange(count) + bytes(key_length)
            key, value = key[:key_length], bytes(value_length)
            if odd == 0 and value_length > 2:
                key, value = key + b"x", value[1:]
            elif odd == 1 and value_length > 2:
                key, value = (key + bytes(value_length))[: key_length + value_length], None
            found.append(Record(1000 + len(found), 10**12 + later + random.randrange(3), key, value))
    return found[:count]


@pytest.mark.slow
@pytest.mark.parametrize("count", [9, 64, 200, 2000, 9000])
@pytest.mark.parametrize("seed", range(number_of(8)))
def test_records_in_runs_are_found_and_kept_as_if_read_one_by_one(seed: int, count: int) -> None:
    records = runs_of(seed, count)
    batch = bytes(build_batch(records))
    header = parse_header(batch)
    data = record_data(batch, 0, header)
    known = OffsetMap(64 << 20, 1000)
    assert known.add(data, header, 1000, known.max_slots)
    known.latest_offset = records[-1].offset
    known.finish()
    latest = {record.key: record for record in records}
    assert {key: known.get(key) for key in latest if key is not None} == {key: record.offset for key, record in latest.items()}
    expected = bytearray(count)
    for record in latest.values():
        expected[record.offset - 1000] = TOMBSTONE if record.value is None else LIVE
    assert known.live_in(1000, 999 + count) == expected
    random = Random(seed)
    for live in (expected, bytearray(count), bytearray([1]) * count, bytearray(random.choices([0, 1], [9, 1], k=count))):
        dropped = {1000 + at for at, kind in enumerate(live) if not kind}
        assert keep_by_position(data, live) == keep(data, header, dropped)
    with pytest.raises(InvalidRecord):
        keep_by_position(data[:-1], expected)


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_records_that_reach_beyond_their_batch_are_refused(cut: int) -> None:
    batch = bytes(build_batch(records_of(0, 100)))
    header = parse_header(batch)
    known = OffsetMap(64 << 20, 1000)
    with pytest.raises(InvalidRecord):
        known.add(record_data(batch, 0, header)[:-cut], header, 1000, known.max_slots)
