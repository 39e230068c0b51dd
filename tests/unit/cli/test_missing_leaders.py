"""Partitions without a leader, or with one that does not answer, are left out and named; the others are read all the same."""

import time
from collections.abc import Iterable
from itertools import islice

import pytest

from ottla.client.cluster import Cluster
from ottla.client.connection import Address
from ottla.client.errors import ClientError, Refused
from ottla.client.fetcher import Fetcher, FetchSettings
from ottla.client.group_offsets.committed import Committed
from ottla.client.group_offsets.kinds import Position
from ottla.client.topic_readers import Reader, Readers
from ottla.console import records, views
from ottla.console.decoding import Decoder
from ottla.console.records import LiveStep, Query, Search, export, live
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.topic_partition import TopicPartition
from tests.support import played_leaders
from tests.support.played_leaders import ALIVE, DEAD, LEADERLESS, RECORDS, ClusterOfTest


def a_search(cluster: Cluster, query: Query) -> Search:
    """A search whose clock stands still: on a busy machine, too, it has the time that it needs."""
    return Search(cluster, query, Decoder(), lambda: 0.0)


def found_by(cluster: Cluster, query: Query) -> tuple[list[tuple[int, int]], list[int], str | None]:
    """The records of a search by partition and offset, the partitions that it left out, and the reason of its end."""
    search = a_search(cluster, query)
    for _ in search.steps():
        pass
    answer = search.answer()
    found = [(each["partition"], each["offset"]) for each in answer["records"]]
    return sorted(found), [each["partition"] for each in answer["missing"]], answer["stopped_by"]


@pytest.mark.slow
@pytest.mark.parametrize("query", [Query("t"), Query("t", offset=0), Query("t", timestamp_ms=7), Query("t", partitions=(0, 1, 2))])
@pytest.mark.parametrize("other", [LEADERLESS, DEAD])
def test_a_search_shows_the_partitions_that_have_a_leader_and_names_the_others(query: Query, other: int) -> None:
    cluster = ClusterOfTest(ALIVE, other, other)
    found, missing, stopped_by = found_by(cluster, query)
    assert (missing, stopped_by) == ([1, 2], None)
    assert found == ([] if query.timestamp_ms is not None else [(0, 0), (0, 1)])
    assert cluster.metadata_requests < 30


@pytest.mark.slow
def test_a_partition_whose_leader_cannot_answer_now_is_left_out_with_the_reason() -> None:
    search = a_search(ClusterOfTest(ALIVE, ALIVE, errors={1: ErrorCode.KAFKA_STORAGE_ERROR}), Query("t"))
    assert len(list(search.steps())) > 0
    (missing,) = search.answer()["missing"]
    assert missing["partition"] == 1
    assert missing["error"].endswith("(KAFKA_STORAGE_ERROR)")


def test_a_right_that_is_missing_is_an_error() -> None:
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        a_search(ClusterOfTest(ALIVE, ALIVE, errors={1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}), Query("t"))


@pytest.mark.slow
def test_a_search_without_any_leader_is_an_error_soon() -> None:
    began = time.monotonic()
    with pytest.raises(Refused, match=r"t-0: .*\(LEADER_NOT_AVAILABLE\)"):
        a_search(ClusterOfTest(LEADERLESS, LEADERLESS), Query("t"))
    assert time.monotonic() - began < 10


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ClientError, match="topic t has no partition 7: its last one is 1"):
        a_search(ClusterOfTest(ALIVE, LEADERLESS), Query("t", partitions=(0, 7)))


@pytest.mark.slow
def test_a_leader_that_is_lost_while_its_partition_is_read_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEARCH_LEADER_SECONDS", 0.2)
    cluster = ClusterOfTest(ALIVE, DEAD + 1)
    cluster.timeout_seconds = 60.0  # after which the whole search would fail
    cluster.cannot_fetch.add(DEAD + 1)
    refresh = cluster.refresh

    def refreshed(topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        answer = refresh(topics, may_create=may_create)
        cluster._brokers[DEAD + 1] = Address("127.0.0.1", DEAD + 1)
        return answer

    cluster.refresh = refreshed  # type: ignore[method-assign]  # one more broker
    assert found_by(cluster, Query("t")) == ([(0, 0), (0, 1)], [1], None)


@pytest.mark.slow
def test_an_export_ends_with_the_partitions_that_it_lacks() -> None:
    lines: list[str] = []
    with pytest.raises(ClientError, match=r"the records of partition 1, 2 of t are missing: t-1: .*LEADER_NOT_AVAILABLE"):
        for step in export(ClusterOfTest(ALIVE, LEADERLESS, DEAD), Query("t"), lambda where, record, _: f"{where} {record.offset}"):
            lines += step
    assert lines == ["t-0 0", "t-0 1"]


@pytest.mark.slow
def test_a_live_view_tells_once_which_partitions_it_lacks() -> None:
    steps = live(ClusterOfTest(ALIVE, LEADERLESS), Query("t", offset=0), Decoder())
    seen = list(islice(steps, 4))
    steps.close()
    assert [[each["offset"] for each in step.records] for step in seen] == [[], [0, 1], [], []]
    assert [[each["partition"] for each in step.missing] for step in seen] == [[], [1], [], []]


def test_a_live_view_has_each_record_that_is_written_after_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played_leaders, "RECORDS", 1)
    steps = live(ClusterOfTest(ALIVE), Query("t"), Decoder())
    assert next(steps) == LiveStep([], [])
    monkeypatch.setattr(played_leaders, "RECORDS", 2)
    assert [each["offset"] for each in next(steps).records] == [1]
    steps.close()


@pytest.mark.slow
def test_a_reader_gives_up_a_partition_without_leader_after_the_timeout() -> None:
    """As `ottla consume` does; a console leaves it out before."""
    fetcher = Fetcher(ClusterOfTest(ALIVE, LEADERLESS), {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}, FetchSettings())
    offsets: list[int] = []
    with pytest.raises(Refused, match=r"t-1: .*LEADER_NOT_AVAILABLE"):
        while True:
            offsets += [record.offset for batch in fetcher.poll(0.05) for record in batch.records]
    assert offsets == [0, 1]


@pytest.mark.slow
def test_the_page_of_a_topic_shows_the_offsets_of_the_leaders_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "describe_configs", lambda *_, **__: [])
    asked: list[int] = []

    def log_dirs(_: Cluster, leader: int, __: object) -> list[object]:
        asked.append(leader)
        return []

    monkeypatch.setattr(views, "log_dirs", log_dirs)
    shown = views.topic(ClusterOfTest(ALIVE, LEADERLESS, DEAD), "t")
    ranges = [(each["leader"], each["start"], each["end"]) for each in shown["partitions"]]
    assert ranges == [(ALIVE, 0, RECORDS), (None, None, None), (DEAD, None, None)]
    assert asked == [ALIVE]


def test_the_page_of_a_topic_shows_its_partitions_to_a_client_that_may_not_see_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def refused(*_: object, **__: object) -> list[object]:
        raise Refused("topic t", code)

    monkeypatch.setattr(views, "describe_configs", refused)
    monkeypatch.setattr(views, "log_dirs", lambda *_: [])
    shown = views.topic(ClusterOfTest(ALIVE), "t")
    assert [each["end"] for each in shown["partitions"]] == [RECORDS]
    assert (shown["configs"], shown["configs_error"]) == ([], "topic t: Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)")
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # it was deleted
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        views.topic(ClusterOfTest(ALIVE), "t")


@pytest.mark.slow
@pytest.mark.parametrize(("offsets", "lag"), [({0: 1}, 1), ({0: 1, 1: 0}, None), ({2: 0}, None), ({}, 0)])
def test_the_lag_of_a_group_is_unknown_without_the_end_of_a_partition(
    offsets: dict[int, int], lag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: dict[int, Position] = {number: Committed(offset, "") for number, offset in offsets.items()}
    monkeypatch.setattr(views, "reachable_groups", lambda _: ([], {}))
    monkeypatch.setattr(views, "readers_of", lambda *_: Readers([Reader("g", "Empty", 0, committed)], [], {}))
    (line,) = views.topic_groups(ClusterOfTest(ALIVE, LEADERLESS, DEAD), "t")["groups"]
    assert line["lag"] == lag
