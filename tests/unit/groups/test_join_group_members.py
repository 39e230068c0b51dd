"""JoinGroup: what the coordinator is told of a client; and the answer to a leader, packed by hand as the declared message says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.classic_group import MemberMetadata
from broker.groups.joining import Join
from broker.handlers.groups.join_group import handle_join_group, with_members
from broker.network.request_channel import CLOSE
from broker.request.context import RequestContext
from protocol.api_keys import ApiKey
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember
from protocol.schema.registry import api
from tests.support.connections import ClientConnection
from tests.support.services import services_with

VERSIONS = api(ApiKey.JOIN_GROUP).versions
NAMES = st.one_of(st.text(max_size=20), st.sampled_from(["", "x" * 126, "x" * 127, "größer" * 3_000]))
MEMBERS = st.lists(
    st.tuples(NAMES, st.one_of(st.none(), NAMES), st.one_of(st.binary(max_size=20), st.sampled_from([b"y" * 127, b"y" * 20_000]))),
    max_size=4,
)


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
    assert with_members(bare, members, version) == b"head" + response.encode(version)


class Joined:
    """A coordinator that keeps what it is told."""

    def __init__(self) -> None:
        self.joins: list[Join] = []

    def join(self, group_id: str, join: Join) -> None:
        self.joins.append(join)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "/127.0.0.1"), ("::1", "/0:0:0:0:0:0:0:1")])
def test_the_host_of_a_member_is_shown_as_java_shows_it(host: str, shown: str) -> None:
    groups = Joined()
    context = RequestContext(
        ApiKey.JOIN_GROUP, 9, 0, "c", ClientConnection(client_host=host), services_with(groups=groups), lambda _, __: CLOSE
    )
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    list(handle_join_group(JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols), context))
    assert [join.client_host for join in groups.joins] == [shown]
