"""A search of the console ends at its limits, and with its client."""

import asyncio
from collections.abc import Iterator
from typing import ClassVar

import pytest
from starlette.types import Message

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.fetcher import Fetcher
from ottla.console import records
from ottla.console.application import application
from ottla.console.audit import Audit
from ottla.console.clusters import Clusters, Served
from ottla.console.decoding import Decoder
from ottla.console.guard import Rules
from ottla.console.login.sessions import Sessions
from ottla.console.records import Found, Query, Search
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from tests.support.played_leaders import ALIVE, RECORDS, ClusterOfTest


@pytest.mark.parametrize(
    ("limit", "name"), [("MAX_SCANNED_RECORDS", "records"), ("MAX_SCANNED_BYTES", "bytes"), ("MAX_SEARCH_SECONDS", "seconds")]
)
def test_a_search_ends_at_each_of_its_limits_and_says_where_it_goes_on(limit: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, limit, 0 if name == "seconds" else RECORDS)
    search = Search(ClusterOfTest(ALIVE, ALIVE, ALIVE, partitions_at_once=1), Query("t"), Decoder())
    assert list(search.steps()) == []
    answer = search.answer()
    assert (answer["stopped_by"], answer["scanned"]["records"], len(answer["records"])) == (name, RECORDS, RECORDS)
    assert [each["next"] for each in answer["partitions"]] == [RECORDS, 0, 0]


TIMES = {TopicPartition("t", 0): [100, 5], TopicPartition("t", 1): [50, 60], TopicPartition("t", 2): [7, 70, 8, 80]}


class ScanOfTimes:
    """Reads TIMES, as Scan reads the last records of a topic."""

    missing: ClassVar[dict[TopicPartition, ClientError]] = {}
    records = bytes = 0

    def __init__(self, _: Cluster, query: Query, *__: object) -> None:
        self.starts = dict.fromkeys(TIMES, 0)
        self.ends = {where: (query.ends or {}).get(where.partition, len(times)) for where, times in TIMES.items()}
        self.first = {where: max(0, end - query.limit) for where, end in self.ends.items()}
        self.positions = self.ends

    def to_the_end(self) -> Iterator[list[Found]]:
        """See Scan."""
        for where, end in self.ends.items():
            read = range(self.first[where], end)
            yield [Found(where, Record(at, TIMES[where][at], None, None), TimestampType.CREATE_TIME) for at in read]


@pytest.mark.parametrize("limit", [1, 2, 3, 20])
def test_page_by_page_each_record_is_shown_once_also_where_timestamps_do_not_grow(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "Scan", ScanOfTimes)
    shown: list[tuple[int, int]] = []
    query = Query("t", limit=limit)
    for _ in range(8):
        search = Search(ClusterOfTest(ALIVE), query, Decoder(), lambda: 0.0)
        list(search.steps())
        answer = search.answer()
        shown += [(each["partition"], each["offset"]) for each in answer["records"]]
        if all(each["older"] is None for each in answer["partitions"]):
            break
        query = query._replace(ends={each["partition"]: each["older"] or each["start"] for each in answer["partitions"]})
    assert sorted(shown) == [(where.partition, at) for where, times in TIMES.items() for at in range(len(times))]


def test_a_search_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = 0

    def poll(*_: object) -> tuple[()]:
        nonlocal polls
        polls += 1
        return ()

    monkeypatch.setattr(Fetcher, "poll", poll)  # which never gives a record
    cluster = ClusterOfTest(ALIVE)
    cluster.timeout_seconds = 600.0
    served = Served("c", lambda: cluster, Decoder())
    sessions = Sessions(None, lambda: 0.0)
    app = application(Clusters([served]), Rules(frozenset({"localhost"}), sessions, Audit(lambda _: None, lambda: 0.0, lambda: 0.0)))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": "",
        "path": "/api/v1/topics/t/records", "raw_path": b"", "query_string": b"", "client": None, "server": None,
        "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 60.0))
    assert polls == 1
    assert served.streams == 0
