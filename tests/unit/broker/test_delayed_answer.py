"""Answers that a coordinator completes later."""

import pytest

from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.broker.request.running import RunningRequests
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Message
from tests.support.connections import ClientConnection
from tests.support.handler_bench import on_a_loop
from tests.support.services import services_with


async def faulty() -> Message:
    raise RuntimeError("a fault")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_fault_while_an_answer_is_made_closes_the_connection(is_late: bool, caplog: pytest.LogCaptureFixture) -> None:
    @on_a_loop
    async def scenario() -> None:
        services = services_with(running=RunningRequests())
        answer = DelayedAnswer(RequestContext(ApiKey.WRITE_TXN_MARKERS, 1, 0, None, ClientConnection(), services, lambda _, __: b""))
        pending = answer.answer() if is_late else None
        answer.complete_by(faulty())
        if pending is None:
            assert answer.answer() is CLOSE
        else:
            assert isinstance(pending, Pending)
            assert pending.answer is CLOSE

    scenario()
    assert "a fault" in caplog.text
