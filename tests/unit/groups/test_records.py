"""What is packed by hand of the records of `__consumer_offsets`: the bytes that the declared messages and other producers write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.commits import TopicCommit
from ottla.coordination.groups.offset_records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    OffsetKey,
    offset_key,
    offset_keys,
    offset_value,
    read_offset_value,
)
from ottla.coordination.groups.record_encoding import encode_commits
from ottla.coordination.groups.records import read_key
from ottla.coordination.partitions.topic_log import encode_pairs
from ottla.protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.records.builder import encode_records
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from tests.support.group_bench import a_commit

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=20)
PARTITIONS = st.lists(st.builds(TopicPartition, st.sampled_from(["t", "u", "größer"]), INT32), max_size=6)


@settings(deadline=None)
@given(NAMES, PARTITIONS)
def test_keys_are_those_of_the_message(group: str, partitions: list[TopicPartition]) -> None:
    keys = offset_keys(group, partitions)
    assert keys == [offset_key(group, partition) for partition in partitions]
    for key, (topic, index) in zip(keys, partitions, strict=True):
        assert key == b"\0\1" + OffsetCommitKey(group=group, topic=topic, partition=index).encode(1)
        assert read_key(key) == OffsetKey(group, TopicPartition(topic, index))


@settings(deadline=None)
@given(INT64, INT32, NAMES, INT64, st.one_of(st.just(NO_EXPIRY), INT64))
def test_values_are_those_of_the_message(offset: int, leader_epoch: int, metadata: str, timestamp: int, expires: int) -> None:
    value = offset_value(OffsetAndMetadata(offset, leader_epoch, metadata, timestamp, expires))
    version = 3 if expires == NO_EXPIRY else 1
    message = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=timestamp, expire_timestamp=expires
    )
    assert value == version.to_bytes(2, "big") + message.encode(version)
    epoch = leader_epoch if version == 3 else -1
    assert read_offset_value(value) == OffsetAndMetadata(offset, epoch, metadata, timestamp, expires)


COMMITS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "u", "größer"]), INT32),
    st.builds(OffsetAndMetadata, INT64, INT32, st.one_of(st.just(""), NAMES), INT64, st.one_of(st.just(NO_EXPIRY), INT64)),
    max_size=8,
)


@pytest.mark.slow
@settings(deadline=None)
@given(NAMES, COMMITS, st.sampled_from([0, 60, 1_020, 8_190]))
def test_records_of_commits_are_those_of_any_producer(group: str, named: dict[TopicPartition, OffsetAndMetadata], before: int) -> None:
    commit = a_commit({TopicPartition("a", index): OffsetAndMetadata(index, -1, "", 5) for index in range(before)} | named)
    commit.topics[-1:] = [*commit.topics[-1:], TopicCommit("refused")]
    commit.topics[-1].values[0] = None
    keys = offset_keys(group, [partition for partition, _ in commit])
    expected = [Record(delta, 7, key, value) for delta, (key, (_, value)) in enumerate(zip(keys, commit, strict=True))]
    assert encode_commits(group, commit) == (encode_records(expected, 0, 7), before + len(named))


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=80), st.one_of(st.none(), st.binary(max_size=1_100))), max_size=5))
def test_records_of_groups_and_deletions_are_those_of_any_producer(pairs: list[tuple[bytes, bytes | None]]) -> None:
    assert encode_pairs(pairs) == encode_records([Record(delta, 7, key, value) for delta, (key, value) in enumerate(pairs)], 0, 7)
