"""The garbage collector does not look through what is being loaded."""

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from broker.collector import collector_paused, collector_resting
from broker.groups.coordinator import GroupCoordinator
from tests.support.group_bench import GroupBench, run


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    assert gc.isenabled()


def test_nothing_is_collected_until_the_last_pause_is_over() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_works_again_after_a_failure() -> None:
    with pytest.raises(OSError, match="broken"), collector_paused():
        raise OSError("broken")
    assert gc.isenabled()


def test_much_that_was_made_in_a_pause_is_never_looked_at_and_little_is() -> None:
    gc.set_threshold(1_000, 10, 10)
    gc.collect()
    frozen = gc.get_freeze_count()
    with collector_paused():
        few = [[] for _ in range(100)]  # type: list[list[int]]
    assert gc.get_freeze_count() == frozen
    with collector_paused():
        many = [[] for _ in range(5_000)]  # type: list[list[int]]
    assert gc.get_freeze_count() >= frozen + len(many) + len(few)


def test_what_was_made_in_a_rest_is_looked_at_when_it_is_over() -> None:
    gc.set_threshold(1_000, 10, 10)
    gc.collect()
    frozen = gc.get_freeze_count()
    with collector_resting():
        assert not gc.isenabled()
        many = [[] for _ in range(5_000)]  # type: list[list[int]]
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
    assert many


@pytest.mark.parametrize("is_lost", [False, True])
def test_groups_are_loaded_in_such_a_pause(is_lost: bool) -> None:
    seen: list[str] = []

    @contextmanager
    def while_loading() -> Iterator[None]:
        seen.append("begin")
        try:
            yield
        finally:
            seen.append("end")

    async def scenario(bench: GroupBench) -> None:
        await bench.lead()
        bench.commit(5)
        with ThreadPoolExecutor(1) as workers:
            other = GroupCoordinator(
                bench.disks.broker, bench.clock, bench.wheel, bench.replica_manager, bench.purgatory, workers, while_loading=while_loading
            )
            other.start()
            partition = bench.partition()
            other.on_leadership_change(partition)
            await asyncio.sleep(0)
            assert seen == ["begin"]
            if is_lost:
                partition.take_offline()
                other.on_leadership_change(partition)
            await bench.until(lambda: seen == ["begin", "end"])
            await bench.until(lambda: not other.groups.is_loading)
            await other.stop()

    run(scenario)
