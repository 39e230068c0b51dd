"""Requests whose handlers wait: which of them run when, who waits for a place, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ottla.broker.network.request_channel import CLOSE, Answer, Pending
from ottla.broker.request.large_requests import HANDED_ON_BYTES, free
from ottla.broker.request.running import RunningRequests
from ottla.broker.security.client import Client
from ottla.pauses import pause
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.handler_bench import on_a_loop
from tests.support.pauses import a_turn, every_pause_waits, steps_of


class Bench:
    """Requests on a loop of which each turn has time for one element."""

    def __init__(self) -> None:
        every_pause_waits()
        self.log: list[str] = []
        self.large = 0
        self.running = RunningRequests(while_large=self._while_large)

    @contextmanager
    def _while_large(self) -> Iterator[None]:
        self.large += 1
        yield
        self.large -= 1

    async def work(self, name: str, elements: int, event: asyncio.Event | None = None) -> Answer:
        self.log.append(f"{name} begins")
        for _ in range(elements):
            await pause()
        if event is not None:
            await event.wait()
        self.log.append(f"{name} ends")
        return name.encode()

    def large_request(self, name: str, size: int, event: asyncio.Event | None = None, *, elements: int = 5, waits: bool = False) -> Pending:
        pending = Pending(in_turns=True, waiting_bytes=size)
        self.running.large.wait(self.work(name, elements, event), pending, needs_room=waits)
        return pending

    async def rest(self) -> None:
        """Until nothing is left to do."""
        for _ in range(200):
            await a_turn()


@on_a_loop
async def test_work_that_ends_in_its_first_slice_needs_no_pending() -> None:
    bench = Bench()
    assert bench.running.begin(bench.work("short", 0)) == b"short"


@on_a_loop
async def test_requests_that_have_begun_take_turns() -> None:
    bench = Bench()
    for name in ("one", "other"):
        bench.running.begin(bench.work(name, 25))
    await bench.rest()
    assert bench.log == ["one begins", "other begins", "one ends", "other ends"]


@on_a_loop
async def test_large_requests_have_one_place_and_the_smallest_is_first() -> None:
    bench = Bench()
    bench.large_request("first", 900, elements=30)
    await a_turn()
    bench.large_request("largest", 800)
    bench.large_request("smallest", 100)
    assert bench.large == 1
    await bench.rest()
    assert bench.log == ["first begins", "first ends", "smallest begins", "smallest ends", "largest begins", "largest ends"]
    assert bench.large == 0


@on_a_loop
async def test_a_large_request_whose_client_left_never_begins() -> None:
    bench = Bench()
    left = bench.large_request("left", 100)
    stays = bench.large_request("stays", 200)
    assert left.on_closed is not None
    left.on_closed()
    await bench.rest()
    assert bench.log == ["stays begins", "stays ends"]
    assert stays.completed
    assert not left.waiting_bytes


@on_a_loop
async def test_one_that_has_begun_is_done_even_if_its_client_leaves() -> None:
    bench = Bench()
    begun = bench.large_request("begun", 100, elements=30)
    await a_turn()
    assert bench.log == ["begun begins"]
    assert begun.on_closed is None
    await bench.rest()
    assert bench.log == ["begun begins", "begun ends"]


@on_a_loop
async def test_a_request_that_waits_for_the_store_holds_a_slot_until_its_answer() -> None:
    bench = Bench()
    event = asyncio.Event()
    pending = bench.running.begin(bench.work("waits", 3, event))
    assert isinstance(pending, Pending)
    assert not pending.occupies_slot
    await bench.rest()
    assert pending.occupies_slot
    event.set()
    await bench.rest()
    assert pending.answer == b"waits"


@on_a_loop
async def test_one_that_waits_for_an_event_holds_none_and_ends_when_its_client_leaves() -> None:
    bench = Bench()

    async def work() -> Answer:
        bench.running.on_wait()
        await asyncio.Event().wait()
        return b""

    pending = bench.running.begin(work())
    assert isinstance(pending, Pending)
    assert not pending.occupies_slot
    assert pending.on_closed is not None
    pending.on_closed()
    await bench.rest()
    assert pending.answer is CLOSE


@on_a_loop
async def test_who_waits_for_the_store_lets_the_next_large_request_begin() -> None:
    bench = Bench()
    waits = bench.large_request("waits", HANDED_ON_BYTES + 1, asyncio.Event())
    await bench.rest()
    bench.large_request("next", 200)
    await bench.rest()
    assert bench.log == ["waits begins", "next begins", "next ends"]
    assert bench.large == 1
    assert not waits.occupies_slot
    await bench.running.close()


@on_a_loop
async def test_one_keeps_the_place_while_those_that_wait_are_too_large() -> None:
    bench = Bench()
    done = asyncio.Event(), asyncio.Event()
    bench.large_request("first", HANDED_ON_BYTES + 1, done[0])
    await bench.rest()
    bench.large_request("second", HANDED_ON_BYTES + 1, done[1])
    bench.large_request("next", HANDED_ON_BYTES + 2)
    await bench.rest()
    assert bench.log == ["first begins", "second begins"]
    assert bench.large == 2
    done[0].set()
    await bench.rest()
    assert bench.log[2:] == ["first ends", "next begins", "next ends"]
    assert bench.large == 1
    done[1].set()
    await bench.rest()
    assert bench.large == 0


@on_a_loop
async def test_one_that_keeps_the_place_gives_it_up_when_it_is_done() -> None:
    bench = Bench()
    done = asyncio.Event()
    bench.large_request("first", HANDED_ON_BYTES + 1, asyncio.Event())
    await bench.rest()
    bench.large_request("second", HANDED_ON_BYTES + 1, done)
    bench.large_request("next", HANDED_ON_BYTES + 2)
    await bench.rest()
    done.set()
    await bench.rest()
    assert bench.log[2:] == ["second ends", "next begins", "next ends"]
    await bench.running.close()
    assert bench.large == 0


@on_a_loop
async def test_one_that_will_wait_for_the_store_waits_for_room_and_keeps_no_other_waiting() -> None:
    bench = Bench()
    done = asyncio.Event(), asyncio.Event()
    bench.large_request("first", HANDED_ON_BYTES + 1, done[0], waits=True)
    await bench.rest()
    second = bench.large_request("second", HANDED_ON_BYTES + 1, done[1], waits=True)
    bench.large_request("larger", HANDED_ON_BYTES + 2)
    bench.large_request("small", 1, waits=True)
    await bench.rest()
    assert bench.log[1:] == ["small begins", "small ends", "larger begins", "larger ends"]
    assert second.waiting_bytes
    done[0].set()
    await bench.rest()
    assert bench.log[5:] == ["first ends", "second begins"]
    assert not second.waiting_bytes
    done[1].set()
    await bench.rest()
    assert bench.large == 0


@on_a_loop
async def test_one_that_waits_for_room_ends_with_the_broker() -> None:
    bench = Bench()
    for name in ("first", "second"):
        bench.large_request(name, HANDED_ON_BYTES + 1, asyncio.Event(), waits=True)
    await bench.rest()
    await bench.running.close()
    await bench.rest()
    assert bench.log == ["first begins"]
    assert bench.large == 0


@on_a_loop
async def test_who_waits_for_an_event_gives_the_place_up() -> None:
    bench = Bench()

    async def work() -> Answer:
        bench.running.on_wait()
        await asyncio.Event().wait()
        return b""

    bench.running.large.wait(work(), Pending(in_turns=True, waiting_bytes=100))
    bench.large_request("next", 200)
    await bench.rest()
    assert bench.log == ["next begins", "next ends"]
    assert bench.large == 0
    await bench.running.close()


@pytest.mark.parametrize("pauses", [False, True])
def test_a_fault_closes_its_connection_and_no_other(pauses: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> Answer:
        if pauses:
            await pause()
        raise ValueError("a fault of ours")

    @on_a_loop
    async def scenario() -> None:
        bench = Bench()
        pending = Pending(in_turns=True, waiting_bytes=1)
        client = Client("127.0.0.1:1-127.0.0.1:2-3", "127.0.0.1", 2, "PLAINTEXT")
        pending.connection = cast("Any", Mock(client=client))
        bench.running.large.wait(failing(), pending)
        fine = bench.large_request("fine", 2)
        await bench.rest()
        assert pending.answer is CLOSE
        assert fine.answer == b"fine"

    scenario()
    assert "a fault of ours" in caplog.text
    assert "unexpected error in a request of 127.0.0.1:1-127.0.0.1:2-3; closing its connection" in caplog.text


@on_a_loop
async def test_the_work_of_one_request_may_begin_within_that_of_another() -> None:
    bench = Bench()
    inner: list[Answer] = []

    async def outer() -> Answer:
        inner.append(bench.running.begin(bench.work("inner", 3)))
        await pause()
        bench.running.on_wait()
        return b"outer"

    pending = bench.running.begin(outer())
    assert isinstance(pending, Pending)
    await bench.rest()
    assert pending.answer == b"outer"
    (waited,) = inner
    assert isinstance(waited, Pending)
    assert waited.answer == b"inner"
    assert waited.on_closed is None, "only the outer one waits for an event"


@on_a_loop
async def test_no_request_goes_on_after_the_end() -> None:
    bench = Bench()
    bench.large_request("begun", 1, elements=50)
    bench.large_request("waiting", 2)
    await a_turn()
    await bench.running.close()
    await bench.rest()
    assert bench.log == ["begun begins"]
    assert bench.large == 0


def test_a_message_is_taken_to_pieces() -> None:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition() for _ in range(100)])
    request = ListOffsetsRequest(topics=[topic])
    assert steps_of(free(request))[0] >= 100
    assert request.topics == topic.partitions == []
