"""The records of committed offsets that are packed by hand: the bytes that the declared messages say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.offset_records import NO_EXPIRY, OffsetAndMetadata, OffsetKey, offset_key, offset_keys, offset_value, read_offset_value
from broker.groups.records import read_key
from protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from storage.topic_partition import TopicPartition

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
