"""Fetches that have waited: nothing of them is left for the garbage collector."""

import gc

from broker.handlers.data.delayed_fetch import DelayedFetch
from tests.support.handler_bench import on_a_loop
from tests.unit.broker.test_fetch_handler import alone


@on_a_loop
async def test_a_fetch_that_has_waited_is_freed_without_the_collector() -> None:
    bench = alone(1)
    gc.collect()
    gc.disable()
    try:
        asked = bench.fetch(2)
        assert delayed_fetches() == 1
        bench.replicas.append(2)
        assert not asked.waits
        bench.time.advance(1000)  # the queue of its time limit drops it
        assert delayed_fetches() == 0
    finally:
        gc.enable()


@on_a_loop
async def test_a_fetch_whose_client_has_left_is_freed_without_the_collector() -> None:
    bench = alone(1)
    gc.collect()
    gc.disable()
    try:
        pending = bench.fetch(2).pending
        assert delayed_fetches() == 1
        on_closed, pending.on_closed = pending.on_closed, None  # as Connection.connection_lost does
        assert on_closed is not None
        on_closed()
        del on_closed
        bench.time.advance(1000)
        assert delayed_fetches() == 0
    finally:
        gc.enable()


def delayed_fetches() -> int:
    return sum(isinstance(each, DelayedFetch) for each in gc.get_objects())
