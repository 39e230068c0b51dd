"""Partitions without a leader, or with one that does not answer, are left out and named; the others are read all the same."""

import time
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import cast

import pytest

from broker.cli.console import views
from broker.cli.console.decoding import Decoder
from broker.cli.console.records import Query, Search, export, live
from broker.client.cluster import NO_LEADER, Cluster, TopicPartition
from broker.client.connection import Address, Connection
from broker.client.errors import ClientError, ConnectionLost, Refused
from broker.client.fetcher import Fetcher, FetchSettings
from broker.client.offsets import EARLIEST
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from protocol.schema.message import Message
from tests.support.batches import a_batch

RECORDS = 2
"""In each partition."""
ALIVE, DEAD, LEADERLESS = 1, 2, NO_LEADER
SECONDS = 0.4
"""The timeout of the clients; no test waits for much longer."""


class Leader:
    """A connection to a broker that answers for every partition, but with errors for some."""

    def __init__(self, errors: dict[int, ErrorCode]) -> None:
        self.address = Address("127.0.0.1", 1)
        self.timeout_seconds = SECONDS
        self._errors = errors
        self._answers: deque[Message] = deque()

    @property
    def has_received(self) -> bool:
        return bool(self._answers)

    def ask(self, request: Message, response: type[Message], *, timeout_seconds: float | None = None) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        topics = [
            ListOffsetsTopicResponse(name=topic.name, partitions=[self._offset(each) for each in topic.partitions])
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _offset(self, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=self._errors.get(asked.partition_index, ErrorCode.NONE),
            offset=0 if asked.timestamp == EARLIEST else RECORDS,
        )

    def send(self, request: Message) -> None:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        data = [
            PartitionData(partition_index=each.partition, records=bytes(a_batch(RECORDS)) if each.fetch_offset < RECORDS else b"")
            for each in topic.partitions
        ]
        self._answers.append(FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=data)]))

    def receive(self, timeout_seconds: float) -> Message | None:
        return self._answers.popleft()

    def close(self) -> None:
        """See Connection."""


class ClusterOfTest(Cluster):
    """A cluster with one topic, whose partitions have these leaders. Those in `cannot_fetch` die after they have told their offsets."""

    def __init__(self, *leaders: int, errors: dict[int, ErrorCode] | None = None) -> None:
        super().__init__("127.0.0.1:1", timeout_seconds=SECONDS)
        self.leaders = leaders
        self.cannot_fetch: set[int] = set()
        self.metadata_requests = 0
        self._errors = errors or {}

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        """See Cluster."""
        self.metadata_requests += 1
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader, replica_nodes=[1], isr_nodes=[1])
            for number, leader in enumerate(self.leaders)
        ]
        self._brokers = {ALIVE: Address("127.0.0.1", ALIVE), DEAD: Address("127.0.0.1", DEAD)}
        self._topics["t"] = MetadataResponseTopic(name="t", partitions=partitions)
        brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=number) for number in (ALIVE, DEAD)]
        return MetadataResponse(brokers=brokers, topics=[self._topics["t"]])

    def broker(self, broker_id: int) -> Connection:
        """See Cluster."""
        return self._connected(broker_id, frozenset({DEAD}))

    def new_connection(self, address: Address) -> Connection:
        """See Cluster; the fetcher calls it."""
        return self._connected(address.port, frozenset({DEAD, *self.cannot_fetch}))

    def _connected(self, broker_id: int, dead: frozenset[int]) -> Connection:
        if broker_id in dead:
            raise ConnectionLost(f"no broker can be reached at 127.0.0.1:{broker_id}")
        return cast("Connection", Leader(self._errors))


def found_by(cluster: Cluster, query: Query) -> tuple[list[tuple[int, int]], list[int], str | None]:
    """The records of a search by partition and offset, the partitions that it left out, and the reason of its end."""
    search = Search(cluster, query, Decoder())
    for _ in search.steps():
        pass
    answer = search.answer()
    records = [(each["partition"], each["offset"]) for each in answer["records"]]
    return sorted(records), [each["partition"] for each in answer["missing"]], answer["stopped_by"]


@pytest.mark.parametrize("query", [Query("t"), Query("t", offset=0), Query("t", timestamp_ms=7), Query("t", partitions=(0, 1, 2))])
@pytest.mark.parametrize("other", [LEADERLESS, DEAD])
def test_a_search_shows_the_partitions_that_have_a_leader_and_names_the_others(query: Query, other: int) -> None:
    cluster = ClusterOfTest(ALIVE, other, other)
    records, missing, stopped_by = found_by(cluster, query)
    assert (missing, stopped_by) == ([1, 2], None)
    assert records == ([] if query.timestamp_ms is not None else [(0, 0), (0, 1)])
    assert cluster.metadata_requests < 30


def test_a_partition_whose_leader_cannot_answer_now_is_left_out_with_the_reason() -> None:
    search = Search(ClusterOfTest(ALIVE, ALIVE, errors={1: ErrorCode.KAFKA_STORAGE_ERROR}), Query("t"), Decoder())
    assert len(list(search.steps())) > 0
    (missing,) = search.answer()["missing"]
    assert missing["partition"] == 1
    assert missing["error"].endswith("(KAFKA_STORAGE_ERROR)")


def test_a_right_that_is_missing_is_an_error() -> None:
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        Search(ClusterOfTest(ALIVE, ALIVE, errors={1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}), Query("t"), Decoder())


def test_a_search_without_any_leader_is_an_error_soon() -> None:
    began = time.monotonic()
    with pytest.raises(Refused, match=r"t-0: .*\(LEADER_NOT_AVAILABLE\)"):
        Search(ClusterOfTest(LEADERLESS, LEADERLESS), Query("t"), Decoder())
    assert time.monotonic() - began < 10


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ClientError, match="topic t has no partition 7, only 2 from 0 on"):
        Search(ClusterOfTest(ALIVE, LEADERLESS), Query("t", partitions=(0, 7)), Decoder())


def test_a_leader_that_is_lost_while_its_partition_is_read_keeps_no_other_waiting() -> None:
    cluster = ClusterOfTest(ALIVE, DEAD + 1)
    cluster.cannot_fetch.add(DEAD + 1)
    refresh = cluster.refresh

    def refreshed(topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        answer = refresh(topics, may_create=may_create)
        cluster._brokers[DEAD + 1] = Address("127.0.0.1", DEAD + 1)
        return answer

    cluster.refresh = refreshed  # type: ignore[method-assign]  # one more broker
    assert found_by(cluster, Query("t")) == ([(0, 0), (0, 1)], [1], None)


def test_an_export_ends_with_the_partitions_that_it_lacks() -> None:
    lines: list[str] = []
    with pytest.raises(ClientError, match=r"the records of partition 1, 2 of t are missing: t-1: .*LEADER_NOT_AVAILABLE"):
        for step in export(ClusterOfTest(ALIVE, LEADERLESS, DEAD), Query("t"), lambda where, record, _: f"{where} {record.offset}"):
            lines += step
    assert lines == ["t-0 0", "t-0 1"]


def test_a_live_view_tells_once_which_partitions_it_lacks() -> None:
    steps = live(ClusterOfTest(ALIVE, LEADERLESS), Query("t", offset=0), Decoder())
    seen = list(islice(steps, 3))
    steps.close()
    assert [[each["offset"] for each in step.records] for step in seen] == [[0, 1], [], []]
    assert [[each["partition"] for each in step.missing] for step in seen] == [[1], [], []]


def test_a_reader_gives_up_a_partition_without_leader_after_the_timeout() -> None:
    """As `ottla consume` does; a console leaves it out before."""
    fetcher = Fetcher(ClusterOfTest(ALIVE, LEADERLESS), {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}, FetchSettings())
    offsets: list[int] = []
    with pytest.raises(Refused, match=r"t-1: .*LEADER_NOT_AVAILABLE"):
        while True:
            offsets += [record.offset for batch in fetcher.poll(0.05) for record in batch.records]
    assert offsets == [0, 1]


def test_the_page_of_a_topic_shows_the_offsets_of_the_leaders_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "describe_configs", lambda *_, **__: [])
    asked: list[int] = []

    def log_dirs(_: Cluster, leader: int, __: object) -> list[object]:
        asked.append(leader)
        return []

    monkeypatch.setattr(views, "log_dirs", log_dirs)
    shown = views.topic(ClusterOfTest(ALIVE, LEADERLESS, DEAD), "t")
    assert [(each["leader"], each["start"], each["end"]) for each in shown["partitions"]] == [
        (1, 0, 2),
        (None, None, None),
        (2, None, None),
    ]
    assert asked == [ALIVE]
