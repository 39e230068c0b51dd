"""Which requests count towards a client's request quota, and which of their work."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import Any

import pytest

from ottla.broker.network.request_channel import Pending
from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.request.running import RunningRequests
from ottla.broker.security.access import Access
from ottla.broker.serving.route import EXEMPT
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.pauses import every_pause_waits


def serve(bench: HandlerBench, key: ApiKey, version: int, handler: Any) -> None:
    """Have a request of this kind handled by `handler`."""
    route = bench.dispatcher.route_of(key, version)
    assert route is not None
    route.handler = handler


@pytest.mark.parametrize("key", sorted(EXEMPT))
def test_requests_between_brokers_do_not_count(key: ApiKey) -> None:
    types = api(key)

    async def scenario() -> None:
        bench = HandlerBench()
        version = versions_in_3_9(key).last
        serve(bench, key, version, lambda request, context: types.response())
        bench.ask(types.request(), key, version)
        assert (bench.connection.counted, bench.connection.exempted) == ([], 1)

    asyncio.run(scenario())


@on_a_loop
async def test_a_client_without_the_right_to_send_requests_of_brokers_is_not_exempt() -> None:
    def refuse(request: Message, context: Any) -> Message:
        allowed = context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return AlterPartitionResponse(error_code=0 if allowed else 31)

    bench = HandlerBench()
    bench.connection.access = Access(Grants(), bench.connection.client)
    serve(bench, ApiKey.ALTER_PARTITION, 3, refuse)
    bench.ask(AlterPartitionRequest(), ApiKey.ALTER_PARTITION, 3)
    assert (bench.connection.counted, bench.connection.exempted) == ([(QuotaType.REQUEST, 0)], 0)


@on_a_loop
async def test_every_other_request_counts_whether_its_answer_has_a_throttle_time_or_not() -> None:
    bench = HandlerBench()
    bench.ask(SaslHandshakeRequest(mechanism="PLAIN"), ApiKey.SASL_HANDSHAKE, 1)
    assert bench.connection.counted == [(QuotaType.REQUEST, 0)]


@on_a_loop
async def test_the_time_for_which_a_task_holds_its_slot_counts() -> None:
    bench = HandlerBench()
    times = chain((1_000, 4_000, 9_000, 20_000), repeat(50_000))
    bench.services.running.clock_ns = lambda: next(times)
    leaves = False

    async def work(request: Message, context: Any) -> Message:
        await asyncio.sleep(0)
        if leaves:
            bench.services.running.on_wait()  # from here on it merely waits
        return ListGroupsResponse()

    serve(bench, ApiKey.LIST_GROUPS, 4, work)
    for total_ns in (3_000, 3_000 + 11_000):
        bench.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4).pending.connection = bench.connection
        await bench.dispatcher.drain()
        assert bench.connection.work_ns == total_ns
        leaves = True


@on_a_loop
async def test_every_slice_of_a_request_after_the_first_counts_for_its_connection() -> None:
    connection = ClientConnection()
    events = connection.events

    async def work() -> bytes:
        for _ in range(2):
            await pause()
            events.append("works")
        await asyncio.sleep(0)
        return b""

    every_pause_waits()
    running = RunningRequests()
    pending = running.begin(work())
    assert isinstance(pending, Pending)
    pending.connection = connection
    await running.drain()
    assert events == ["begin", "works", "end", "begin", "works", "end", "holds a slot", "begin", "end", "answered"]
