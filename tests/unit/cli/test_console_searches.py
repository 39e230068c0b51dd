"""A search of the console ends at its limits, and with its client."""

import asyncio

import pytest
from starlette.types import Message

from ottla.client.fetcher import Fetcher
from ottla.console import records
from ottla.console.application import application
from ottla.console.audit import Audit
from ottla.console.clusters import Clusters, Served
from ottla.console.decoding import Decoder
from ottla.console.guard import Rules
from ottla.console.login.sessions import Sessions
from ottla.console.records import Query, Search
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
