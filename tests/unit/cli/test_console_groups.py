"""The console's API shows groups of all types: share groups have partitions with several members, and a lag that the broker tells."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.cluster import Cluster
from ottla.client.group_admin import DescribedGroup, ListedGroup, Member
from ottla.client.group_offsets.committed import Committed
from ottla.client.group_offsets.kinds import Position
from ottla.client.group_offsets.starts import Start
from ottla.console import group_changes, views
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.topic_partition import TopicPartition
from tests.support.console_requests import ConsoleUnderTest
from tests.support.offsets_of_groups import offsets_at

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBERS = [Member(name, None, "client", "/127.0.0.1", ["t"], [FIRST]) for name in ("m1", "m2")]
SHARE = DescribedGroup("g", "Stable", "Share", "share", "simple", "127.0.0.1:1", MEMBERS, 7)
CONSUMER = DescribedGroup("g", "Stable", "Consumer", "consumer", "uniform", "127.0.0.1:1", MEMBERS[:1], 3)


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> Callable[[DescribedGroup, dict[TopicPartition, Position]], ConsoleUnderTest]:
    """A console of a cluster with one group at these offsets; both partitions of the topic end at 10."""
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=1) for index in range(2)]
    metadata = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])
    monkeypatch.setattr(Cluster, "refresh", lambda *_: metadata)
    monkeypatch.setattr(views, "reachable_offsets", lambda _, wanted: (dict.fromkeys(wanted, 10), {}))

    def shown(group: DescribedGroup, offsets: dict[TopicPartition, Position]) -> ConsoleUnderTest:
        listed = [ListedGroup(group.group, group.protocol_type, group.state, group.type, 1)]
        monkeypatch.setattr(views, "reachable_groups", lambda _: (listed, {}))
        for module in (views, group_changes):
            monkeypatch.setattr(module, "describe_group", lambda *_: group)
            monkeypatch.setattr(module, "requests_of", offsets_at(offsets))
        return ConsoleUnderTest()

    return shown


def partitions_of(found: Any) -> list[tuple[int | None, int | None, list[str]]]:
    return [(each["offset"], each["lag"], each["members"]) for each in found["partitions"]]


def test_a_share_group_has_a_type_an_epoch_members_and_a_lag(shows: Any) -> None:
    console = shows(SHARE, {FIRST: Start(4, 2), SECOND: Start(None, None)})
    (listed,) = console.get("/api/v1/groups").json["groups"]
    assert (listed["type"], listed["protocol_type"], listed["state"]) == ("Share", "share", "Stable")
    found = console.get("/api/v1/groups/g").json
    assert (found["type"], found["assignor"], found["epoch"], [each["id"] for each in found["members"]]) == (
        "Share",
        "simple",
        7,
        ["m1", "m2"],
    )
    assert partitions_of(found) == [(4, 2, ["m1", "m2"]), (None, None, [])], "four of the records behind the start are complete"


def test_a_consumer_group_has_a_type_an_epoch_a_member_and_a_lag(shows: Any) -> None:
    found = shows(CONSUMER, {FIRST: Committed(4, ""), SECOND: Committed(10, "")}).get("/api/v1/groups/g").json
    assert (found["type"], found["assignor"], found["epoch"]) == ("Consumer", "uniform", 3)
    assert partitions_of(found) == [(4, 6, ["m1"]), (10, 0, [])]


def test_a_share_group_cannot_be_set_to_its_own_offset(shows: Any) -> None:
    answer = shows(SHARE, {FIRST: Start(4, 2)}).get("/api/v1/group-reset?group=g&to=current")
    assert (answer.status, answer.error) == (
        400,
        "to=current makes no sense for a share group: its position is not one offset; use to=offset",
    )
