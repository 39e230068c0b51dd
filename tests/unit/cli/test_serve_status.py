"""The exit status of a broker, by which a service manager decides whether to start it again."""

import asyncio
from typing import Any

import pytest

from ottla.broker import server
from ottla.cli import serve
from ottla.config.broker import BrokerConfig


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_broker_that_ends_before_it_is_ready_says_whether_it_has_failed(has_failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class EndingBroker:
        """Its last log directory fails during the start, or it is only stopped."""

        status = "starting"

        def __init__(self, *_: object) -> None:
            self.failed = False
            self.on_fatal = lambda: None

        async def start(self) -> list[str]:
            self.failed = has_failed
            self.on_fatal()
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(server, "Broker", EndingBroker)
    ran: Any = asyncio.run(serve._serve(BrokerConfig({}), None, None, False, (), False))
    assert ran == (1 if has_failed else 0)
