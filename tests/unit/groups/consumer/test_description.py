"""ConsumerGroupDescribe shows topics of a group only to clients that may see all of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.handlers.groups.consumer_group_describe import handle_consumer_group_describe
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.records import CurrentAssignment, GroupEpoch, MemberMetadata, Record, TargetMember
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.support.consumer_groups import topic_id

SECRET = topic_id("secret")
BY_NAME = Member("m", topics=("secret",))
BY_REGEX = Member("m", regex="s.*")


def a_context(group: ConsumerGroup, hidden: str) -> RequestContext:
    """A request of a client that may describe all but one topic."""
    consumer = SimpleNamespace(is_served=True, describe=lambda group_id: (ErrorCode.NONE, None, group), assignor_of=lambda group: "uniform")
    broker = SimpleNamespace(
        coordinators=SimpleNamespace(groups=SimpleNamespace(consumer=consumer)),
        metadata=SimpleNamespace(names_by_id={SECRET: "secret"}),
    )

    def is_authorized(operation: object, resource_type: object, name: str, *, log_if_denied: bool = True) -> bool:
        return name != hidden

    return cast("RequestContext", SimpleNamespace(broker=broker, is_authorized=is_authorized, scratch=lambda items: items))


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((MemberMetadata("m", BY_NAME),), id="subscribed"),
        pytest.param((MemberMetadata("m", BY_REGEX), CurrentAssignment("m", Member("m", assigned={SECRET: {0: 1}}))), id="assigned"),
        pytest.param((MemberMetadata("m", BY_REGEX), TargetMember("m", {SECRET: frozenset({0})})), id="target"),
    ],
)
def test_a_group_is_described_only_to_clients_that_may_see_all_its_topics(records: tuple[Record, ...]) -> None:
    group = ConsumerGroup("g")
    for record in (GroupEpoch(1), *records):
        group.apply(record)
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    for hidden, error in (("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("other", ErrorCode.NONE)):
        (described,) = asyncio.run(handle_consumer_group_describe(request, a_context(group, hidden))).groups
        assert described.error_code == error
        assert bool(described.members) is (error == ErrorCode.NONE)
