"""Heartbeats without news are answered from the frame, as the rules say; all others are decoded."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.groups.consumer_group_heartbeat import handle_consumer_group_heartbeat_frame
from ottla.broker.security.authorizer import AllowAll
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.support.connections import ClientConnection
from tests.support.consumer_groups import topic_id
from tests.support.group_bench import GroupBench, run
from tests.support.services import services_with

KEY = int(ApiKey.CONSUMER_GROUP_HEARTBEAT) << 16


class AllowNothing(AllowAll):
    """Refuses every right."""

    def is_authorized(self, *_: object) -> bool:
        return False


class Asking:
    """Sends the heartbeats of a member as frames."""

    def __init__(self, bench: GroupBench, connection: ClientConnection | None = None) -> None:
        self.services = services_with(groups=bench.groups, error_counts={})
        self.connection = connection or ClientConnection(client_host="127.0.0.1")
        self.connection.client.identify(b"client")

    def beat(self, epoch: int, member_id: str = "m", version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """The answer; None if the heartbeat is to be decoded."""
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        frame = memoryview(bytearray(request.encode(version)))
        connection: Any = self.connection
        answer = handle_consumer_group_heartbeat_frame(frame, 0, version, 77, connection, self.services)
        return None if answer is None else ConsumerGroupHeartbeatResponse.decode(answer, version, 5)[0]


async def a_stable_member(bench: GroupBench) -> None:
    bench.level = 1
    await bench.lead()
    bench.announce({"t": 4})
    for epoch in (0, 2):
        answer = await bench.answered(bench.beat("m", epoch))
        assert (answer.error, answer.epoch) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_without_news_is_answered_and_its_session_begins_anew(version: int) -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        asking.connection.throttle_time_ms = 7
        for _ in range(3):
            bench.pass_time(40_000)
            answer = asking.beat(2, version=version)
            assert answer == ConsumerGroupHeartbeatResponse(
                throttle_time_ms=7, member_id="m", member_epoch=2, heartbeat_interval_ms=answer and answer.heartbeat_interval_ms
            )
            assert answer is not None
            assert answer.heartbeat_interval_ms == (await bench.answered(bench.beat("m", 2, topics=None, held=None))).heartbeat_interval_ms
        assert asking.services.error_counts == {KEY: 3}
        bench.pass_time(46_000)
        assert asking.beat(2) is None, "the member has left"

    run(scenario)


@pytest.mark.parametrize(
    ("epoch", "member_id", "fields"),
    [
        (0, "m", {}),
        (-1, "m", {}),
        (1, "m", {}),
        (3, "m", {}),
        (2, "n", {}),
        (2, "m", {"instance_id": "i"}),
        (2, "m", {"subscribed_topic_names": ["t"]}),
        (2, "m", {"topic_partitions": []}),
        (2, "m", {"subscribed_topic_regex": "t.*"}),
    ],
)
def test_any_other_heartbeat_is_decoded_and_nothing_was_done(epoch: int, member_id: str, fields: dict[str, Any]) -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        assert asking.beat(epoch, member_id, **fields) is None
        assert asking.services.error_counts == {}
        assert asking.connection.counted == []

    run(scenario)


def test_a_heartbeat_of_another_client_or_host_is_decoded() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        asking.connection.client.identify(b"d")
        assert asking.beat(2) is None
        assert Asking(bench, ClientConnection(client_host="127.0.0.2")).beat(2) is None

    run(scenario)


def test_a_heartbeat_waits_for_the_event_before_it_and_for_its_records() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        joining = bench.beat("n")
        assert asking.beat(2) is None, "the target is being computed"
        await bench.answered(joining)
        assert asking.beat(2) is None, "there is a new target"

    run(scenario)


def test_without_the_feature_every_heartbeat_is_decoded_and_refused() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        bench.level = 0
        assert Asking(bench).beat(2) is None

    run(scenario)


def test_a_topic_that_grows_is_news() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        assert asking.beat(2) is not None
        bench.announce({"t": 5})
        assert asking.beat(2) is None

    run(scenario)


def test_a_sender_without_the_right_is_refused_and_the_session_goes_on_to_its_end() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench, ClientConnection(AllowNothing(), client_host="127.0.0.1"))
        bench.pass_time(40_000)
        assert asking.beat(2) == ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert asking.services.error_counts == {KEY | ErrorCode.GROUP_AUTHORIZATION_FAILED: 1}
        bench.pass_time(6_000)
        assert bench.beat("m", 2, topics=None, held={topic_id("t"): {0}})[0].error == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_coordinator_that_moved_or_loads_says_so() -> None:
    async def scenario(bench: GroupBench) -> None:
        await a_stable_member(bench)
        asking = Asking(bench)
        await bench.lead(leader=1, epoch=1)
        assert asking.beat(2) is None
        await bench.lead(epoch=2)
        assert asking.beat(2) is None
        await bench.until_loaded()

    run(scenario)
