"""The parts of a response to ShareFetch are those that the declared message has."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.cursors.share_fetch_answer import ShareFetchAnswer
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ACQUIRED = st.tuples(INT64, INT64, INT16)
PARTITIONS = st.tuples(
    INT32, INT16, INT16, st.tuples(INT32, INT32), st.none() | st.binary(min_size=1, max_size=300), st.lists(ACQUIRED, max_size=3)
)
TOPICS = st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.lists(PARTITIONS, max_size=4)), max_size=3)
NODES = st.lists(st.tuples(INT32, st.text(max_size=20), INT32, st.none() | st.text(max_size=200)), max_size=3)


@given(INT32, INT32, INT16, INT32, TOPICS, NODES)
def test_the_parts_are_those_of_the_message(
    correlation_id: int,
    throttle: int,
    error: int,
    lock: int,
    topics: list[tuple[bytes, list]],
    nodes: list[tuple],  # type: ignore[type-arg]  # generated
) -> None:
    answer = ShareFetchAnswer(correlation_id, throttle, error, lock, len(topics))
    message = ShareFetchResponse(throttle_time_ms=throttle, error_code=error, acquisition_lock_timeout_ms=lock)
    for topic_id, partitions in topics:
        answer.begin_topic(topic_id, len(partitions))
        response = ShareFetchableTopicResponse(topic_id=topic_id)
        message.responses.append(response)
        for index, code, acknowledge_code, leader, records, acquired in partitions:
            answer.put(index, code, acknowledge_code, leader, records, acquired)
            response.partitions.append(
                PartitionData(
                    partition_index=index,
                    error_code=code,
                    acknowledge_error_code=acknowledge_code,
                    current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
                    records=records or b"",
                    acquired_records=[AcquiredRecords(first_offset=a, last_offset=b, delivery_count=c) for a, b, c in acquired],
                )
            )
        answer.end_topic()
    message.node_endpoints = [NodeEndpoint(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in nodes]
    expected = ResponseHeader(correlation_id=correlation_id).encode(1) + message.encode(2)
    assert b"".join(bytes(piece) for piece in answer.finish(nodes)) == expected  # type: ignore[arg-type]  # all are bytes here
