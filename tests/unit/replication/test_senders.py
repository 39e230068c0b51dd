"""One queue per broker: in order, again after a lost connection, to where the broker is now, and nothing after the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.schema.wire import InvalidValue
from ottla.replication.ports.senders import Senders
from tests.support.controlled_cluster import until

Reached = list[tuple[int, int]]
"""(port, controller epoch) of the requests that arrived."""

PortSenders = Senders[int, UpdateMetadataRequest, UpdateMetadataResponse]


class PortChannel:
    """Loses the connection as often as it is told to, and hangs until it is closed where nobody listens."""

    def __init__(self, port: int, reached: Reached, losses: int, listens: bool, loss: Exception | None) -> None:
        self.port = port
        self.reached = reached
        self.losses = losses
        self.loss = loss
        self.listens = listens
        self.closed = asyncio.Event()

    async def send(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        if not self.listens:
            await self.closed.wait()
            raise ConnectionResetError("closed")
        if self.losses:
            self.losses -= 1
            raise self.loss or ConnectionRefusedError("not yet")
        self.reached.append((self.port, request.controller_epoch))
        return UpdateMetadataResponse()

    async def close(self) -> None:
        self.closed.set()


def play(
    scenario: Callable[[PortSenders, Reached], Awaitable[None]],
    *,
    losses: int = 0,
    loss: Exception | None = None,
    deaf_port: int = 0,
) -> None:
    async def run() -> None:
        reached: Reached = []
        senders: PortSenders = Senders(
            "controller", lambda port: PortChannel(port, reached, losses, port != deaf_port, loss), lambda: 0.0, retry_backoff_seconds=0
        )
        senders.add(1, 1000)
        await scenario(senders, reached)
        await senders.remove_all()

    asyncio.run(run())


def send(senders: PortSenders, *epochs: int) -> None:
    for epoch in epochs:
        senders.send(1, UpdateMetadataRequest(controller_epoch=epoch), lambda _: None)


def test_requests_arrive_in_order_in_spite_of_lost_connections() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1, 2, 3)
        await senders.delivered()
        assert reached == [(1000, 1), (1000, 2), (1000, 3)]

    play(scenario, losses=2)


def test_a_fault_of_this_broker_loses_no_request(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        def fail(_: UpdateMetadataResponse) -> None:
            raise ValueError("a fault of the caller")

        senders.send(1, UpdateMetadataRequest(controller_epoch=1), fail)
        send(senders, 2)
        await senders.delivered()
        assert reached == [(1000, 1), (1000, 2)]

    play(scenario, losses=1, loss=ValueError("a fault of the channel"))
    assert "a fault of the caller" in caplog.text
    assert "Traceback" in caplog.text.partition("a fault of the caller")[0]


def test_a_request_that_cannot_be_encoded_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1, 2)
        await asyncio.wait_for(senders.delivered(), 10)
        assert reached == [(1000, 2)]

    play(scenario, losses=1, loss=InvalidValue("required argument is not an integer"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            "controller: UpdateMetadataRequest to broker 1 cannot be encoded (required argument is not an integer); it is dropped, and the "
            "broker does not learn what it says",
        )
    ]


def test_what_waits_goes_to_where_the_broker_is_now() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1, 2)
        await asyncio.sleep(0)
        await senders.renew(1, 2000)
        await until(lambda: len(reached) == 2)
        assert reached == [(2000, 1), (2000, 2)]

    play(scenario, deaf_port=1000)


def test_a_slow_broker_delays_no_other() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        senders.add(2, 2000)
        send(senders, 1)
        answers: list[UpdateMetadataResponse] = []
        assert senders.send(2, UpdateMetadataRequest(controller_epoch=5), answers.append)
        await until(lambda: bool(answers))
        assert reached == [(2000, 5)]

    play(scenario, deaf_port=1000)


def test_a_broker_that_is_added_again_keeps_what_waits_for_it() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1)
        senders.add(1, 2000)
        send(senders, 2)
        await senders.delivered()
        assert reached == [(1000, 1), (1000, 2)]

    play(scenario)


def test_a_request_to_a_broker_that_is_gone_is_dropped() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1)
        assert senders.queue_sizes == {1: 1}
        await senders.remove(1)
        assert not senders.send(1, UpdateMetadataRequest(controller_epoch=2), lambda _: None)
        await senders.delivered()
        assert reached == []

    play(scenario)


def test_nothing_is_sent_after_the_end() -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1)
        senders.halt()
        send(senders, 2)
        await senders.delivered()
        await asyncio.sleep(0)
        assert reached == []

    play(scenario)


def test_a_broker_that_cannot_be_reached_is_said_once_and_so_is_that_it_can_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(senders: PortSenders, reached: Reached) -> None:
        send(senders, 1, 2)
        await senders.delivered()

    with caplog.at_level(logging.INFO, logger="ottla.replication.ports.senders"):
        play(scenario, losses=30)
    assert [record.getMessage() for record in caplog.records] == [
        "controller cannot send UpdateMetadataRequest to broker 1 (not yet); retrying until it succeeds or the broker's session ends",
        "controller reaches broker 1 again, after 30 attempts",
    ]
