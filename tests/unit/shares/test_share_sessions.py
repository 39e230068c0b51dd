"""Share sessions belong to members and connections, and all of them together have a limited number of partitions."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.shares import share_requests
from ottla.broker.handlers.shares.share_requests import acknowledged_in
from ottla.coordination.shares import sessions
from ottla.coordination.shares.record_states import Acknowledgement
from ottla.coordination.shares.sessions import SessionKey, ShareSession, ShareSessions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic
from tests.support.pauses import steps_of

TOPIC_ID = b"the id of topic "


class Connection:
    """See Owner."""

    def __init__(self) -> None:
        self.is_lost = False


class Stage:
    """Sessions of the members of a group. `released` has the partitions that each session had at its end."""

    def __init__(self) -> None:
        self.released: list[list[tuple[bytes, int]]] = []
        self.sessions = ShareSessions(100, lambda session: self.released.append(list(session.partitions)), lambda group_id: None)
        self.owner = Connection()

    def begin(self, member_id: str, count: int) -> tuple[ShareSession, bool]:
        """A session with partitions 0 to `count`, and whether all of them had room."""
        error, session = self.sessions.begin(SessionKey("g", member_id), self.owner)
        assert error == ErrorCode.NONE
        assert session is not None
        return session, all(self.sessions.add(session, (TOPIC_ID, index)) for index in range(count))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(sessions, "MAX_PARTITIONS", 10)
    return Stage()


def test_all_sessions_together_have_a_limited_number_of_partitions(stage: Stage) -> None:
    first, fits = stage.begin("first", 6)
    assert (fits, stage.sessions.partitions) == (True, 6)
    second, fits = stage.begin("second", 5)
    assert (fits, stage.sessions.partitions) == (False, 10)
    stage.sessions.end(second)
    stage.sessions.end(first)
    assert stage.sessions.partitions == 0
    assert [len(partitions) for partitions in stage.released] == [4, 6]
    assert stage.begin("third", 10)[1]


def test_partitions_without_records_do_not_keep_the_others_from_being_looked_at(stage: Stage) -> None:
    session, _ = stage.begin("first", 5)
    assert [index for _, index in session.next_places(5)] == [0, 1, 2, 3, 4]
    looked_at = [[index for _, index in session.next_places(3)] for _ in range(3)]
    assert looked_at == [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    assert len(session.partitions) == stage.sessions.partitions == 5


def test_a_partition_counts_once_and_until_it_is_forgotten(stage: Stage) -> None:
    session, fits = stage.begin("member", 10)
    assert fits
    assert stage.sessions.add(session, (TOPIC_ID, 3)), "it is there already"
    stage.sessions.forget(session, (TOPIC_ID, 3))
    stage.sessions.forget(session, (TOPIC_ID, 3))
    assert stage.sessions.partitions == 9
    assert stage.sessions.add(session, (TOPIC_ID, 11))
    assert not stage.sessions.add(session, (TOPIC_ID, 12))


def test_a_session_that_was_replaced_counts_no_more(stage: Stage) -> None:
    former, _ = stage.begin("member", 8)
    session, fits = stage.begin("member", 8)
    assert (fits, stage.sessions.partitions, stage.released) == (True, 8, [])
    assert not former.partitions, "a fetch that waits may keep it"
    assert stage.sessions.add(former, (TOPIC_ID, 1)), "its request goes on, without effect"
    stage.sessions.forget(former, (TOPIC_ID, 1))
    stage.sessions.end(former)
    assert (stage.sessions.partitions, len(session.partitions)) == (8, 8)


def test_sessions_of_lost_connections_give_their_partitions_back(stage: Stage) -> None:
    session, _ = stage.begin("member", 8)
    stage.owner.is_lost = True
    stage.sessions.end_lost()
    assert (stage.sessions.partitions, len(stage.sessions), session.partitions) == (0, 0, {})


def test_acknowledgements_of_many_partitions_and_batches_are_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_requests, "AT_ONCE", 10)
    batches = [AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[1]) for at in range(95)]
    partitions = [
        FetchPartition(partition_index=0, acknowledgement_batches=batches),
        *(FetchPartition(partition_index=index) for index in range(1, 50)),
    ]
    steps, found = steps_of(acknowledged_in([FetchTopic(topic_id=TOPIC_ID, partitions=partitions)]))
    assert {place: each.batches for place, each in found.items()} == {(TOPIC_ID, 0): [Acknowledgement(0, 94, [1])]}
    assert steps >= 50 + 10


def test_one_member_cannot_take_the_partitions_of_all_sessions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSION_PARTITIONS", 4)
    _, fits = stage.begin("greedy", 10)
    assert (fits, stage.sessions.partitions) == (False, 4)
    assert stage.begin("modest", 4)[1]
