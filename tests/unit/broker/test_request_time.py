"""Which requests count towards a client's request quota, and which of their work."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import Any

import pytest

from ottla.broker.network.request_channel import Pending
from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.request.turns import Turns
from ottla.broker.security.access import Access
from ottla.broker.serving.route import EXEMPT
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop


def serve(bench: HandlerBench, key: ApiKey, version: int, handler: Any) -> None:
    """Have a request of this kind handled by `handler`."""
    route = bench.dispatcher._route(key, version)
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
    bench.dispatcher.messages._clock_ns = lambda: next(times)
    leaves = False

    async def work(request: Message, context: Any) -> Message:
        await asyncio.sleep(0)
        if leaves:
            bench.dispatcher.messages.on_wait()  # from here on it merely waits
        return ListGroupsResponse()

    serve(bench, ApiKey.LIST_GROUPS, 4, work)
    bench.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4)
    await bench.dispatcher.drain()
    assert bench.connection.work_ns == 3_000
    leaves = True
    bench.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4)
    await bench.dispatcher.drain()
    assert bench.connection.work_ns == 3_000 + 11_000


def test_every_slice_of_a_request_counts_for_its_connection() -> None:
    scheduled: list[Any] = []
    turns = Turns(scheduled.append, lambda: 0, slice_ns=0)
    events: list[str] = []

    class Connection:
        def on_answer_ready(self) -> None:
            events.append("answered")

        def begin_work(self) -> None:
            events.append("begin")

        def end_work(self) -> None:
            events.append("end")

    pending = Pending(in_turns=True)
    pending.connection = Connection()

    def steps() -> Any:
        yield
        events.append("works")
        pending.complete(b"")

    turns.go_on(steps(), pending)
    while scheduled:
        scheduled.pop(0)()
    assert events == ["begin", "end", "begin", "works", "answered", "end"]
