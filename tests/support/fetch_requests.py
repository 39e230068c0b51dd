"""Builds Fetch requests and responses of every shape."""

from typing import Any

from hypothesis import strategies as st

from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from tests.support.produce_requests import NAMES, TAGS, TEXTS, tagged

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)


def _of(version: int, first: int, values: st.SearchStrategy[Any], default: Any) -> st.SearchStrategy[Any]:
    return values if version >= first else st.just(default)


def partitions(version: int) -> st.SearchStrategy[FetchPartition]:
    """With tagged fields that mean nothing to this version, too."""
    known = {0, 1} if version >= 18 else {0} if version >= 17 else set()
    tags = st.none() if version < 12 else TAGS.filter(lambda tags: not tags or not known & set(tags))
    return st.builds(
        lambda tags, **values: tagged(FetchPartition(**values), tags),
        tags,
        partition=INT32,
        current_leader_epoch=_of(version, 9, INT32, -1),
        fetch_offset=INT64,
        last_fetched_epoch=_of(version, 12, INT32, -1),
        log_start_offset=_of(version, 5, INT64, -1),
        partition_max_bytes=INT32,
        replica_directory_id=_of(version, 17, IDS | st.just(bytes(16)), bytes(16)),
        high_watermark=_of(version, 18, INT64, 2**63 - 1),
    )


def _topic(version: int, cls: type, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    tags = TAGS if version >= 12 else st.none()
    return st.builds(
        lambda name, topic_id, partitions, tags: tagged(
            cls(**({"topic_id": topic_id} if version >= 13 else {"topic": name}), partitions=partitions), tags
        ),
        NAMES,
        IDS,
        st.lists(inner, max_size=10),
        tags,
    )


@st.composite
def fetch_requests(draw: st.DrawFn, version: int) -> FetchRequest:
    """With 0 to 50 partitions; of consumers and of followers."""
    tags = st.none() if version < 12 else TAGS.filter(lambda tags: not tags or not {0, 1} & set(tags))
    request = FetchRequest(
        cluster_id=draw(_of(version, 12, st.none() | TEXTS, None)),
        replica_id=draw(INT32) if version < 15 else -1,
        replica_state=draw(
            _of(version, 15, st.builds(lambda i, e, t: tagged(ReplicaState(replica_id=i, replica_epoch=e), t), INT32, INT64, TAGS), None)
        )
        or ReplicaState(),
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=draw(_of(version, 3, INT32, 2**31 - 1)),
        isolation_level=draw(_of(version, 4, st.integers(-128, 127), 0)),
        session_id=draw(_of(version, 7, INT32, 0)),
        session_epoch=draw(_of(version, 7, INT32, -1)),
        topics=draw(st.lists(_topic(version, FetchTopic, partitions(version)), max_size=5)),
        forgotten_topics_data=draw(_of(version, 7, st.lists(_topic(version, ForgottenTopic, INT32), max_size=3), [])),
        rack_id=draw(_of(version, 11, TEXTS, "")),
    )
    return tagged(request, draw(tags))


def a_failure(index: int, code: int, aborted: Any, records: bytes | None, leader: tuple[int, int]) -> PartitionData:
    """Nothing was read."""
    leader_id, leader_epoch = leader
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=records,
        current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
    )


@st.composite
def fetch_responses(draw: st.DrawFn, version: int) -> FetchResponse:
    """With records, without, with errors, and where logs part."""
    leaders = _of(version, 12, st.tuples(st.integers(-1, 5), st.integers(-1, 5)), (-1, -1))
    aborted = _of(
        version, 4, st.none() | st.lists(st.builds(AbortedTransaction, producer_id=INT64, first_offset=INT64), max_size=3), []
    )  # fmt: skip
    failures = st.builds(a_failure, INT32, st.integers(1, 200), aborted, st.just(b"") | st.none(), leaders)
    numbers = {
        "partition_index": INT32, "high_watermark": INT64, "last_stable_offset": INT64, "log_start_offset": INT64,
        "aborted_transactions": aborted,
    }  # fmt: skip
    reads = st.builds(
        PartitionData,
        **numbers,
        error_code=st.integers(-1, 200),
        preferred_read_replica=_of(version, 11, st.integers(-1, 5), -1),
        records=st.binary(max_size=40) | st.sampled_from([126, 127, 16_382, 16_383, 2_097_151]).map(bytes),
    )
    diverging = st.builds(
        PartitionData,
        **numbers,
        error_code=st.just(0),
        diverging_epoch=st.builds(EpochEndOffset, epoch=st.integers(0, 9), end_offset=INT64),
        records=st.just(b""),
    )
    partition = st.one_of(failures, reads, diverging) if version >= 12 else st.one_of(failures, reads)
    topic = st.builds(
        lambda name, topic_id, partitions: FetchableTopicResponse(
            **({"topic_id": topic_id} if version >= 13 else {"topic": name}), partitions=partitions
        ),
        NAMES,
        IDS,
        st.lists(partition, min_size=1, max_size=8),
    )
    nodes = st.builds(NodeEndpoint, node_id=st.integers(0, 9), host=TEXTS, port=st.integers(1, 9), rack=st.none() | TEXTS)
    return FetchResponse(
        throttle_time_ms=draw(INT32),
        error_code=draw(st.integers(-1, 200)),
        session_id=draw(_of(version, 7, INT32, 0)),
        responses=draw(st.lists(topic, max_size=4, unique_by=lambda topic: (topic.topic, topic.topic_id))),
        node_endpoints=draw(_of(version, 16, st.lists(nodes, max_size=3), [])),
    )
