"""Answers that a coordinator completes later."""

import pytest

from ottla.broker.handlers.delayed_answer import DelayedAnswer
from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps, Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Message
from tests.support.connections import ClientConnection
from tests.support.services import services_with


def test_a_fault_while_an_answer_is_made_closes_the_connection() -> None:
    services = services_with(turns=Turns(lambda _: None))
    answer = DelayedAnswer(RequestContext(ApiKey.WRITE_TXN_MARKERS, 1, 0, None, ClientConnection(), services, lambda _, __: b""))
    pending = answer.answer()
    assert isinstance(pending, Pending)

    def faulty() -> Steps[Message]:
        yield
        raise RuntimeError("a fault")

    with pytest.raises(RuntimeError):
        answer.complete_steps(faulty())
    assert pending.answer is CLOSE
