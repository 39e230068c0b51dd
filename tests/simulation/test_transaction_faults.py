"""Strikes transactions at chosen steps: brokers die at each write, links are cut, markers and EndTxn come late, twice or out of order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.topic_partition import TopicPartition
from tests.simulation.cluster import tear_write
from tests.simulation.ledger import Fate, Transaction
from tests.simulation.network import Exchange
from tests.simulation.outcomes import PREPARE_COMMIT
from tests.simulation.scene import DATA, DECISIONS, ID, PARTITIONS, Scene, SteppedProducer, is_api, is_read
from tests.simulation.transactions import Refused

SEEDS = range(20) if "OTTLA_SOAK" in os.environ else (7,)
SHORT_MS = 1_500
LONG_MS = 5_000
"""Timeouts of transactions, which the faults outlast."""
LONGER_S = 2 * SHORT_MS / 1000
Play = Callable[[Callable[[Scene], Awaitable[None]], int], None]
Act = Callable[[SteppedProducer, Transaction], Awaitable[object]]
LEAST_WRITES = 3 * (1 + PARTITIONS + 1) - 3
"""Batches of the end of a transaction: outcome, markers and end on three replicas; the last ones may come after the end was seen."""
LEAST_DECISIONS = 9
"""Steps in which records of an outcome, of the end with the next beginning, and of the next outcome are written on three replicas."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(params=[(seed, version) for seed in SEEDS for version in (0, 2)], ids=lambda param: f"{param[0]}-version-{param[1]}")
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario with the seed and the version of the transactions. `make soak` has many seeds."""
    seed, version = request.param
    return lambda scenario, brokers: Scene(seed, brokers, version).play(scenario)


async def act_with_a_kill(
    scene: Scene, write: int, victim: Callable[[], int], act: Act, counts: Callable[[TopicPartition], bool] = lambda partition: True
) -> bool:
    """Open a transaction and act on it; the victim dies when this many batches were appended anywhere. Returns whether it died."""
    producer, transaction = await scene.opened(f"killed at {write}")
    seen = 0
    dead: list[int] = []

    def kill() -> None:
        dead.append(victim())
        scene.cluster.kill(dead[0])

    def count(broker_id: int, partition: TopicPartition) -> None:
        nonlocal seen
        seen += counts(partition)
        if seen == write and not dead:
            kill()

    scene.on_write = count
    if not write:
        kill()
    with suppress(Refused):
        await act(producer, transaction)
    await scene.until(scene.has_no_transaction, "the transaction to end")
    await asyncio.sleep(0.5)  # for the followers
    scene.on_write = lambda broker_id, partition: None
    await scene.restart()
    return bool(dead)


@pytest.mark.parametrize(
    ("victim", "is_commit"),
    [
        ("coordinator", True),
        ("leader", False),
        pytest.param("coordinator", False, marks=pytest.mark.soak),
        pytest.param("leader", True, marks=pytest.mark.soak),
    ],
    ids=["coordinator-commit", "leader-abort", "coordinator-abort", "leader-commit"],
)
def test_a_broker_that_dies_at_any_write_of_the_end_leaves_the_transaction_whole(play: Play, victim: str, is_commit: bool) -> None:
    async def end(producer: SteppedProducer, transaction: Transaction) -> None:
        await producer.finish(transaction, is_commit=is_commit)

    async def scenario(scene: Scene) -> None:
        await scene.producer("first")
        kill = scene.coordinator if victim == "coordinator" else lambda: scene.leader(DATA[0])
        write = 0
        while await act_with_a_kill(scene, write, kill, end):
            write += 1
        assert write > LEAST_WRITES

    play(scenario, 3)


def test_a_coordinator_that_dies_where_the_next_transaction_follows_the_end_of_the_last_leaves_both_whole(play: Play) -> None:
    """The next one begins when the end is in the log of the coordinator, and may be on no other replica."""

    async def end_and_go_on(producer: SteppedProducer, transaction: Transaction) -> None:
        if await producer.finish(transaction, is_commit=True):
            await producer.finish(await producer.write(), is_commit=True)

    async def scenario(scene: Scene) -> None:
        await scene.producer("first")
        write = 1
        while await act_with_a_kill(scene, write, scene.coordinator, end_and_go_on, lambda partition: partition == DECISIONS):
            write += 1
        assert write > LEAST_DECISIONS

    play(scenario, 3)


def test_a_leader_that_dies_while_it_writes_its_marker_leaves_the_transaction_whole(play: Play) -> None:
    """The first bytes of the marker are on its disk."""

    async def scenario(scene: Scene) -> None:
        producer, transaction = await scene.opened("torn")
        partition = scene.led_elsewhere()
        leader = scene.leader(partition)

        def tear(exchange: Exchange) -> bool:
            if is_api(exchange, ApiKey.WRITE_TXN_MARKERS) and exchange.address.host == scene.node(leader).host:
                scene.on_arrival(lambda exchange: True)
                log = scene.cluster.replicas(*partition)[leader].log
                tear_write(log, scene.node(leader).disk, scene.random)
                scene.cluster.kill(leader)
            return True

        scene.on_arrival(tear)
        await producer.finish(transaction, is_commit=True)
        await scene.until(scene.has_no_transaction, "the transaction to end")
        assert not scene.node(leader).is_up

    play(scenario, 3)


def cut(scene: Scene) -> TopicPartition:
    """Cut the coordinator off from the leader of a partition, and return the partition."""
    partition = scene.led_elsewhere()
    scene.cluster.network.cut(scene.node(scene.coordinator()).host, scene.node(scene.leader(partition)).host)
    return partition


def test_a_decided_transaction_outlasts_a_cut_between_coordinator_and_leader(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        producer, transaction = await scene.opened("cut", LONG_MS)
        partition = cut(scene)
        ending = asyncio.create_task(producer.finish(transaction, is_commit=True))
        await scene.until(lambda: scene.invariants.decisions.states[ID] == PREPARE_COMMIT, "the outcome to be decided")
        await asyncio.sleep(2 * LONG_MS / 1000)
        assert scene.invariants.decisions.states[ID] == PREPARE_COMMIT
        assert scene.invariants.committed[partition].transactions.first_open is not None
        others = [each for each in DATA if each != partition]
        assert [scene.invariants.committed[each].transactions.first_open for each in others] == [None] * len(others)
        scene.cluster.network.heal()
        await ending
        await scene.until(lambda: is_read(transaction), "the transaction to be read")

    play(scenario, 3)


def test_an_open_transaction_ends_by_its_timeout_though_a_leader_is_cut_off(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        producer, transaction = await scene.opened("cut", SHORT_MS)
        partition = cut(scene)
        await asyncio.sleep(LONGER_S)
        assert scene.invariants.committed[partition].transactions.first_open is not None
        ending = asyncio.create_task(producer.finish(transaction, is_commit=True))
        await asyncio.sleep(1)
        # In version 2 every producer waits until the markers are written: its epoch may be the one that it gets with them.
        assert ending.done() is (scene.cluster.transaction_version == 0)
        scene.cluster.network.heal()
        with pytest.raises(Refused):
            await ending
        await scene.until(scene.has_no_transaction, "the transaction to end")
        assert transaction.read == {}
        assert scene.invariants.committed[partition].transactions.aborted

    play(scenario, 3)


def test_markers_that_arrive_twice_and_out_of_order_end_no_other_transaction(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        held: set[Exchange] = set()
        copies = 0

        def disorder(exchange: Exchange) -> bool:
            nonlocal copies
            if not is_api(exchange, ApiKey.WRITE_TXN_MARKERS) or exchange in held:
                return True
            copy = scene.copy(exchange)
            held.update((exchange, copy))
            copies += 1
            scene.later(scene.random.uniform(0.0, 1.0), copy)
            if scene.random.random() < 0.5:
                scene.later(scene.random.uniform(0.0, 0.5), exchange)
                return False
            return True

        scene.on_arrival(disorder)
        producer = await scene.producer("disorder")
        for number in range(8):
            transaction = await producer.write()
            await producer.finish(transaction, is_commit=number % 3 != 1)
            await producer.take_epoch()
        assert copies >= 8

    play(scenario, 3)


def test_an_end_that_arrives_after_the_timeout_ends_neither_its_transaction_nor_the_next(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        late: set[Exchange] = set()

        def delay(exchange: Exchange) -> bool:
            if not is_api(exchange, ApiKey.END_TXN) or exchange in late:
                return True
            late.add(exchange)
            scene.later(LONGER_S, exchange)
            return False

        producer, transaction = await scene.opened("late", SHORT_MS)
        scene.on_arrival(delay)
        ending = asyncio.create_task(producer.finish(transaction, is_commit=True))
        await scene.until(lambda: bool(late), "EndTxn to be under way")
        await scene.until(scene.has_no_transaction, "the timeout")
        scene.on_arrival(lambda exchange: True)
        following, next_transaction = await scene.opened("next")
        await asyncio.sleep(LONGER_S)
        with pytest.raises(Refused):
            await ending
        assert scene.invariants.decisions.unfinished() == [ID]
        await following.finish(next_transaction, is_commit=True)
        await scene.until(lambda: is_read(next_transaction), "the next transaction to be read")
        assert transaction.read == {}

    play(scenario, 3)


def test_markers_of_a_coordinator_whose_partition_was_moved_are_fenced_and_the_next_one_ends_the_transaction(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        producer, transaction = await scene.opened("moved")
        former = scene.coordinator()
        host = scene.node(former).host
        held: list[Exchange] = []

        def hold(exchange: Exchange) -> bool:
            if is_api(exchange, ApiKey.WRITE_TXN_MARKERS) and exchange.client == host:
                held.append(exchange)
                return False
            return True

        scene.on_arrival(hold)
        await producer.finish(transaction, is_commit=True)
        await scene.until(lambda: bool(held), "a marker to leave")
        others = [broker_id for broker_id in scene.cluster.nodes if broker_id != former]
        await move(scene, DECISIONS, others)
        await scene.until(lambda: scene.coordinator() != former, "another coordinator")
        await scene.until(scene.has_no_transaction, "the transaction to end")
        scene.on_arrival(lambda exchange: True)
        next_transaction = await producer.write()
        for exchange in held:
            scene.later(0.0, exchange)
        await asyncio.sleep(0.5)  # the former coordinator's markers arrive
        assert scene.invariants.decisions.unfinished() == [ID]
        await producer.finish(next_transaction, is_commit=False)
        await scene.until(lambda: is_read(transaction), "the transaction to be read")
        assert transaction.fate is Fate.COMMITTED
        assert next_transaction.read == {}

    play(scenario, 4)


async def move(scene: Scene, partition: TopicPartition, brokers: list[int]) -> None:
    """Give a partition other replicas."""
    moved = ReassignablePartition(partition_index=partition.partition, replicas=brokers)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=partition.topic, partitions=[moved])])
    await scene.cluster.client(scene.controller()).request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request, timeout_ms=5_000)
