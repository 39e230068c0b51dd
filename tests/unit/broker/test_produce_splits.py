"""However batches are spread over Produce requests, each is answered alike and the logs are the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.storage.log.partition_log import PartitionLog
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, state
from tests.unit.storage.test_append import batches

PARTITIONS = 3
Sent = tuple[int, bytes]
"""A partition and its batch."""


def a_bench(**topic_config: str) -> HandlerBench:
    """Broker 0 leads all but the last partition; nobody has that."""
    bench = HandlerBench(**topic_config)
    bench.replicas.say(*(state(isr=[0], replicas=[0], index=index) for index in range(PARTITIONS)))
    bench.know(p0=0, p1=0, p2=0)
    return bench


def requests_of(sent: list[Sent], cuts: set[int]) -> list[list[Sent]]:
    """Cut behind those with these numbers, and before a partition that the request has already."""
    requests: list[list[Sent]] = [[]]
    for number, (partition, batch) in enumerate(sent):
        if any(partition == other for other, _ in requests[-1]):
            requests.append([])
        requests[-1].append((partition, batch))
        if number in cuts:
            requests.append([])
    return [request for request in requests if request]


def answers_of(bench: HandlerBench, requests: list[list[Sent]], version: int) -> list[PartitionProduceResponse]:
    found: list[PartitionProduceResponse] = []
    for request in requests:
        data = [PartitionProduceData(index=partition, records=batch) for partition, batch in request]
        message = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
        answered = {each.index: each for each in bench.ask(message, ApiKey.PRODUCE, version).produced}
        found += [answered[partition] for partition, _ in request]
    return found


def bytes_of(log: PartitionLog) -> list[bytes]:
    return [segment.file.pread(segment.size, 0) for segment in log.segments]


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(
    sent=st.lists(st.tuples(st.integers(0, PARTITIONS), batches().map(bytes)), min_size=1, max_size=14),
    cuts=st.sets(st.integers(0, 13)),
    version=st.sampled_from([3, 6, 7, 8, 9, 11]),
    segment_bytes=st.sampled_from(["1073741824", "500"]),
)
def test_any_split_into_requests_is_answered_alike_and_leaves_the_same_logs(
    sent: list[Sent], cuts: set[int], version: int, segment_bytes: str
) -> None:
    @on_a_loop
    async def run() -> None:
        answers = []
        logs = []
        for split in (cuts, set(range(len(sent)))):
            bench = a_bench(segment_bytes=segment_bytes)
            answers.append(answers_of(bench, requests_of(sent, split), version))
            logs.append([partition.log for partition in bench.replicas.manager])
        assert answers[0] == answers[1]
        for one, other in zip(*logs, strict=True):
            assert one.log_end_offset == other.log_end_offset
            assert bytes_of(one) == bytes_of(other)
            assert [each.batches for each in one.active_producers()] == [each.batches for each in other.active_producers()]

    run()
