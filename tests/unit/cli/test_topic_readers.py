"""The groups that read a topic are found by few waits, also while groups move, vanish or are hidden, and while coordinators are lost."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from ottla.client import topic_readers
from ottla.client.assignor import PROTOCOL_TYPE, encode_assignment
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.group_admin import DescribedGroup as Described
from ottla.client.group_admin import ListedGroup, Member
from ottla.client.group_offsets.committed import Committed
from ottla.client.topic_readers import Reader, readers_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from tests.support.offsets_of_groups import offsets_at

OFFSETS = {"lagging": {0: 5, 2: 7}, "elsewhere": {}, "assigned": {}}
ASSIGNED = {"assigned": [[TopicPartition("t", 0)], [TopicPartition("t", 1), TopicPartition("u", 0)], [TopicPartition("u", 1)]]}


class Coordinator:
    """A connection to a coordinator. `errors` are those of its groups, `most` the largest number of requests without an answer."""

    address = "127.0.0.1:1"

    def __init__(self, errors: dict[str, ErrorCode] | None = None, *, lost_after: int | None = None) -> None:
        self.errors = errors or {}
        self.lost_after = lost_after
        self.sent: list[Message] = []
        self.most = 0
        self._answers: deque[Message] = deque()

    def send(self, request: Message) -> None:
        self.sent.append(request)
        if isinstance(request, DescribeGroupsRequest):
            self._answers.append(DescribeGroupsResponse(groups=[self._described(each) for each in request.groups]))
        else:
            assert isinstance(request, OffsetFetchRequest)
            partitions = [
                OffsetFetchResponsePartition(
                    partition_index=number, committed_offset=OFFSETS.get(request.group_id, {}).get(number, -1), metadata="", error_code=0
                )
                for number in request.topics[0].partition_indexes
            ]
            self._answers.append(OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)], error_code=0))
        self.most = max(self.most, len(self._answers))

    def _described(self, group: str) -> DescribedGroup:
        members = [DescribedGroupMember(member_assignment=encode_assignment(each)) for each in ASSIGNED.get(group, [])]
        error = self.errors.get(group, ErrorCode.NONE)
        state = "Stable" if members else "Empty"
        return DescribedGroup(error_code=error, group_id=group, group_state=state, protocol_type=PROTOCOL_TYPE, members=members)

    def receive(self, timeout_seconds: float) -> Message | None:
        if self.lost_after is not None and len(self.sent) > self.lost_after:
            self.lost_after = None
            self._answers.clear()
            raise ConnectionLost("the broker closed the connection")
        return self._answers.popleft() if self._answers else None


class ClusterOfTest(Cluster):
    """A cluster whose brokers are all one coordinator. Those in `lost` do not answer; `on_lost` is called first."""

    def __init__(self, coordinator: Coordinator, partitions: int = 3) -> None:
        super().__init__("127.0.0.1:1", timeout_seconds=5.0)
        self.lost: set[int] = set()
        self.on_lost: Callable[[], object] = lambda: None
        self.dropped: list[Connection] = []
        self._coordinator = coordinator
        self._count = partitions

    def partitions(self, topic: str) -> list[int]:
        """See Cluster."""
        return list(range(self._count))

    def broker(self, broker_id: int) -> Connection:
        """See Cluster."""
        if broker_id in self.lost:
            self.on_lost()
            raise ConnectionLost(f"no broker can be reached at 127.0.0.1:{broker_id}")
        return cast("Connection", self._coordinator)

    def drop(self, connection: Connection) -> None:
        """See Cluster."""
        self.dropped.append(connection)


def listed(names: Sequence[str], kind: str = "Classic", coordinator: int = 1) -> list[ListedGroup]:
    return [ListedGroup(name, PROTOCOL_TYPE, "Stable", kind, coordinator) for name in names]


def texts(errors: dict[int, ClientError]) -> dict[int, str]:
    return {broker_id: str(error) for broker_id, error in errors.items()}


LAGGING = Reader("lagging", "Empty", 0, {0: Committed(5, ""), 2: Committed(7, "")})
ASSIGNED_READER = Reader("assigned", "Stable", 2, {})


def test_groups_with_offsets_or_with_members_of_the_topic_read_it() -> None:
    for kind in ("Classic", ""):
        found = readers_of(ClusterOfTest(Coordinator()), "t", listed(["lagging", "elsewhere", "assigned"], kind))
        assert found == ([ASSIGNED_READER, LAGGING], [], {})


@pytest.mark.slow
def test_many_groups_are_asked_before_the_first_answer_is_awaited_and_not_too_many() -> None:
    coordinator = Coordinator()
    readers_of(ClusterOfTest(coordinator), "t", listed([f"group-{number}" for number in range(500)]))
    assert (len(coordinator.sent), coordinator.most) == (510, 51)
    large = Coordinator()
    readers_of(ClusterOfTest(large, 15_000), "t", listed(["lagging", "assigned"]))
    assert (len(large.sent), large.most) == (4, 2)


def test_a_connection_that_breaks_is_not_used_again() -> None:
    cluster = ClusterOfTest(Coordinator(lost_after=2))
    assert readers_of(cluster, "t", listed(["lagging", "assigned"])).found == [ASSIGNED_READER, LAGGING]
    assert len(cluster.dropped) == 1


def test_an_answer_that_does_not_come_is_a_lost_connection() -> None:
    coordinator = Coordinator()
    coordinator.receive = lambda _: None  # type: ignore[method-assign]  # an answer that never comes
    cluster = ClusterOfTest(coordinator)
    with cluster.until(0.0):
        found = readers_of(cluster, "t", listed(["lagging"]))
    assert (found.found, texts(found.lost)) == ([], {1: "the broker at 127.0.0.1:1 did not answer in time"})


def test_coordinators_that_are_lost_hide_no_group_of_the_others_and_are_waited_for_at_the_same_time() -> None:
    cluster = ClusterOfTest(Coordinator())
    cluster.lost = {2, 3}
    cluster.on_lost = threading.Barrier(2, timeout=30.0).wait
    groups = [*listed(["gone"], coordinator=2), *listed(["lagging", "assigned"]), *listed(["away"], coordinator=3)]
    with cluster.until(0.0):  # each broker is asked once
        found = readers_of(cluster, "t", groups)
    assert (found.found, found.refused) == ([ASSIGNED_READER, LAGGING], [])
    assert texts(found.lost) == {number: f"no broker can be reached at 127.0.0.1:{number}" for number in (2, 3)}


def test_groups_that_were_described_before_their_coordinator_was_lost_are_kept() -> None:
    cluster = ClusterOfTest(Coordinator(lost_after=2), 15_000)  # so many partitions that each group has requests of its own
    with cluster.until(0.0):
        found = readers_of(cluster, "t", listed(["lagging", "assigned"]))
    assert (found.found, list(found.lost)) == ([LAGGING], [1])


@pytest.fixture
def asked_alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that are asked alone; "secret" may not be described."""
    asked: list[str] = []

    def described(_: Cluster, group: str) -> Described:
        asked.append(group)
        if group == "secret":
            raise Refused(f"group {group}", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        member = Member("m", None, "c", "h", ["t"], [TopicPartition("t", 0)])
        return Described(group, "Stable", "Consumer", PROTOCOL_TYPE, "range", "127.0.0.1:2", [member])

    monkeypatch.setattr(topic_readers, "describe_group", described)
    monkeypatch.setattr(topic_readers, "requests_of", offsets_at({TopicPartition("t", 1): Committed(9, "")}))
    return asked


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_group_that_moved_is_asked_at_its_present_coordinator(asked_alone: list[str], error: ErrorCode) -> None:
    cluster = ClusterOfTest(Coordinator({"moved": error}))
    moved = Reader("moved", "Stable", 1, {1: Committed(9, "")})
    assert readers_of(cluster, "t", listed(["moved", "lagging"])) == ([LAGGING, moved], [], {})


def test_another_error_of_a_group_is_raised() -> None:
    cluster = ClusterOfTest(Coordinator({"odd": ErrorCode.INVALID_GROUP_ID}))
    with pytest.raises(Refused, match="group odd"):
        readers_of(cluster, "t", listed(["odd"]))
