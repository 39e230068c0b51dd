"""The garbage collector does not look through what is being loaded."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster import control_requests
from ottla.broker.cluster.control_requests import ControlRequests
from ottla.broker.loop import collector
from ottla.broker.loop.collector import collector_paused, collector_paused_for_tables, collector_resting
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.group_bench import GroupBench, NoShareState, run
from tests.support.pauses import at_once
from tests.support.replicas import TOPIC, TOPIC_ID, Replicas, brokers, metadata, state


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


@pytest.mark.slow
def test_what_was_made_in_a_pause_is_never_looked_at() -> None:
    gc.set_threshold(1_000, 10, 10)
    gc.collect()
    with collector_paused_for_tables():
        long = list(range(50_000))
    assert not any(each is long for each in gc.get_objects())
    with collector_paused():
        many = [[] for _ in range(5_000)]  # type: list[list[int]]
    assert not any(each is many[0] for each in gc.get_objects())


def test_little_work_keeps_no_cycles_for_good() -> None:
    gc.collect()
    frozen = gc.get_freeze_count()
    for _ in range(50):
        cycle: list[object] = []
        cycle.append(cycle)
        with collector_paused():
            pass
    assert gc.get_freeze_count() == frozen


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_was_made_to_stay_is_not_looked_at_when_a_rest_ends_later() -> None:
    gc.set_threshold(1_000, 10, 10)
    gc.collect()
    frozen = gc.get_freeze_count()
    with collector_resting():
        with collector_paused():
            many = [[] for _ in range(5_000)]  # type: list[list[int]]
        assert gc.get_freeze_count() == frozen
    assert gc.get_freeze_count() >= frozen + len(many)
    frozen = gc.get_freeze_count()
    with collector_resting():
        more = [[] for _ in range(5_000)]  # type: list[list[int]]
    assert gc.get_freeze_count() <= frozen
    assert more


def test_the_controllers_large_requests_are_carried_out_in_such_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    large = 5
    monkeypatch.setattr(control_requests, "LARGE", large)
    entered: list[str] = []

    @contextmanager
    def while_large() -> Iterator[None]:
        entered.append("large")
        yield

    replicas = Replicas()
    config = SimpleNamespace(refresh=lambda topics: asyncio.sleep(0))
    control = ControlRequests(replicas.manager, cast("Any", config), MetadataWaits(), while_large)

    def tell(partitions: int) -> list[str]:
        entered.clear()
        states = [state(index=index) for index in range(partitions)]
        led = LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=states)
        at_once(control.on_leader_and_isr(LeaderAndIsrRequest(controller_epoch=1, topic_states=[led])))
        leaders = {f"p{index}": 0 for index in range(partitions)}
        update = UpdateMetadataRequest(controller_epoch=1, live_brokers=brokers(0), topic_states=[metadata(TOPIC, TOPIC_ID, **leaders)])
        at_once(control.on_update_metadata(update))
        stopped = [StopReplicaPartitionState(partition_index=index, delete_partition=True) for index in range(partitions)]
        stop = StopReplicaRequest(controller_epoch=1, topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=stopped)])
        with replicas.disks.background.hurried():
            at_once(control.on_stop_replica(stop))
        return entered

    assert tell(large - 1) == []
    assert tell(large) == ["large"] * 3


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
                bench.disks.broker,
                bench.clock,
                bench.wheel,
                bench.replica_manager,
                bench.purgatory,
                workers,
                bench.verifier,
                NoShareState(),
                while_loading=while_loading,
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


def test_the_collector_waits_for_the_end_of_what_a_large_request_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "RETRY_SECONDS", 0.001)

    async def main() -> None:
        gc.collect()
        with collector_resting():
            left = [[] for _ in range(collector.MOST_SCANNED + 5_000)]  # type: list[list[int]]
        await asyncio.sleep(0.01)
        assert not gc.isenabled()
        left.clear()
        await eventually(gc.isenabled)

    asyncio.run(main())


def test_the_collector_does_not_wait_for_good_for_what_a_large_request_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "RETRY_SECONDS", 0.0)

    async def main() -> None:
        gc.collect()
        with collector_resting():
            left = [[] for _ in range(collector.MOST_SCANNED + 5_000)]  # type: list[list[int]]
        await eventually(gc.isenabled)
        assert left

    asyncio.run(main())


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it never came")
