"""One queue per broker: in order, again after a lost connection, to where the broker is now, and nothing after the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from controller.state.channels import BrokerSenders
from controller.state.context import LiveBroker
from controller.znodes.layout import BrokerRegistration, Endpoint
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.support.controlled_cluster import until


def a_broker(port: int) -> LiveBroker:
    return LiveBroker(1, BrokerRegistration((Endpoint("INTERNAL", "PLAINTEXT", "127.0.0.1", port),), None, 0), 7)


class Channel:
    """Loses the connection as often as it is told to, and hangs until it is closed where nobody listens."""

    def __init__(self, broker: LiveBroker, reached: list[tuple[int, int]], losses: int, listens: bool) -> None:
        self.port = broker.registration.endpoints[0].port
        self.reached = reached
        self.losses = losses
        self.listens = listens
        self.closed = asyncio.Event()

    async def send_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        if not self.listens:
            await self.closed.wait()
            raise ConnectionResetError("closed")
        if self.losses:
            self.losses -= 1
            raise ConnectionRefusedError("not yet")
        self.reached.append((self.port, request.controller_epoch))
        return UpdateMetadataResponse()

    async def send_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        raise NotImplementedError(request)

    async def send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        raise NotImplementedError(request)

    async def close(self) -> None:
        self.closed.set()


def play(scenario: Callable[[BrokerSenders, list[tuple[int, int]]], Awaitable[None]], *, losses: int = 0, deaf_port: int = 0) -> None:
    async def run() -> None:
        reached: list[tuple[int, int]] = []
        senders = BrokerSenders(
            lambda broker: Channel(broker, reached, losses, broker.registration.endpoints[0].port != deaf_port), lambda: 0.0, 0
        )
        senders.add(a_broker(1000))
        await scenario(senders, reached)
        await senders.remove_all()

    asyncio.run(run())


def send(senders: BrokerSenders, *epochs: int) -> None:
    for epoch in epochs:
        senders.send(1, UpdateMetadataRequest(controller_epoch=epoch), lambda _: None)


def test_requests_arrive_in_order_in_spite_of_lost_connections() -> None:
    async def scenario(senders: BrokerSenders, reached: list[tuple[int, int]]) -> None:
        send(senders, 1, 2, 3)
        await senders.delivered()
        assert reached == [(1000, 1), (1000, 2), (1000, 3)]

    play(scenario, losses=2)


def test_what_waits_goes_to_where_the_broker_is_now() -> None:
    async def scenario(senders: BrokerSenders, reached: list[tuple[int, int]]) -> None:
        send(senders, 1, 2)
        await asyncio.sleep(0)
        await senders.renew(a_broker(2000))
        await until(lambda: len(reached) == 2)
        assert reached == [(2000, 1), (2000, 2)]

    play(scenario, deaf_port=1000)


def test_nothing_is_sent_after_the_end() -> None:
    async def scenario(senders: BrokerSenders, reached: list[tuple[int, int]]) -> None:
        send(senders, 1)
        senders.halt()
        send(senders, 2)
        await senders.delivered()
        await asyncio.sleep(0)
        assert reached == []

    play(scenario)


def test_a_broker_that_cannot_be_reached_is_said_once_and_so_is_that_it_can_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(senders: BrokerSenders, reached: list[tuple[int, int]]) -> None:
        send(senders, 1, 2)
        await senders.delivered()

    with caplog.at_level(logging.INFO, logger="controller.state.channels"):
        play(scenario, losses=30)
    assert [record.getMessage() for record in caplog.records] == [
        "controller cannot send UpdateMetadataRequest to broker 1 (not yet); trying again until it succeeds or the broker's session ends",
        "controller reaches broker 1 again, after 30 attempts",
    ]
