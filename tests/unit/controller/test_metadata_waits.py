"""Waits for what the metadata cache shows of very many things."""

import asyncio

import pytest

from ottla.controller.admin import metadata_waits
from ottla.controller.admin.metadata_waits import MetadataWaits
from tests.support.controlled_cluster import until

MANY = 200


def test_a_change_of_the_cache_costs_the_check_of_one_thing_however_many_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        waits = MetadataWaits()
        there: set[int] = set()
        checked: list[int] = []
        paused = 0

        async def pause() -> None:
            nonlocal paused
            paused += 1

        monkeypatch.setattr(metadata_waits, "pause", pause)

        def is_there(thing: int) -> bool:
            checked.append(thing)
            return thing in there

        waiting = asyncio.ensure_future(waits.until_all(range(MANY), is_there, 60_000))
        await asyncio.sleep(0)
        there.update(range(MANY - 1))
        checked.clear()
        waits.notify()
        assert checked == [0]
        await until(lambda: MANY - 1 in checked)
        assert paused >= MANY
        there.add(MANY - 1)
        there.remove(5)
        waits.notify()
        await until(lambda: 5 in checked[MANY:])
        assert not waiting.done()
        there.add(5)
        waits.notify()
        await waiting

    asyncio.run(scenario())


def test_the_wait_for_many_things_ends_with_its_time() -> None:
    async def scenario() -> None:
        checked: list[int] = []

        def never(thing: int) -> bool:
            checked.append(thing)
            return False

        await MetadataWaits().until_all(range(3), never, 1)
        assert set(checked) == {0}

    asyncio.run(scenario())
