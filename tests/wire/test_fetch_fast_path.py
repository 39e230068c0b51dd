"""The hand-made reader of Fetch makes what the generated decoder makes, or gives way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from protocol.fetch_fast_path import FIRST_VERSION, LAST_VERSION, read_fetch
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tests.support.golden_frames import all_golden_frames

VERSIONS = [version for version in range(FIRST_VERSION, LAST_VERSION + 1) if version != 12]


def a_fetch(version: int, partitions: int = 1, topics: int = 1) -> FetchRequest:
    asked = [
        FetchPartition(
            partition=index,
            current_leader_epoch=4 if version >= 9 else -1,
            fetch_offset=2**40,
            last_fetched_epoch=3 if version >= 12 else -1,
            log_start_offset=-1,
            partition_max_bytes=2**20,
        )
        for index in range(partitions)
    ]
    named = [FetchTopic(topic="grün", partitions=asked) if version < 13 else FetchTopic(topic_id=b"t" * 16, partitions=asked)] * topics
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=2**25, isolation_level=1, session_id=77, session_epoch=9, topics=named)


def test_every_recorded_fetch_is_read_the_same_or_left_to_the_general_reader() -> None:
    read = 0
    for frame in all_golden_frames():
        if frame.is_request and frame.api.key == ApiKey.FETCH:
            _, offset = frame.header_class.decode(frame.data, frame.header_version)
            general, _ = FetchRequest.decode(frame.data, frame.version, offset)
            fast = read_fetch(memoryview(frame.data), offset, frame.version)
            assert fast is None or fast == general, frame.where
            read += fast is not None
    assert read > 5


@pytest.mark.parametrize("version", VERSIONS)
def test_one_partition_of_one_topic_is_read_the_same(version: int) -> None:
    request = a_fetch(version)
    data = b"head" + request.encode(version) + b"trailing"
    assert read_fetch(memoryview(bytearray(data)), 4, version) == request


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_uncommon_is_left_to_the_general_reader(version: int) -> None:
    uncommon = [a_fetch(version, partitions=2), a_fetch(version, topics=2), a_fetch(version, topics=0), a_fetch(version, partitions=0)]
    forgetful = a_fetch(version)
    forgetful.forgotten_topics_data = [ForgottenTopic(partitions=[1])]
    uncommon.append(forgetful)
    if version >= 11:
        with_rack = a_fetch(version)
        with_rack.rack_id = "r"
        uncommon.append(with_rack)
    if version >= 15:
        follower = a_fetch(version)
        follower.replica_state = ReplicaState(replica_id=1)
        uncommon.append(follower)
    for request in uncommon:
        assert read_fetch(memoryview(request.encode(version)), 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_short_is_left_to_the_general_reader(version: int) -> None:
    data = a_fetch(version).encode(version)
    for cut in range(len(data)):
        assert read_fetch(memoryview(data[:cut]), 0, version) is None


def test_other_versions_are_left_to_the_general_reader() -> None:
    for version in (4, 6, 12):
        assert read_fetch(memoryview(a_fetch(version).encode(version)), 0, version) is None


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), st.data())
def test_a_changed_request_is_read_as_the_general_reader_reads_it(version: int, data: st.DataObject) -> None:
    changed = bytearray(a_fetch(version).encode(version))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    fast = read_fetch(memoryview(changed), 0, version)
    assert fast is None or fast == FetchRequest.decode(bytes(changed), version)[0]
