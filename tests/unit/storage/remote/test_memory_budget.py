"""Transfers never take more memory than there is, unless one alone needs more, and none waits for ever."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.remote.memory_budget import MemoryBudget
from tests.support.remote_reading import quiet, run

LIMIT = 100
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["read", "copy", "chunk", "kept chunk"]), st.integers(1, 130)),
        st.tuples(st.sampled_from(["end", "cancel", "keep"]), st.integers(0, 20)),
    ),
    max_size=40,
)


class Transfers:
    """Takes memory as all kinds of transfers do, and checks the bytes that are held by its own account."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(LIMIT)
        self.budget.relieve_with(self._give_up)
        self.kept: list[int] = []
        self.held: dict[asyncio.Task[None], int] = {}
        self.ends: dict[asyncio.Task[None], asyncio.Event] = {}
        self.keeping: set[asyncio.Task[None]] = set()
        """Those whose bytes stay at their end."""

    def _give_up(self) -> int:
        return self.kept.pop(0) if self.kept else 0

    def begin(self, kind: str, size: int) -> None:
        if "chunk" in kind:
            if self.budget.try_take(size):
                self.check(size)
                if kind == "kept chunk":
                    self.budget.keep(size)
                    self.kept.append(size)
                else:
                    self.budget.give_back(size)
            return
        end = asyncio.Event()
        task = asyncio.ensure_future(self._transfer(size, end, kind == "read"))
        self.ends[task] = end

    async def _transfer(self, size: int, end: asyncio.Event, is_read: bool) -> None:
        await self.budget.take(size, is_read=is_read)
        task = asyncio.current_task()
        assert task is not None
        self.held[task] = size
        self.check(0)
        try:
            await end.wait()
        finally:
            del self.held[task]
            if task in self.keeping:
                self.kept.append(size)
                self.budget.keep(size)
            else:
                self.budget.give_back(size)

    def check(self, more: int) -> None:
        sizes = [*self.held.values(), *self.kept] + [more] * bool(more)
        assert sum(sizes) <= LIMIT or len(sizes) == 1, sizes
        assert sum(sizes) <= self.budget.used

    def choose(self, kind: str, at: int) -> None:
        tasks = [each for each in self.ends if not each.done()]
        if tasks:
            task = tasks[at % len(tasks)]
            if kind == "cancel":
                task.cancel()
            else:
                if kind == "keep":
                    self.keeping.add(task)
                self.ends[task].set()


@given(STEPS)
def test_any_transfers_stay_within_the_budget_and_end(steps: list[tuple[str, int]]) -> None:
    async def story() -> None:
        transfers = Transfers()
        for kind, number in steps:
            if kind in ("end", "cancel", "keep"):
                transfers.choose(kind, number)
            else:
                transfers.begin(kind, number)
            await asyncio.sleep(0)
        for end in transfers.ends.values():
            end.set()
        await quiet()
        assert all(each.done() for each in transfers.ends), "some wait forever"
        assert transfers.budget.used == transfers.budget.kept == sum(transfers.kept)

    run(story)


def test_those_behind_a_cancelled_wait_go_on() -> None:
    async def story() -> None:
        budget = MemoryBudget(LIMIT)
        await budget.take(60)
        large = asyncio.ensure_future(budget.take(90))
        small = asyncio.ensure_future(budget.take(30))
        await quiet()
        assert not small.done()
        large.cancel()
        await quiet()
        assert small.done()
        assert budget.used == 90

    run(story)


def test_bytes_that_came_with_the_cancellation_are_given_back() -> None:
    async def story() -> None:
        budget = MemoryBudget(LIMIT)
        await budget.take(60)
        waiting = asyncio.ensure_future(budget.take(90))
        await quiet()
        budget.give_back(60)
        assert budget.used == 90
        waiting.cancel()
        await quiet()
        assert budget.used == 0

    run(story)


def test_reads_of_indexes_come_before_chunks_and_copies() -> None:
    async def story() -> None:
        budget = MemoryBudget(LIMIT)
        await budget.take(90)
        copy = asyncio.ensure_future(budget.take(20))
        index = asyncio.ensure_future(budget.take(50, is_read=True))
        await quiet()
        assert not budget.try_take(5), "else chunks could keep an index away for ever"
        budget.give_back(30)
        await quiet()
        assert not index.done()
        budget.give_back(20)
        await quiet()
        assert (index.done(), copy.done()) == (True, False)

    run(story)
