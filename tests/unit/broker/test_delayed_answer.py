"""Answers that a coordinator completes later."""

import pytest

from broker.handlers.delayed_answer import DelayedAnswer
from broker.network.request_channel import CLOSE, Pending
from broker.request.context import RequestContext
from broker.request.turns import Steps, Turns
from protocol.api_keys import ApiKey
from protocol.schema.message import Message
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
