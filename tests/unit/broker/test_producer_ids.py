"""Producer ids come in blocks: none twice, one fetch at a time, the next before it is needed."""

import asyncio
import logging

import pytest

from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.controller.errors import NotController
from ottla.controller.znodes.changes import ProducerIdBlock


class Blocks:
    """The controller's side. While `refuses`, there is no controller; while `slow` is not set, it does not answer."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.asked = 0
        self.refuses = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.ids = ProducerIds(self.allocate)

    async def allocate(self) -> ProducerIdBlock:
        self.asked += 1
        await self.answers.wait()
        if self.refuses:
            raise NotController("somebody else is")
        first = (self.asked - 1) * self.size
        return ProducerIdBlock(0, first, first + self.size - 1)

    async def next(self) -> int | None:
        """What a request does that may wait for a block."""
        found: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        def take() -> None:
            if not found.done():
                found.set_result(self.ids.next_now())

        self.ids.when_next(take)
        return await found


def test_ids_are_handed_out_block_by_block_without_a_gap() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        assert [await blocks.next() for _ in range(35)] == list(range(35))
        assert blocks.asked == 4

    asyncio.run(scenario())


def test_the_next_block_is_there_before_the_present_one_ends() -> None:
    async def scenario() -> None:
        blocks = Blocks(100)
        assert await blocks.next() == 0
        for expected in range(1, 95):
            assert blocks.ids.next_now() == expected
        await asyncio.sleep(0)
        assert blocks.asked == 2
        assert [blocks.ids.next_now() for _ in range(95, 110)] == list(range(95, 110))

    asyncio.run(scenario())


def test_many_that_wait_cause_one_fetch_and_get_different_ids() -> None:
    async def scenario() -> None:
        blocks = Blocks(1000)
        found = await asyncio.gather(*(blocks.next() for _ in range(50)))
        assert sorted(each for each in found if each is not None) == list(range(50))
        assert blocks.asked == 1

    asyncio.run(scenario())


def test_more_than_a_block_may_wait_at_once() -> None:
    async def scenario() -> None:
        blocks = Blocks(10)
        found = await asyncio.gather(*(blocks.next() for _ in range(25)))
        assert sorted(each for each in found if each is not None) == list(range(25))

    asyncio.run(scenario())


def test_without_a_controller_there_is_no_id_and_the_next_asks_again() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        blocks.refuses = True
        assert await blocks.next() is None
        blocks.refuses = False
        assert await blocks.next() == 10

    asyncio.run(scenario())


def test_each_reason_that_there_is_no_block_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        blocks = Blocks(1)
        for refuses in (True, True, True, False, True, True):
            blocks.refuses = refuses
            await blocks.next()

    asyncio.run(scenario())
    refused = "no block of producer ids from the controller, clients will ask again: somebody else is"
    assert [record.getMessage() for record in caplog.records] == [refused, "the controller gives blocks of producer ids again", refused]


def test_a_client_that_goes_away_does_not_take_the_block_along() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        blocks.answers.clear()
        gone, stays = asyncio.ensure_future(blocks.next()), asyncio.ensure_future(blocks.next())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        blocks.answers.set()
        assert await stays == 0

    asyncio.run(scenario())


def test_stop_ends_a_fetch() -> None:
    async def scenario() -> None:
        blocks = Blocks()
        blocks.answers.clear()
        assert blocks.ids.next_now() is None
        await blocks.ids.stop()

    asyncio.run(scenario())
