"""Fetches that have waited: nothing of them is left for the garbage collector."""

import gc

import pytest

from ottla.broker.handlers.data.delayed_fetch import DelayedFetch
from tests.support.handler_bench import on_a_loop
from tests.unit.broker.test_fetch_handler import alone


@pytest.mark.slow
@on_a_loop
async def test_a_fetch_that_has_waited_is_freed_without_the_collector() -> None:
    bench = alone(1)
    gc.collect()
    others = delayed_fetches()  # tests that failed in this process, and their tracebacks, may have left some
    gc.disable()
    try:
        asked = bench.fetch(2)
        assert len(delayed_fetches() - others) == 1
        bench.replicas.append(2)
        assert not asked.waits
        bench.time.advance(1000)  # the queue of its time limit drops it
        assert not delayed_fetches() - others
    finally:
        gc.enable()


@pytest.mark.slow
@on_a_loop
async def test_a_fetch_whose_client_has_left_is_freed_without_the_collector() -> None:
    bench = alone(1)
    gc.collect()
    others = delayed_fetches()  # tests that failed in this process, and their tracebacks, may have left some
    gc.disable()
    try:
        pending = bench.fetch(2).pending
        assert len(delayed_fetches() - others) == 1
        on_closed, pending.on_closed = pending.on_closed, None  # as Connection.connection_lost does
        assert on_closed is not None
        on_closed()
        del on_closed
        bench.time.advance(1000)
        assert not delayed_fetches() - others
    finally:
        gc.enable()


def delayed_fetches() -> set[int]:
    """The addresses of all fetches that wait, or have waited and are not freed."""
    return {id(each) for each in gc.get_objects() if isinstance(each, DelayedFetch)}
