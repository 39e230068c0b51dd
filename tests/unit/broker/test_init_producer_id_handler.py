"""InitProducerId: which requests wait for a block of producer ids, and which need none."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.handlers.transactions.init_producer_id import handle_init_producer_id
from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.broker.request.context import RequestContext
from ottla.controller.znodes.changes import ProducerIdBlock
from ottla.coordination.transactions.effects import ProducerResult
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.storage.producers.state import MAX_EPOCH
from tests.support.connections import ClientConnection
from tests.support.services import services_with
from tests.support.transaction_bench import TIMEOUT_MS, TransactionBench, run


class Controller:
    """Gives one block of producer ids, once it is there."""

    def __init__(self) -> None:
        self.is_there = asyncio.Event()
        self.ids = ProducerIds(self._allocate)

    async def _allocate(self) -> ProducerIdBlock:
        await self.is_there.wait()
        return ProducerIdBlock(0, 5_000, 5_999)


def ask(bench: TransactionBench, ids: ProducerIds, transactional_id: str | None, given: list[ProducerResult]) -> Any:
    """The answer of the handler. What it answers later is put into `given`."""

    def encode(_: int, response: Any) -> Any:
        given.append(ProducerResult(ErrorCode.of(response.error_code), response.producer_id, response.producer_epoch))
        return CLOSE

    bench.new_producer_id = ids.next_now
    services = services_with(transactions=bench.transactions, producer_ids=ids)
    context = RequestContext(ApiKey.INIT_PRODUCER_ID, 5, 0, None, ClientConnection(), services, encode)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    return handle_init_producer_id(request, context)


def test_a_known_id_gets_its_next_epoch_while_there_is_no_controller() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init()
        controller = Controller()
        answer = ask(bench, controller.ids, "id", [])
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 1_000, 1)
        await controller.ids.stop()

    run(scenario)


def test_a_broker_that_does_not_coordinate_the_id_says_so_while_there_is_no_controller() -> None:
    async def scenario(bench: TransactionBench) -> None:
        controller = Controller()
        assert ask(bench, controller.ids, "id", []).error_code == ErrorCode.NOT_COORDINATOR
        await controller.ids.stop()

    run(scenario)


def test_new_producers_and_ids_without_another_epoch_wait_for_a_block() -> None:
    async def scenario(bench: TransactionBench) -> None:
        await bench.coordinate()
        bench.init("old")
        bench.txn("old").producer_epoch = MAX_EPOCH - 1
        controller = Controller()
        given: list[ProducerResult] = []
        for name in (None, "new", "old"):
            assert isinstance(ask(bench, controller.ids, name, given), Pending)
        controller.is_there.set()
        await bench.until(lambda: len(given) == 3)
        assert given == [ProducerResult(ErrorCode.NONE, producer_id, 0) for producer_id in range(5_000, 5_003)]
        await controller.ids.stop()

    run(scenario)
