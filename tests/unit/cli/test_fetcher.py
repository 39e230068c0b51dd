"""A fetcher makes a bounded number of records at a time, and ends with the partition that its reader gives up."""

import socket
import time

import pytest

from ottla.client import fetcher as fetching
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused
from ottla.client.fetcher import MAX_RECORDS, Fetcher, FetchSettings
from ottla.client.offsets import READ_COMMITTED
from ottla.console import records
from ottla.console.decoding import Decoder
from ottla.console.records import Query, Search
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from tests.support.batches import a_batch, a_record
from tests.support.played_leaders import ALIVE, RECORDS, SECONDS, ClusterOfTest, Leader

MAX_HEADERS = 5000
"""In the place of a limit that takes a second to reach."""
P0 = TopicPartition("t", 0)
SMALL = b"".join(bytes(a_batch(2, base_offset=offset)) for offset in range(0, 10, 2))


def fetcher_at(offset: int, isolation: int = 0) -> Fetcher:
    return Fetcher(Cluster("127.0.0.1:1"), {P0: offset}, FetchSettings(isolation=isolation))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("position", "sizes"), [(0, [MAX_RECORDS, MAX_RECORDS, 5000]), (12_000, [MAX_RECORDS, 3000]), (15_000, [MAX_RECORDS, 0]), (24_999, [1])]
)
def test_a_large_batch_comes_in_parts_that_follow_one_another(position: int, sizes: list[int]) -> None:
    fetcher = fetcher_at(position)
    data = PartitionData(partition_index=0, records=bytes(a_batch(25_000, "zstd")))
    offsets = []
    for part in fetcher._records_of(P0, data):
        assert fetcher.positions == {P0: part.next_offset}
        offsets.append([record.offset for record in part.records])
    assert [len(each) for each in offsets] == sizes
    assert [each for part in offsets for each in part] == list(range(position, 25_000))
    assert fetcher.positions == {P0: 25_000}


@pytest.mark.slow
def test_many_headers_are_not_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_HEADERS", MAX_HEADERS)
    many = ((b"", None),) * (MAX_HEADERS // 2)
    batch = bytes(a_batch([a_record(offset, headers=many) for offset in range(5)], "zstd"))
    fetcher = fetcher_at(0)
    found = fetcher._records_of(P0, PartitionData(partition_index=0, records=batch))
    parts = [[record.offset for record in part.records] for part in found]
    assert (parts, fetcher.positions) == ([[0, 1, 2], [3, 4]], {P0: 5})


def test_a_record_with_too_many_headers_is_refused_and_can_be_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_HEADERS", MAX_HEADERS)
    records = [a_record(0), a_record(1, headers=((b"", None),) * (MAX_HEADERS + 1)), a_record(2)]
    data = PartitionData(partition_index=0, records=bytes(a_batch(records, "zstd")))
    before = fetcher_at(0)._records_of(P0, data)
    assert [record.offset for record in next(before).records] == [0]
    why = f"t-0: .* from offset 1 on cannot be read: the record at offset 1 has {MAX_HEADERS + 1} headers; at most {MAX_HEADERS} are read"
    with pytest.raises(ClientError, match=why):
        next(before)
    with pytest.raises(ClientError, match=why):
        next(fetcher_at(1)._records_of(P0, data))
    (after,) = fetcher_at(2)._records_of(P0, data)
    assert [record.offset for record in after.records] == [2]


def test_an_aborted_batch_gives_no_records_and_is_passed() -> None:
    fetcher = fetcher_at(0, READ_COMMITTED)
    batch = bytes(a_batch(12_000, "zstd", producer_id=7, transactional=True))
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    (found,) = fetcher._records_of(P0, PartitionData(partition_index=0, records=batch, aborted_transactions=aborted))
    assert (found.records, found.next_offset) == ([], 12_000)


class HangingLeader(Leader):
    """A connection to a leader that takes requests and answers none."""

    def __init__(self) -> None:
        super().__init__({}, None)
        self._mine, self._other = socket.socketpair()

    def fileno(self) -> int:
        return self._mine.fileno()

    def send(self, request: Message) -> None:
        """See Connection."""

    def receive(self, timeout_seconds: float) -> Message | None:
        return None

    def receive_a_part(self) -> None:
        self._other.send(b"a")

    def close(self) -> None:
        self._mine.close()
        self._other.close()


def test_a_leader_that_hangs_is_given_up_when_it_has_left_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterOfTest(ALIVE)
    leaders = [HangingLeader(), Leader({}, None)]
    monkeypatch.setattr(cluster, "new_connection", lambda _: leaders.pop(0))
    looks = [False, True]
    monkeypatch.setattr(cluster, "has_left", lambda _: looks.pop(0))
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    fetcher = Fetcher(cluster, {P0: 0}, FetchSettings(max_wait_ms=500))
    for at, left in ((0.0, 2), (0.54, 2), (0.6, 1), (0.62, 1), (0.7, 0)):
        now = at
        assert (list(fetcher.poll(0)), len(looks)) == ([], left)
    assert [each.next_offset for each in fetcher.poll(0)] == [RECORDS]


def test_a_leader_that_hangs_is_given_up_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterOfTest(ALIVE)
    monkeypatch.setattr(cluster, "has_left", lambda _: False)
    hanging = HangingLeader()
    leaders = [hanging, Leader({}, None)]
    monkeypatch.setattr(cluster, "new_connection", lambda _: leaders.pop(0))
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    fetcher = Fetcher(cluster, {P0: 0}, FetchSettings(max_wait_ms=500))
    assert list(fetcher.poll(0)) == []
    now = SECONDS + 0.4
    hanging.receive_a_part()
    assert list(fetcher.poll(0)) == []
    hanging._mine.recv(1)
    now += SECONDS + 0.4
    assert (list(fetcher.poll(0)), len(leaders)) == ([], 1)
    now += 0.2
    assert (list(fetcher.poll(0)), hanging.fileno()) == ([], -1)
    assert [each.next_offset for each in fetcher.poll(0)] == [RECORDS]


def test_a_partition_that_its_leader_does_not_serve_for_as_long_as_the_timeout_is_an_error() -> None:
    fetcher = fetcher_at(0)
    data = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    assert list(fetcher._records_of(P0, data)) == []
    since, error = fetcher._failing[P0]
    fetcher._failing[P0] = since - fetcher._cluster.timeout_seconds - 1, error
    with pytest.raises(Refused, match="OFFSET_NOT_AVAILABLE"):
        list(fetcher._records_of(P0, data))


@pytest.mark.parametrize("answer", [SMALL, bytes(a_batch(25_000, "zstd"))], ids=["small batches", "a large one"])
def test_a_partition_that_its_reader_gives_up_gives_nothing_more(answer: bytes) -> None:
    """As `ottla consume --until TIME` does after the first record that is too young."""
    fetcher = fetcher_at(0)
    seen = 0
    for _ in fetcher._records_of(P0, PartitionData(partition_index=0, records=answer)):
        seen += 1
        fetcher.positions.pop(P0)
    assert (seen, fetcher.positions) == (1, {})


def test_a_search_looks_at_its_limits_within_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "STEP_RECORDS", RECORDS)
    monkeypatch.setattr(records, "MAX_SCANNED_RECORDS", RECORDS)
    search = Search(ClusterOfTest(ALIVE, ALIVE, ALIVE), Query("t"), Decoder())
    assert list(search.steps()) == []
    answer = search.answer()
    assert (answer["stopped_by"], answer["scanned"]["records"]) == ("records", RECORDS)
    assert [each["next"] for each in answer["partitions"]] == [RECORDS, 0, 0]
