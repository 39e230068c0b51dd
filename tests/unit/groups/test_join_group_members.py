"""JoinGroup, SyncGroup and LeaveGroup: what the coordinator is told of a client; the answer to a leader, packed as the message says."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.handlers.groups.describe_groups import handle_describe_groups
from ottla.broker.handlers.groups.join_group import MAX_PROTOCOLS, handle_join_group, with_members
from ottla.broker.handlers.groups.leave_group import handle_leave_group
from ottla.broker.handlers.groups.sync_group import handle_sync_group
from ottla.broker.network.gather import UNCOPIED_BYTES
from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.running import RunningRequests
from ottla.coordination.groups.classic_group import MemberMetadata
from ottla.coordination.groups.effects import LeaveReply, LeaveResult
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.syncing import Sync
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema.registry import api
from tests.support.connections import ClientConnection
from tests.support.followers import until
from tests.support.groups import GroupDriver
from tests.support.handler_bench import on_a_loop
from tests.support.pauses import Steps, at_once, steps_of
from tests.support.services import services_with

VERSIONS = api(ApiKey.JOIN_GROUP).versions
NAMES = st.one_of(st.text(max_size=20), st.sampled_from(["", "x" * 126, "x" * 127, "größer" * 3_000]))
MEMBERS = st.lists(
    st.tuples(NAMES, st.one_of(st.none(), NAMES), st.one_of(st.binary(max_size=20), st.sampled_from([b"y" * 127, b"y" * 20_000]))),
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.parametrize("version", range(VERSIONS.first, VERSIONS.last + 1))
@settings(max_examples=30, deadline=None)
@given(MEMBERS, st.integers(1, 40))
def test_members_are_written_as_the_message_says(version: int, members: list[MemberMetadata], times: int) -> None:
    members = members * times
    response = JoinGroupResponse(generation_id=3, protocol_type="consumer", protocol_name="range", leader="me", member_id="me")
    bare = b"head" + response.encode(version)
    response.members = [
        JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
        for member_id, instance_id, metadata in members
    ]
    parts = with_members(bare, "me", members, version)
    assert b"".join(parts) == b"head" + response.encode(version)  # type: ignore[arg-type]  # no part is in a file


def test_connections_that_have_not_sent_the_members_share_them() -> None:
    members: list[MemberMetadata] = [(f"m{number}", None, bytes(4_000)) for number in range(100)]
    bare = JoinGroupResponse(leader="m0", member_id="m0").encode(9)
    first, again = (with_members(bare, "m0", list(members), 9) for _ in range(2))
    assert first[-1] is again[-1]
    assert len(first[0]) < 100 < UNCOPIED_BYTES < len(first[-1])  # type: ignore[arg-type]  # as above
    others = [with_members(bare, "m0", [*members, ("new", None, b"")], 9), with_members(JoinGroupResponse().encode(5), "m0", members, 5)]
    assert not any(part is first[-1] for parts in others for part in parts)
    other_metadata: list[MemberMetadata] = [*members[:-1], (members[-1][0], None, bytes([1]) * 4_000)]
    assert b"".join(with_members(bare, "m0", other_metadata, 9)).endswith(bytes([1]) * 4_000 + bytes(2))  # type: ignore[arg-type]  # as above
    assert with_members(bare, "m0", members[:1], 9)[-1] is not with_members(bare, "m0", members[:1], 9)[-1], "small ones are copied"


def test_the_members_go_when_no_connection_has_them_left() -> None:
    members: list[MemberMetadata] = [("only", None, bytes(UNCOPIED_BYTES))]
    parts = with_members(JoinGroupResponse().encode(9), "only", members, 9)
    shared = ref(parts[-1])
    assert shared() is not None
    parts.clear()
    assert shared() is None


class Told:
    """A coordinator that keeps what it is told."""

    def __init__(self) -> None:
        self.joins: list[Join] = []
        self.syncs: list[Sync] = []
        self.leaving: list[Leaving] = []
        self.times = 0

    def join(self, group_id: str, join: Join) -> None:
        self.joins.append(join)

    def sync(self, group_id: str, sync: Sync) -> None:
        self.syncs.append(sync)

    def leave(self, group_id: str, leaving: list[Leaving], reply: LeaveReply) -> None:
        self.leaving += leaving
        self.times += 1
        reply(LeaveResult(ErrorCode.NONE, [ErrorCode.NONE] * len(leaving)))


def a_context(key: ApiKey, version: int, groups: Told, host: str = "127.0.0.1") -> RequestContext:
    return RequestContext(key, version, 0, "c", ClientConnection(client_host=host), services_with(groups=groups), lambda _, __: CLOSE)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "/127.0.0.1"), ("::1", "/0:0:0:0:0:0:0:1")])
def test_the_host_of_a_member_is_shown_as_java_shows_it(host: str, shown: str) -> None:
    groups = Told()
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols)
    handle_join_group(request, a_context(ApiKey.JOIN_GROUP, 9, groups, host))
    assert [join.client_host for join in groups.joins] == [shown]


@pytest.mark.parametrize(
    ("given_", "told"),
    [("a restart", "a restart"), ("ä" * 256, "ä" * 255), ("x" * 32_000, "x" * 255), ("", "not provided"), (None, "not provided")],
)
def test_a_reason_is_as_long_as_those_of_java_clients_at_most(given_: str | None, told: str) -> None:
    groups = Told()
    handle_join_group(JoinGroupRequest(group_id="g", reason=given_), a_context(ApiKey.JOIN_GROUP, 9, groups))
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", reason=given_)])
    at_once(handle_leave_group(leaving, a_context(ApiKey.LEAVE_GROUP, 5, groups)))
    assert [each.reason for each in (*groups.joins, *groups.leaving)] == [told, told]


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1200])
def test_very_many_members_leave_in_steps_and_each_is_answered(count: int) -> None:
    groups = Told()
    members = [MemberIdentity(member_id=f"m{number}") for number in range(count)]
    context = a_context(ApiKey.LEAVE_GROUP, 5, groups)
    taken, response = steps_of(handle_leave_group(LeaveGroupRequest(group_id="g", members=members), context))
    assert (
        [each.member_id for each in response.members]
        == [each.member_id for each in groups.leaving]
        == [f"m{each}" for each in range(count)]
    )
    assert groups.times == max(1, -(-count // 500))
    assert taken - count == 2 * groups.times


class Held(Told):
    """A coordinator that answers later, the last part first."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Callable[[], None]] = []

    def leave(self, group_id: str, leaving: list[Leaving], reply: LeaveReply) -> None:
        code = ErrorCode.UNKNOWN_MEMBER_ID if self.replies else ErrorCode.NONE
        self.replies.append(partial(reply, LeaveResult(ErrorCode.NONE, [code] * len(leaving))))


@on_a_loop
async def test_members_that_leave_are_answered_in_their_order_when_all_of_their_parts_are_known() -> None:
    groups = Held()
    written: list[Any] = []

    def encode(_: int, response: object) -> bytes:
        written.append(response)
        return b""

    services = services_with(groups=groups, running=RunningRequests())
    context = RequestContext(ApiKey.LEAVE_GROUP, 5, 0, "c", ClientConnection(), services, encode)
    members = [MemberIdentity(member_id=f"m{number}") for number in range(501)]
    answer = await handle_leave_group(LeaveGroupRequest(group_id="g", members=members), context)
    assert isinstance(answer, Pending)
    for reply in reversed(groups.replies):
        assert not answer.completed
        reply()
    await until(lambda: answer.completed)  # the response is made with pauses
    (response,) = written
    assert [each.member_id for each in response.members] == [each.member_id for each in members]
    assert [each.error_code for each in response.members] == [ErrorCode.NONE] * 500 + [ErrorCode.UNKNOWN_MEMBER_ID]


def test_very_many_assignments_are_read_in_steps() -> None:
    groups = Told()
    assignments = [SyncGroupRequestAssignment(member_id=f"m{number}", assignment=b"%d" % number) for number in range(100)]
    request = SyncGroupRequest(group_id="g", assignments=assignments)
    assert steps_of(handle_sync_group(request, a_context(ApiKey.SYNC_GROUP, 4, groups)))[0] == 100
    (told,) = groups.syncs
    assert told.assignments == {each.member_id: each.assignment for each in assignments}


def test_a_member_has_a_bounded_number_of_protocols() -> None:
    groups = Told()
    protocols = [JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(MAX_PROTOCOLS)]
    request = JoinGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocols=protocols)
    handle_join_group(request, a_context(ApiKey.JOIN_GROUP, 9, groups))
    assert len(groups.joins) == 1
    protocols.append(JoinGroupRequestProtocol(name="more", metadata=b""))
    response: Any = handle_join_group(request, a_context(ApiKey.JOIN_GROUP, 9, groups))
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_REQUEST, "m")
    assert len(groups.joins) == 1


def test_a_group_of_very_many_members_is_described_in_steps_as_it_was() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=3_000)
    for _ in range(100):
        driver.join()
    driver.pass_time(3_000)
    driver.pass_time(3_000)
    members = list(driver.group.members)
    for member_id in members:
        driver.sync(member_id)
    groups = SimpleNamespace(describe=lambda _: (ErrorCode.NONE, driver.group))
    context = RequestContext(ApiKey.DESCRIBE_GROUPS, 5, 0, "c", ClientConnection(), services_with(groups=groups), lambda _, __: CLOSE)
    steps = handle_describe_groups(DescribeGroupsRequest(groups=["g"]), context)
    for _ in range(50):
        next(Steps(steps))
    driver.leave(*members[60:])
    described = at_once(steps).groups[0]
    assert described.group_state == "Stable"
    assert [member.member_id for member in described.members] == members
    assert {member.member_metadata for member in described.members} == {b"subscription"}
