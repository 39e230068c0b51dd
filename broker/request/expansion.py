"""Limits the memory in which the records of all clients are decompressed, converted between message formats, and compressed again.

The size of compressed records is known only when they are decompressed: 4 KB may become 128 MiB, and the copies that a conversion makes
take a multiple. So every work begins with the permission for `FREE_BYTES`, which is enough for nearly all records. As many works as there
are processors have it at once: with more busy threads the event loop would wait longer for the interpreter. If the records expand to more,
the work ends with an error and is done again with a larger limit, once there is room for it in `ottla.expansion.max.bytes`. Works that
wait get their room in order. A work that needs more than all of it is done alone. A work whose client leaves does not begin.

A work with room leaves much freed memory behind in the allocator. That is given back to the system after each, and once more at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ottla.broker.network.frame_memory import FrameMemory
from ottla.broker.process import give_back_freed_memory
from ottla.config.broker import BrokerConfig
from ottla.config.keys.own import OTTLA_EXPANSION_MAX_BYTES
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from ottla.protocol.records.errors import DecompressionTooLarge
from ottla.storage.errors import ExpandedTooLarge

FREE_BYTES: Final = 4 * 1024 * 1024
"""Bytes to which the records of a batch may expand without room, in each worker thread."""
LIMITS: Final = (FREE_BYTES, 32 * 1024 * 1024, MAX_DECOMPRESSED_BYTES)
"""Bytes to which the records of a batch may expand in the first attempt, and in the next ones."""
COPIES: Final = 3
"""Room of a work, in units of its limit: a conversion has records in the old and the new format, and compresses the latter."""

_Result = TypeVar("_Result")


class _Waiting:
    """A work that waits for room."""

    __slots__ = ("room",)

    def __init__(self) -> None:
        self.room: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_room(self) -> None:
        """See `FrameMemory`."""
        self.room.set_result(None)


class Expansion:
    """The works of one broker. On the event loop."""

    def __init__(self, config: BrokerConfig, workers: Executor, processors: int = os.cpu_count() or 1) -> None:
        self._workers = workers
        self._places = asyncio.Semaphore(processors)
        """For the works without room."""
        self._memory = FrameMemory(config[OTTLA_EXPANSION_MAX_BYTES])

    @property
    def taken_bytes(self) -> int:
        """The room of all works in progress."""
        return self._memory.taken

    def begin(self, work: Callable[[int], _Result]) -> asyncio.Future[_Result]:
        """As `run`, beside other work."""
        return asyncio.get_running_loop().create_task(self.run(work))

    async def run(self, work: Callable[[int], _Result]) -> _Result:
        """Have a worker thread call `work` with the bytes to which records may expand; again with more after an error that says so."""
        for limit in LIMITS:
            try:
                return await (self._run_with_room(work, limit) if limit > FREE_BYTES else self._run_without_room(work))
            except (DecompressionTooLarge, ExpandedTooLarge) as error:
                error.__traceback__ = None  # a future in a frame of the stack holds the error
                if limit == LIMITS[-1]:
                    raise
        raise AssertionError("the last limit has a result or an error")

    async def _run_without_room(self, work: Callable[[int], _Result]) -> _Result:
        """Has a worker call `work` in one of the places. A thread that has begun keeps its place to the end, even if the client leaves."""
        await self._places.acquire()
        try:
            in_thread = self._workers.submit(partial(_without_frames, work), FREE_BYTES)
        except BaseException:
            self._places.release()
            raise
        running = asyncio.wrap_future(in_thread)
        result = asyncio.shield(running)
        running.add_done_callback(lambda _: self._places.release())
        try:
            return await result
        except asyncio.CancelledError:
            in_thread.cancel()  # does nothing once it has begun
            raise

    def _run_in_worker(self, work: Callable[[int], _Result], limit: int) -> asyncio.Future[_Result]:
        return asyncio.get_running_loop().run_in_executor(self._workers, work, limit)

    async def _run_with_room(self, work: Callable[[int], _Result], limit: int) -> _Result:
        room = limit * COPIES
        waiting = _Waiting()
        if not self._memory.take(waiting, room):
            try:
                await waiting.room
            except asyncio.CancelledError:
                if waiting.room.done() and not waiting.room.cancelled():
                    self._memory.give_back(room)
                else:
                    self._memory.withdraw(waiting)
                raise
        running = self._run_in_worker(partial(_and_give_back, work), limit)
        try:
            return await asyncio.shield(running)
        finally:
            running.add_done_callback(lambda _: self._end(room))

    def _end(self, room: int) -> None:
        self._memory.give_back(room)
        if not self._memory.taken:
            with suppress(RuntimeError):  # the broker stops
                self._workers.submit(give_back_freed_memory)


def _without_frames(work: Callable[[int], _Result], limit: int) -> _Result:
    """Calls a work in a worker thread. The frames of its stack hold records, so they are freed here, and not with an error on the loop."""
    try:
        return work(limit)
    except (DecompressionTooLarge, ExpandedTooLarge) as error:
        error.__context__ = None
        raise error.with_traceback(None) from None


def _and_give_back(work: Callable[[int], _Result], limit: int) -> _Result:
    """Calls a work that has room, in a worker thread. Each thread has a heap, and would keep what the work has freed there."""
    try:
        return _without_frames(work, limit)
    finally:
        give_back_freed_memory()
