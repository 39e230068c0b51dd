"""Loading reads offsets by hand, and of commits that repeat others only the values: it finds what the declared messages find."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.classic_group import ClassicGroup, GroupSettings
from ottla.coordination.groups.loading import GroupLoader
from ottla.coordination.groups.offset_records import OffsetAndMetadata, offset_key, offset_keys, offset_value
from ottla.coordination.groups.repeated_commits import FEWEST_RECORDS, MOST_RECORDS
from ottla.protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_batch, build_end_transaction_marker
from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.topic_partition import TopicPartition
from tests.support.groups import quiet

Found = dict[tuple[str, str, int], tuple[int, OffsetAndMetadata]]

NAMES = ["g", "größer", "x" * 70, "y" * 9_000]
METADATA = ["", "", "", "note", "\N{ELEPHANT}", "m" * 60, "n" * 9_000]
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 3)


def pairs_of(group: str, topic: str, count: int, offset: int, metadata: str, expires: int) -> list[tuple[bytes, bytes | None]]:
    value = OffsetAndMetadata(offset, 7, metadata, offset, expires)
    return [(key, offset_value(value)) for key in offset_keys(group, [TopicPartition(topic, index) for index in range(count)])]


COMMITS = st.builds(
    pairs_of,
    st.sampled_from(NAMES),
    st.sampled_from(NAMES[:3]),
    st.sampled_from([1, 2, FEWEST_RECORDS, 70]),
    INT64,
    st.sampled_from(METADATA),
    st.sampled_from([-1, -1, 5]),
)
DELETIONS = COMMITS.map(lambda pairs: [(key, None) for key, _ in pairs])
OLD_VALUES = st.builds(
    lambda version, offset, index: [
        (
            b"\0\0" + OffsetCommitKey(group="g", topic="g", partition=index).encode(0),
            bytes([0, version]) + OffsetCommitValue(offset=offset, metadata="old", commit_timestamp=3).encode(version),
        )
    ],
    st.integers(0, 4),
    INT64,
    SMALL,
)
ODD_KEYS = st.one_of(st.binary(max_size=8), st.just(offset_key("g", TopicPartition("g", 0))))
ODD = st.lists(st.tuples(ODD_KEYS, st.binary(max_size=30)), max_size=4)
CONTENTS = st.one_of(COMMITS, COMMITS, COMMITS, DELETIONS, OLD_VALUES, ODD)
CODECS = st.sampled_from([CompressionCodec.NONE, CompressionCodec.NONE, CompressionCodec.GZIP])
MARKERS = st.sampled_from([ControlRecordType.COMMIT, ControlRecordType.ABORT])
STEPS = st.lists(st.tuples(CONTENTS, CODECS, st.integers(-3, 1), st.integers(1, 4), st.one_of(st.none(), MARKERS)), max_size=8)


def a_batch(pairs: list[tuple[bytes, bytes | None]], base_offset: int, producer_id: int = -1, codec: int = 0) -> bytes:
    """As from the coordinator; every third batch has timestamps that differ, as nobody writes them."""
    records = [Record(base_offset + i, 1_000 + i * (base_offset % 3 == 2) * 300, key, value) for i, (key, value) in enumerate(pairs)]
    return bytes(build_batch(records, codec, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=producer_id >= 0))


def a_log(steps: list[tuple[list[tuple[bytes, bytes | None]], int, int, int, ControlRecordType | None]]) -> bytes:
    """Each step is a batch that comes several times, in a transaction of one of two producers if their number is not negative."""
    log = bytearray()
    offset = 0
    for pairs, codec, producer_id, times, end in steps:
        for time in range(times if pairs else 0):
            again = [(key, value if value is None or len(value) < 10 else value[:2] + bytes([time]) + value[3:]) for key, value in pairs]
            log += a_batch(again, offset, max(producer_id, -1), codec)
            offset += len(pairs)
        if producer_id >= 0 and end is not None:
            log += build_end_transaction_marker(
                EndTransactionMarker(end, 0), timestamp=0, producer_id=producer_id, producer_epoch=0, base_offset=offset
            )
            offset += 1
    return bytes(log)


def read_slowly(log: bytes) -> tuple[Found, Found]:
    """(what is committed, what is in open transactions), by the declared messages, one record after the other."""
    latest: dict[bytes, tuple[int, bytes]] = {}
    transactions: dict[int, dict[bytes, tuple[int, bytes]]] = {}
    deleted: dict[bytes, int] = {}  # where: what a transaction has written before stays deleted
    for position, header in iter_batches(log):
        records = list(iter_records(log, position, header))
        if header.is_control:
            ended = transactions.pop(header.producer_id, {})
            if records[0].key == b"\0\0\0\1":
                left = {key: stored for key, stored in ended.items() if deleted.get(key, -1) < stored[0]}
                latest |= {key: stored for key, stored in left.items() if key not in latest or latest[key][0] < stored[0]}
            continue
        target = transactions.setdefault(header.producer_id, {}) if header.is_transactional else latest
        for record in records:
            assert record.key is not None
            key = b"\0\1" + record.key[2:] if record.key[:2] == b"\0\0" else record.key  # both versions name the same
            if record.value is None:
                target.pop(key, None)
                if target is latest:
                    deleted[key] = header.base_offset
            else:
                target[key] = header.base_offset, record.value
    pending = [item for transaction in transactions.values() for item in transaction.items() if deleted.get(item[0], -1) < item[1][0]]
    return dict(decoded(latest.items())), dict(decoded(pending))


def decoded(items: object) -> Iterator[tuple[tuple[str, str, int], tuple[int, OffsetAndMetadata]]]:
    for key, (base_offset, value) in items:  # type: ignore[attr-defined]  # pairs, of a dict or a list
        version = int.from_bytes(key[:2], "big")
        if len(key) < 2 or version > 1:
            continue
        try:
            where, _ = OffsetCommitKey.decode(key, version, 2)
            if len(value) < 2:
                continue
            commit, _ = OffsetCommitValue.decode(value, int.from_bytes(value[:2], "big", signed=True), 2)
        except ProtocolError:
            continue
        found = OffsetAndMetadata(commit.offset, commit.leader_epoch, commit.metadata, commit.commit_timestamp, commit.expire_timestamp)
        yield (where.group, where.topic, where.partition), (base_offset, found)


def load(log: bytes, chunk: int | None = None) -> tuple[dict[str, ClassicGroup], GroupLoader]:
    loader = GroupLoader("__consumer_offsets-0", GroupSettings())
    groups: dict[str, ClassicGroup] = {}
    ends = [position + header.size for position, header in iter_batches(log)]
    start = 0
    for end in [*ends[chunk - 1 : -1 : chunk], len(log)] if chunk else [len(log)]:
        for _ in loader.feed(log[start:end]):
            pass
        start = end
    for _ in loader.states(0, groups):
        pass
    return groups, loader


def committed(groups: dict[str, ClassicGroup]) -> Found:
    return {
        (group.group_id, *partition): tuple(group.offsets.committed[partition])  # type: ignore[misc]  # two of them
        for group in groups.values()
        for partition in group.offsets.committed
    }


def in_transactions(groups: dict[str, ClassicGroup]) -> Found:
    return {
        (group.group_id, *partition): tuple(transaction[partition])  # type: ignore[misc]  # two of them
        for group in groups.values()
        for transaction in group.offsets.transactional.values()
        for partition in transaction
    }


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([None, 1, 2]))
def test_what_is_loaded_is_what_the_declared_messages_say(
    steps: list[tuple[list[tuple[bytes, bytes | None]], int, int, int, ControlRecordType | None]], chunk: int | None
) -> None:
    log = a_log(steps)
    with quiet():
        groups, loader = load(log, chunk)
    expected, pending = read_slowly(log)
    assert committed(groups) == expected
    assert in_transactions(groups).keys() == pending.keys()
    assert loader.offsets == len(expected)


def repeated(times: int, count: int = FEWEST_RECORDS, group: str = "g") -> list[bytes]:
    return [a_batch(pairs_of(group, "t", count, number, "", -1), number * count) for number in range(times)]


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5])
def test_of_commits_that_repeat_each_other_the_last_counts(times: int) -> None:
    groups, _ = load(b"".join(repeated(times)))
    found = committed(groups)
    assert len(found) == FEWEST_RECORDS
    assert {(record_offset, value.offset) for record_offset, value in found.values()} == {((times - 1) * FEWEST_RECORDS, times - 1)}


def test_a_deletion_between_repeated_commits_takes_back_what_was_before_and_not_what_comes_after() -> None:
    count = FEWEST_RECORDS
    deletion = a_batch([(key, None) for key, _ in pairs_of("g", "t", count, 0, "", -1)[:3]], 5 * count)
    groups, _ = load(b"".join(repeated(5)) + deletion)
    assert {index for _, _, index in committed(groups)} == set(range(3, count))
    again = a_batch(pairs_of("g", "t", count, 99, "", -1), 6 * count)
    groups, _ = load(b"".join(repeated(5)) + deletion + again)
    assert {value.offset for _, value in committed(groups).values()} == {99}
    assert len(committed(groups)) == count


def test_a_commit_of_one_partition_between_repeated_ones_is_not_undone_by_what_was_kept() -> None:
    count = FEWEST_RECORDS
    single = a_batch(pairs_of("g", "t", 1, 77, "", -1), 5 * count)
    groups, _ = load(b"".join(repeated(5)) + single)
    found = {index: value.offset for (_, _, index), (_, value) in committed(groups).items()}
    assert found == {0: 77, **dict.fromkeys(range(1, count), 4)}


def test_a_batch_that_repeats_another_but_for_one_key_is_read() -> None:
    count = FEWEST_RECORDS
    other = pairs_of("g", "t", count, 50, "", -1)
    other[-1] = (offset_key("g", TopicPartition("u", count - 1)), other[-1][1])
    groups, _ = load(b"".join(repeated(4)) + a_batch(other, 4 * count))
    assert committed(groups)["g", "u", count - 1][1].offset == 50
    assert committed(groups)["g", "t", count - 1][1].offset == 3


@pytest.mark.slow
def test_more_shapes_than_are_remembered_are_all_read() -> None:
    groups = MOST_RECORDS // 1_000 + 5
    log = b"".join(
        a_batch(pairs_of(f"g{number:02}", "t", 1_000, time, "", -1), 1_000 * (time * groups + number))
        for time in range(4)
        for number in range(groups)
    )
    found = committed(load(log)[0])
    assert len(found) == 1_000 * groups
    assert {value.offset for _, value in found.values()} == {3}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 20), st.booleans())
def test_no_body_keeps_the_loader_from_going_on(body: bytes, count: int, is_repeated: bool) -> None:
    batch = bytearray(build_batch([Record(0, 0, b"k" * len(body), None)]))
    batch[61:] = body
    batch[8:12] = (49 + len(body)).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    good = a_batch(pairs_of("g", "t", 1, 5, "", -1), 100)
    with quiet():
        groups, _ = load(bytes(batch) * (3 if is_repeated else 1) + good)
    assert committed(groups)["g", "t", 0][1].offset == 5
