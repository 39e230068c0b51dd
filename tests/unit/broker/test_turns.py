"""Long work a little at a time: who has a turn when, who waits, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.broker.request.turns import HANDED_ON_BYTES, SORTED_PER_STEP, Steps, Turns, Unfinished, each, free_in_steps, how_often, in_order
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.handler_bench import on_a_loop
from tests.support.network import Turns as Loop

STEPS_PER_SLICE = 10


class Bench:
    """Turns on a loop that is turned by hand, with a clock that goes on by one whenever it is looked at."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.now_ns = 0
        self.log: list[str] = []
        self.large = 0
        self.turns = Turns(self.loop.call_soon, self._clock_ns, STEPS_PER_SLICE, self._while_large)

    def _clock_ns(self) -> int:
        self.now_ns += 1
        return self.now_ns

    @contextmanager
    def _while_large(self) -> Iterator[None]:
        self.large += 1
        yield
        self.large -= 1

    def work(self, name: str, steps: int, pending: Pending, task: asyncio.Task[None] | None = None) -> Steps[asyncio.Task[None] | None]:
        self.log.append(f"{name} begins")
        for _ in range(steps):
            yield
        self.log.append(f"{name} ends")
        if task is None:
            pending.complete(name.encode())
        return task

    def large_request(
        self, name: str, size: int, steps: int = 5, task: asyncio.Task[None] | None = None, *, needs_task: bool = False
    ) -> Pending:
        pending = Pending(in_turns=True, waiting_bytes=size)
        self.turns.wait(self.work(name, steps, pending, task), pending, needs_task=needs_task)
        return pending


def test_a_turn_ends_when_its_time_is_up() -> None:
    bench = Bench()
    pending = Pending()
    steps = bench.work("long", 35, pending)
    assert isinstance(bench.turns.first_slice(steps), Unfinished)
    bench.turns.go_on(steps, pending)
    turns = 0
    while not pending.completed:
        bench.loop.turn()
        turns += 1
    assert turns == 3
    assert pending.answer == b"long"


def test_what_has_begun_takes_turns() -> None:
    bench = Bench()
    pendings = [Pending(), Pending()]
    for name, pending in zip(("one", "other"), pendings, strict=True):
        bench.turns.go_on(bench.work(name, 25, pending), pending)
    bench.loop.run()
    assert bench.log == ["one begins", "other begins", "one ends", "other ends"]


def test_large_requests_have_one_place_and_the_smallest_is_first() -> None:
    bench = Bench()
    bench.large_request("first", 900, steps=30)
    bench.loop.turn()
    bench.large_request("largest", 800)
    bench.large_request("smallest", 100)
    assert bench.large == 1
    bench.loop.run()
    assert bench.log == ["first begins", "first ends", "smallest begins", "smallest ends", "largest begins", "largest ends"]
    assert bench.large == 0


def test_a_large_request_whose_client_left_never_begins() -> None:
    bench = Bench()
    left = bench.large_request("left", 100)
    stays = bench.large_request("stays", 200)
    assert left.on_closed is not None
    left.on_closed()
    bench.loop.run()
    assert bench.log == ["stays begins", "stays ends"]
    assert stays.completed
    assert not left.waiting_bytes


def test_one_that_has_begun_is_done_even_if_its_client_leaves() -> None:
    bench = Bench()
    bench.large_request("begun", 100, steps=30)
    bench.loop.turn()
    place = bench.turns._place
    assert place is not None
    assert place.pending.on_closed is None
    bench.loop.run()
    assert bench.log == ["begun begins", "begun ends"]


@on_a_loop
async def test_who_is_left_to_a_task_lets_the_next_begin() -> None:
    bench = Bench()
    task = asyncio.get_running_loop().create_task(_until(asyncio.Event()))
    bench.large_request("task", HANDED_ON_BYTES + 1, task=task)
    bench.loop.run()
    bench.large_request("next", 200)
    bench.loop.run()
    assert bench.log == ["task begins", "task ends", "next begins", "next ends"]
    assert bench.large == 1
    task.cancel()


@on_a_loop
async def test_a_task_keeps_the_place_while_those_of_others_are_too_large() -> None:
    bench = Bench()
    done = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.get_running_loop().create_task(_until(event)) for event in done]
    bench.large_request("first", HANDED_ON_BYTES + 1, task=tasks[0])
    bench.loop.run()
    bench.large_request("second", HANDED_ON_BYTES + 1, task=tasks[1])
    bench.large_request("next", HANDED_ON_BYTES + 2)
    bench.loop.run()
    assert bench.log == ["first begins", "first ends", "second begins", "second ends"]
    assert bench.large == 2
    done[0].set()
    await tasks[0]
    await asyncio.sleep(0)
    bench.loop.run()
    assert bench.log[4:] == ["next begins", "next ends"]
    assert bench.large == 1
    done[1].set()
    await tasks[1]
    await asyncio.sleep(0)
    assert bench.large == 0


@on_a_loop
async def test_a_task_that_keeps_the_place_gives_it_up_when_it_is_done() -> None:
    bench = Bench()
    done = asyncio.Event()
    tasks = [asyncio.get_running_loop().create_task(_until(event)) for event in (asyncio.Event(), done)]
    bench.large_request("first", HANDED_ON_BYTES + 1, task=tasks[0])
    bench.loop.run()
    bench.large_request("second", HANDED_ON_BYTES + 1, task=tasks[1])
    bench.large_request("next", HANDED_ON_BYTES + 2)
    bench.loop.run()
    assert bench.log[4:] == []
    done.set()
    await tasks[1]
    await asyncio.sleep(0)
    bench.loop.run()
    assert bench.log[4:] == ["next begins", "next ends"]
    bench.turns.close()
    assert bench.large == 0
    tasks[0].cancel()


@on_a_loop
async def test_one_that_needs_a_task_waits_for_room_and_keeps_nobody_waiting() -> None:
    bench = Bench()
    done = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.get_running_loop().create_task(_until(event)) for event in done]
    bench.large_request("first", HANDED_ON_BYTES + 1, task=tasks[0], needs_task=True)
    bench.loop.run()
    second = bench.large_request("second", HANDED_ON_BYTES + 1, task=tasks[1], needs_task=True)
    bench.large_request("larger", HANDED_ON_BYTES + 2)
    bench.large_request("small", 1, needs_task=True)
    bench.loop.run()
    assert bench.log[2:] == ["small begins", "small ends", "larger begins", "larger ends"]
    assert second.waiting_bytes
    done[0].set()
    await tasks[0]
    await asyncio.sleep(0)
    bench.loop.run()
    assert bench.log[6:] == ["second begins", "second ends"]
    assert not second.waiting_bytes
    done[1].set()
    await tasks[1]
    await asyncio.sleep(0)
    assert bench.large == 0


@on_a_loop
async def test_one_that_waits_for_room_ends_with_the_broker() -> None:
    bench = Bench()
    task = asyncio.get_running_loop().create_task(_until(asyncio.Event()))
    for name in ("first", "second"):
        bench.large_request(name, HANDED_ON_BYTES + 1, task=task, needs_task=True)
    bench.loop.run()
    bench.turns.close()
    bench.loop.run()
    assert bench.log == ["first begins", "first ends"]
    assert bench.large == 0
    task.cancel()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


@on_a_loop
async def test_who_merely_waits_gives_the_place_up() -> None:
    bench = Bench()
    waits = bench.large_request("waits", 100, task=asyncio.get_running_loop().create_future())  # type: ignore[arg-type]  # never done
    bench.large_request("next", 200)
    bench.loop.run()
    bench.turns.leave(waits)
    bench.loop.run()
    assert bench.log[2:] == ["next begins", "next ends"]


def test_what_fails_closes_its_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    pending = Pending(in_turns=True, waiting_bytes=1)

    def failing() -> Steps[None]:
        yield
        raise ValueError("a fault of ours")

    bench.turns.wait(failing(), pending)
    fine = bench.large_request("fine", 2)
    bench.loop.run()
    assert pending.answer is CLOSE
    assert fine.answer == b"fine"
    assert "a fault of ours" in caplog.text


@on_a_loop
async def test_a_coroutine_lets_others_have_their_turn() -> None:
    bench = Bench()
    others = 0

    def other() -> None:
        nonlocal others
        others += 1
        asyncio.get_running_loop().call_soon(other)

    other()
    assert await bench.turns.spread(each(range(100), str)) == [str(number) for number in range(100)]
    assert others >= 9
    others = 0
    for _ in range(100):
        await bench.turns.pause()
    assert others >= 8


def test_how_often_each_comes() -> None:
    turns = Turns(lambda _: None, slice_ns=10**12)
    assert turns.first_slice(how_often("abca")) == {"a": 2, "b": 1, "c": 1}


def test_a_message_is_taken_to_pieces() -> None:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition() for _ in range(100)])
    request = ListOffsetsRequest(topics=[topic])
    assert len(list(free_in_steps(request))) >= 100
    assert request.topics == topic.partitions == []


def test_nothing_goes_on_after_the_end() -> None:
    bench = Bench()
    bench.large_request("begun", 1, steps=50)
    bench.large_request("waiting", 2)
    bench.loop.turn()
    bench.turns.close()
    bench.loop.run()
    assert bench.log == ["begun begins"]
    assert bench.large == 0


def test_items_are_sorted_some_in_a_step() -> None:
    count = 5 * SORTED_PER_STEP
    steps = in_order(number * 7919 % count for number in range(count))
    assert [next(steps) for _ in range(5)] == [None] * 5
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert list(end.value.value) == list(range(count))
