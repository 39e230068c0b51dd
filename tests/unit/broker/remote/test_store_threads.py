"""Calls to a directory that hangs take no more than their threads, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial

from ottla.broker.remote.store_threads import MOST_THREADS, StoreThreads
from tests.support.followers import until


class Data:
    """Stands for the bytes that a call would write."""


def call_with(data: Data, entered: Callable[[], object]) -> Data:
    entered()
    return data


def threads_of_stores() -> int:
    return sum(each.name.startswith("ottla-store-") for each in threading.enumerate())


def test_calls_that_were_given_up_while_the_directory_hangs_leave_nothing() -> None:
    hang, begun = threading.Event(), threading.Semaphore(0)

    def never() -> None:
        begun.release()
        hang.wait()

    async def story() -> None:
        threads = StoreThreads()
        hanging = [asyncio.ensure_future(threads(never)) for _ in range(MOST_THREADS)]
        for _ in hanging:
            await asyncio.to_thread(begun.acquire)
        kept: list[weakref.ref[Data]] = []
        called: list[None] = []
        for _ in range(100):
            data = Data()
            kept.append(weakref.ref(data))
            call = asyncio.ensure_future(threads(partial(call_with, data, partial(called.append, None))))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            del call, data
        await asyncio.sleep(0)
        gc.collect()
        assert not any(each() for each in kept)
        assert not threads._waiting

        hang.set()
        await asyncio.gather(*hanging)
        assert await threads(lambda: 7) == 7
        assert not called
        threads.close()

    asyncio.run(story())


def test_a_thread_that_is_idle_takes_the_next_call() -> None:
    async def story() -> None:
        before = threads_of_stores()
        threads = StoreThreads()
        for number in range(100):
            assert await threads(partial(int, number)) == number
            await until(lambda: threads._idle > 0)
        assert threads_of_stores() - before == 1
        assert await asyncio.gather(*(threads(partial(int, number)) for number in range(1000))) == list(range(1000))
        assert threads_of_stores() - before <= MOST_THREADS
        threads.close()

    asyncio.run(story())


def test_the_error_of_a_call_is_that_of_its_caller() -> None:
    async def story() -> None:
        threads = StoreThreads()
        found = await asyncio.gather(threads(partial(int, "x")), threads(partial(int, "5")), return_exceptions=True)
        assert isinstance(found[0], ValueError)
        assert found[1] == 5
        threads.close()

    asyncio.run(story())
