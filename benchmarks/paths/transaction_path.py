"""Measures the requests of a transaction from the frame to the answer, without a network: `python -m benchmarks.paths.transaction_path`.

A broker in this process; every frame goes through `Dispatcher.handle`. Prints µs of processor time of the loop's thread for each stage, the
minimum of several rounds. The stage of the markers lasts from the answer to EndTxn until the end of the transaction is stored.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.loadgen.transactional import Step
from benchmarks.loads import transaction_frames
from benchmarks.loads.batches import batch_of_values, values_like_text
from ottla.broker.network.request_channel import Pending
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.transactions.coordinator import TransactionStats
from ottla.coordination.transactions.effects import ProducerResult
from ottla.protocol.compiled import describe
from tests.support.connections import ClientConnection

ROUNDS: Final = 8
TRANSACTIONS: Final = 200  # per round
RECORDS: Final = 10
STATE_PARTITIONS: Final = 50
MOST_TURNS: Final = 1_000
STAGES: Final = ("AddPartitionsToTxn", "Produce", "EndTxn", "markers and end")
_ID: Final = "measured"
_TOPIC: Final = "written"
_CONNECTION: Any = ClientConnection()


async def measure(scratch: Path, partitions: int) -> list[float]:
    """µs of each stage."""
    broker = Broker(BrokerConfig({"log.dirs": str(scratch / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    try:
        topics = [NewTopic(_TOPIC, partitions, 1), NewTopic(TRANSACTION_STATE_TOPIC, STATE_PARTITIONS, 1)]
        await broker.services.administration.topic_admin.create_topics(topics)
        steps = await _transaction(broker, partitions)
        return [min(costs) for costs in zip(*[await _round(broker, steps, number) for number in range(ROUNDS)], strict=True)]
    finally:
        await broker.stop()


async def _transaction(broker: Broker, partitions: int) -> list[Step]:
    """The requests of a producer that has its id."""
    coordinator = broker.services.coordinators.transactions
    await _until(lambda: len(coordinator.transactions.partitions) == STATE_PARTITIONS, 0.01)
    producer_ids = broker.services.cluster.producer_ids
    given: asyncio.Future[ProducerResult] = asyncio.get_running_loop().create_future()
    producer_ids.when_next(lambda: coordinator.init_producer_id(_ID, 60_000, None, given.set_result))
    producer = await given
    who = transaction_frames.Identity(_ID, producer.producer_id, producer.producer_epoch, 0)
    batch = batch_of_values(values_like_text(RECORDS, 100), int(time.time() * 1000))
    own = range(partitions)
    return [
        transaction_frames.add_partitions(who, _TOPIC, own),
        transaction_frames.produce(who, _TOPIC, dict.fromkeys(own, batch), RECORDS, dict.fromkeys(own, 0)),
        transaction_frames.end(who),
    ]


def _has_ended(stats: TransactionStats, number: int) -> bool:
    return stats.commits > number


async def _until(is_true: Callable[[], bool], pause_s: float = 0) -> None:
    for _ in range(MOST_TURNS):
        if is_true():
            return
        await asyncio.sleep(pause_s)
    raise AssertionError("the broker does not get on")


async def _round(broker: Broker, steps: list[Step], number: int) -> list[float]:
    stats = broker.services.coordinators.transactions.stats
    costs = [0] * len(STAGES)
    for each in range(number * TRANSACTIONS, (number + 1) * TRANSACTIONS):
        for stage, (asked,) in enumerate(steps):
            frame = memoryview(bytearray(asked.frame(each)[4:]))
            began_ns = time.thread_time_ns()
            answer = broker.dispatcher.handle(frame, _CONNECTION)
            if isinstance(answer, Pending):
                await _until(partial(getattr, answer, "completed"))
            costs[stage] += time.thread_time_ns() - began_ns
        began_ns = time.thread_time_ns()
        await _until(partial(_has_ended, stats, each))
        costs[-1] += time.thread_time_ns() - began_ns
    return [cost / TRANSACTIONS / 1000 for cost in costs]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.transaction_path", description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--dir", default="/dev/shm" if Path("/dev/shm").is_dir() else None, help="where the log is; memory by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transaction-path-", dir=asked.dir) as scratch:
        costs = uvloop.run(measure(Path(scratch), asked.partitions))
    print(describe())
    for stage, cost in zip(STAGES, costs, strict=True):
        print(f"{stage:<20}{cost:>8.1f} µs")
    print(f"{'together':<20}{sum(costs):>8.1f} µs")


if __name__ == "__main__":
    main()
