"""Requests of members that are larger than a group may be are refused unread; others that are very large are read without a copy."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.broker.network.buffer_supplier import LARGEST_KEPT
from ottla.broker.network.connection import Connection
from ottla.broker.serving.oversized import OTHER_BYTES, OversizedRequests
from ottla.config.keys.own import OTTLA_GROUP_MAX_METADATA_BYTES
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.schema import wire
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import MAX_BYTES, InvalidLength
from tests.support.golden_replay import decode, request_frame
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.unit.broker.test_large_requests import World
from tests.wire.test_steps import taken

LIMIT = 100


def join(size: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g", protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
    )


def sync(size: int) -> SyncGroupRequest:
    return SyncGroupRequest(group_id="g", assignments=[SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))])


@pytest.mark.parametrize(
    ("request_", "key", "code"),
    [
        (join(OTHER_BYTES + LIMIT), ApiKey.JOIN_GROUP, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (sync(OTHER_BYTES + LIMIT), ApiKey.SYNC_GROUP, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["JoinGroup", "SyncGroup"],
)
def test_a_request_larger_than_a_group_is_refused_at_once(
    request_: Message, key: ApiKey, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    @on_a_loop
    async def scenario() -> None:
        world = World()
        world.services.config = {OTTLA_GROUP_MAX_METADATA_BYTES: LIMIT}
        client = world.connect()
        versions = [version for version in range(request_.SCHEMA.versions.last + 1) if request_.SCHEMA.versions.cover(version)]
        for version in versions:
            client.send_all(request_frame(request_, key, version))
            answer = decode(client.answers[-1], key, version)
            assert isinstance(answer, JoinGroupResponse | SyncGroupResponse)
            assert answer.error_code == code
        assert len(client.answers) == len(versions)

    scenario()
    assert f"a {key.name} of " in caplog.text
    assert f"larger than ottla.group.max.metadata.bytes={LIMIT}" in caplog.text


@on_a_loop
async def test_one_that_fits_and_other_requests_are_read() -> None:
    handlers = HandlerBench()
    handlers.services.config = {OTTLA_GROUP_MAX_METADATA_BYTES: LIMIT}  # type: ignore[assignment]  # nothing else is read
    oversized, connection = OversizedRequests(handlers.services), cast("Connection", handlers.connection)
    assert oversized.error_of(ApiKey.JOIN_GROUP, LIMIT + OTHER_BYTES, connection) == ErrorCode.NONE
    assert oversized.error_of(ApiKey.JOIN_GROUP, LIMIT + OTHER_BYTES + 1, connection) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert oversized.error_of(ApiKey.METADATA, 2 * (LIMIT + OTHER_BYTES), connection) == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 9])
def test_a_field_has_a_limit(version: int) -> None:
    encoded = memoryview(join(MAX_BYTES).encode(version))
    assert len(taken(JoinGroupRequest.decode_steps(encoded, version))[1][0].protocols[0].metadata) == MAX_BYTES
    with pytest.raises(InvalidLength, match=f"metadata has {MAX_BYTES + 1} bytes"):
        taken(JoinGroupRequest.decode_steps(join(MAX_BYTES + 1).encode(version), version))


def test_an_unknown_field_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", LIMIT)
    request = join(0)
    request.unknown_tagged_fields = {1: bytes(LIMIT)}
    assert taken(JoinGroupRequest.decode_steps(request.encode(9), 9))[1][0] == request
    request.unknown_tagged_fields = {1: bytes(LIMIT + 1)}
    with pytest.raises(InvalidLength, match=f"a tagged field has {LIMIT + 1} bytes"):
        taken(JoinGroupRequest.decode_steps(request.encode(9), 9))


@on_a_loop
async def test_a_request_that_is_not_copied_keeps_its_bytes() -> None:
    world = World(slice_ns=10**6)
    clients = {letter: world.connect() for letter in "abc"}
    for letter, client in clients.items():
        topics = [
            ListOffsetsTopic(name=letter * 30_000, partitions=[ListOffsetsPartition(partition_index=number)])
            for number in range(LARGEST_KEPT // 30_000 + 1)
        ]
        client.send_all(request_frame(ListOffsetsRequest(replica_id=-1, topics=topics), ApiKey.LIST_OFFSETS, 7))
    for letter, client in clients.items():
        await world.answered(client, 1)
        response = decode(client.answers[0], ApiKey.LIST_OFFSETS, 7)
        assert isinstance(response, ListOffsetsResponse)
        assert {topic.name for topic in response.topics} == {letter * 30_000}
