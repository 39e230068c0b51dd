"""The end of a broker: what fails on the way does not keep the rest from being done."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig


def test_requests_in_flight_are_answered_although_the_leaderships_cannot_be_handed_over(caplog: pytest.LogCaptureFixture) -> None:
    drained: list[float] = []

    async def hand_over(_: object) -> None:
        raise RuntimeError("a fault")

    async def drain(seconds: float) -> bool:
        drained.append(seconds)
        return True

    async def scenario() -> None:
        broker = cast("Any", Broker(BrokerConfig({})))
        broker.services = SimpleNamespace(broker_id=0, metadata=SimpleNamespace(brokers={}))
        broker.socket_server = SimpleNamespace(drain=drain)
        broker._cluster = SimpleNamespace(hand_over=hand_over)
        await broker.stop()

    asyncio.run(scenario())
    assert drained == [30.0]
    assert "broker 0 has not handed over its leaderships" in caplog.text
