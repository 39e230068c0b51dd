"""The answer to a leader is packed by hand, member by member: the bytes that the declared message says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.classic_group import MemberMetadata
from broker.handlers.groups.join_group import with_members
from protocol.api_keys import ApiKey
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.schema.registry import api

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
