"""Records that expand far get room in one memory for all clients, in order."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from ottla.broker.request.expansion import COPIES, FREE_BYTES, LIMITS, Expansion
from ottla.config.broker import BrokerConfig
from ottla.protocol.records.errors import DecompressionTooLarge

MIDDLE, MOST = LIMITS[1:]


class HeldThreads(Executor):
    """Threads that run when the test lets them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def begin_one(self) -> None:
        """A thread takes the work that has waited longest, which cannot be cancelled from then on."""
        assert self.waiting[0][0].set_running_or_notify_cancel()

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, function, arguments))
        return future

    def limits(self) -> list[int]:
        """What the waiting works may expand to."""
        return [arguments[0] for *_, arguments in self.waiting if arguments]

    async def run_one(self) -> None:
        """Run the work that has waited longest, and what follows from it on the loop."""
        future, function, arguments = self.waiting.pop(0)
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        for _ in range(10):
            await asyncio.sleep(0)


class Records:
    """A work on records that expand to `size` bytes; keeps the limits of its attempts."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.limits: list[int] = []

    def __call__(self, limit: int) -> int:
        self.limits.append(limit)
        if self._size > limit:
            raise DecompressionTooLarge("zstd", limit)
        return self._size


class World:
    """An expansion with room for `room` bytes. For a running loop."""

    def __init__(self, room: int, processors: int = 100) -> None:
        self.threads = HeldThreads()
        self.expansion = Expansion(BrokerConfig({"ottla.expansion.max.bytes": str(room)}), self.threads, processors)
        self.works: list[asyncio.Future[int]] = []

    async def begin(self, size: int) -> Records:
        """Begin a work whose records expand so far, and let it fail for lack of room."""
        work = Records(size)
        self.works.append(self.expansion.begin(work))
        await asyncio.sleep(0)
        waiting = self.threads.waiting
        waiting.insert(0, waiting.pop())
        await self.threads.run_one()
        return work

    async def finish(self) -> None:
        while self.threads.waiting:
            await self.threads.run_one()


def test_records_that_expand_little_need_no_room() -> None:
    async def scenario() -> None:
        world = World(room=1)
        works = [await world.begin(FREE_BYTES) for _ in range(20)]
        assert [work.limits for work in works] == [[FREE_BYTES]] * 20
        assert world.expansion.taken_bytes == 0
        assert [await each for each in world.works] == [FREE_BYTES] * 20

    asyncio.run(scenario())


def test_no_more_works_than_processors_begin_at_once() -> None:
    async def scenario() -> None:
        world = World(room=MIDDLE * COPIES, processors=2)
        works = [world.expansion.begin(Records(size)) for size in (MIDDLE, 1, 1, 1)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.threads.limits() == [FREE_BYTES] * 2
        await world.threads.run_one()
        assert world.threads.limits() == [FREE_BYTES, MIDDLE, FREE_BYTES]
        await world.finish()
        assert [await each for each in works] == [MIDDLE, 1, 1, 1]

    asyncio.run(scenario())


def test_what_a_work_has_expanded_is_freed_before_it_waits_for_room() -> None:
    async def scenario() -> None:
        world = World(room=MIDDLE * COPIES)
        await world.begin(MIDDLE)
        expanded: weakref.ref[Records] | None = None

        def work(limit: int) -> int:
            nonlocal expanded
            records = Records(MIDDLE)
            expanded = weakref.ref(records)
            try:
                return records(limit)
            except DecompressionTooLarge:
                raise DecompressionTooLarge("another", limit) from None

        waiting = world.expansion.begin(work)
        await asyncio.sleep(0)
        world.threads.waiting.reverse()
        in_thread: list[object] = []
        world.threads.waiting[0][0].add_done_callback(lambda _: in_thread.append(expanded and expanded()))
        gc.disable()
        try:
            await world.threads.run_one()
            assert in_thread == [None]
            assert expanded is not None
            assert expanded() is None
        finally:
            gc.enable()
        await world.finish()
        assert await waiting == MIDDLE

    asyncio.run(scenario())


def test_the_limit_grows_until_the_records_fit() -> None:
    async def scenario() -> None:
        world = World(room=MOST * COPIES)
        work = await world.begin(MOST)
        await world.finish()
        assert work.limits == [FREE_BYTES, MIDDLE, MOST]
        assert await world.works[0] == MOST
        assert world.expansion.taken_bytes == 0

    asyncio.run(scenario())


def test_works_that_find_no_room_wait_in_order() -> None:
    async def scenario() -> None:
        world = World(room=2 * MIDDLE * COPIES)
        for at in range(4):
            await world.begin(MIDDLE - at)
        assert world.threads.limits() == [MIDDLE] * 2
        assert world.expansion.taken_bytes == 2 * MIDDLE * COPIES
        ended = []
        for each in world.works:
            each.add_done_callback(lambda done: ended.append(done.result()))
        await world.threads.run_one()
        assert world.threads.limits() == [MIDDLE] * 2
        await world.finish()
        assert ended == [MIDDLE - at for at in range(4)]
        assert world.expansion.taken_bytes == 0

    asyncio.run(scenario())


def test_a_work_that_needs_more_than_all_room_is_alone() -> None:
    async def scenario() -> None:
        world = World(room=MIDDLE)
        await world.begin(MOST)
        await world.threads.run_one()
        await world.begin(MIDDLE)
        assert world.threads.limits() == [MOST]
        await world.finish()
        assert [await each for each in world.works] == [MOST, MIDDLE]

    asyncio.run(scenario())


def test_records_beyond_the_limit_of_batches_are_refused_and_leave_the_room() -> None:
    async def scenario() -> None:
        world = World(room=MOST)
        await world.begin(MOST + 1)
        await world.finish()
        with pytest.raises(DecompressionTooLarge):
            await world.works[0]
        assert world.expansion.taken_bytes == 0

    asyncio.run(scenario())


def test_a_client_that_leaves_while_its_work_waits_gives_up_its_place() -> None:
    async def scenario() -> None:
        world = World(room=MIDDLE * COPIES)
        for _ in range(3):
            await world.begin(MIDDLE)
        world.works[1].cancel()
        await world.finish()
        assert world.works[1].cancelled()
        assert await world.works[2] == MIDDLE
        assert world.expansion.taken_bytes == 0

    asyncio.run(scenario())


def test_a_work_that_has_begun_keeps_its_place_when_its_client_leaves() -> None:
    async def scenario() -> None:
        world = World(room=1, processors=1)
        left, next_one = (world.expansion.begin(Records(size)) for size in (1, 2))
        await asyncio.sleep(0)
        world.threads.begin_one()
        left.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert left.cancelled()
        assert len(world.threads.waiting) == 1
        await world.finish()
        assert await next_one == 2

    asyncio.run(scenario())


def test_a_work_that_has_not_begun_gives_up_its_place_when_its_client_leaves() -> None:
    async def scenario() -> None:
        world = World(room=1, processors=1)
        left, next_one = (world.expansion.begin(Records(size)) for size in (1, 2))
        await asyncio.sleep(0)
        left.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        future, *_ = world.threads.waiting.pop(0)
        assert future.cancelled()
        await world.finish()
        assert await next_one == 2

    asyncio.run(scenario())
