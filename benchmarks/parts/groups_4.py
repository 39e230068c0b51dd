"""Measures what only clients of Apache Kafka 4 have, beside Apache Kafka 4.4: groups of the new protocol, and transactions of version 2."""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.brokers import process
from benchmarks.brokers.kinds import COMMON_CONFIG, REFERENCE, REFERENCE_4
from benchmarks.loadgen.runner import Load
from benchmarks.loadgen.transactional import Transaction, TransactionLoad, run_transactions
from benchmarks.loads import consumer_members, transaction_frames
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.loads.stage import Stage
from benchmarks.loads.transactions import PAUSE_S
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.parts.transactions import in_windows, keep, shortly
from benchmarks.report.lines import Line, Value, cpu_of, latency_of, number, rate_of
from benchmarks.turns.sizes import Pace, Size
from benchmarks.turns.turn import Bench, Plan, Turn
from ottla.coordination.groups.consumer.effects import ComputeTarget
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.members import Member
from ottla.coordination.groups.consumer.targets import compute
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.replication.ports.cluster import TopicImage

# While the other broker works, the stable group gets no heartbeats.
_SESSION = {"group.consumer.session.timeout.ms": "600000", "group.consumer.max.session.timeout.ms": "600000"}
CONFIG = {
    **COMMON_CONFIG,
    **_SESSION,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
MEMBERS: Final = (10, 100, 1_000)
_BRIEFLY: Final = (10, 30)
_PARTITIONS_OF_A_MEMBER: Final = 2
_REPEATS: Final = 2
_HALF: Final = 2.0
"""How many times as soon as the reference."""
BEATS: Final = "heartbeats"
_BEATING: Final = 100
_BEATS_AT_LEAST: Final = 3.0
TARGET: Final = "target"
_TARGET_MEMBERS, _TARGET_PARTITIONS = 1_000, 10_000
_MOST_TARGET_S: Final = 1.0
_MOST_TURN_MS: Final = 20.0
COMMITS: Final = {"txn-2": 1, "txn-2-ten": 10}
"""Numbers of producers by load."""
_RECORDS: Final = 10
_AT_LEAST: Final = 2.0


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure on one broker on one core."""
    with running(kind, turn, directory, plan, config=CONFIG) as bench:
        for members in _members(plan.size):
            if plan.includes(_rebalance(members)):
                bench.attempt(_rebalance(members), partial(_leave, bench, members))
        if plan.includes(BEATS):
            bench.attempt(BEATS, partial(_beat, bench))
        stage = Stage(bench)
        for key, producers in COMMITS.items():
            if plan.includes(key):
                bench.attempt(key, partial(_commit, stage, key, producers))
    if kind != REFERENCE_4 and plan.includes(TARGET):
        turn.numbers["target-s"], turn.numbers["target-turn-ms"] = asyncio.run(_time_target())


def _members(size: Size) -> Sequence[int]:
    return _BRIEFLY if size.is_brief else MEMBERS


def _rebalance(members: int) -> str:
    return f"leave-{members}"


# -- groups


def _leave(bench: Bench, members: int) -> None:
    key, partitions = _rebalance(members), _PARTITIONS_OF_A_MEMBER * members

    def work(name: str, times: int) -> list[consumer_members.Rebalance]:
        return consumer_members.rebalances(bench.broker.port, name, key, partitions, members, times)

    bench.on_topic(key, partitions, lambda _: _note_rebalances(bench, key, work(key, _REPEATS)))
    bench.plan.pass_on()


def _note_rebalances(bench: Bench, key: str, found: Sequence[consumer_members.Rebalance]) -> None:
    bench.turn.numbers[key] = statistics.median(each.took_s for each in found)
    bench.turn.numbers[f"{key}-unowned"] = statistics.median(each.unowned_s for each in found)
    bench.say(
        f"{key}: {bench.turn.numbers[key]:.3f} s, partitions without an owner for {bench.turn.numbers[f'{key}-unowned']:.2f} s together"
    )


def _beat(bench: Bench) -> None:
    bench.on_topic(BEATS, _BEATING, lambda _: _beat_on_topic(bench))


def _beat_on_topic(bench: Bench) -> None:
    pace = bench.plan.size.pace
    beats = consumer_members.stable_group(bench.broker.port, BEATS, BEATS, _BEATING, _BEATING)
    bench.warm_up(Load(beats, _BEATING, 1, 0, pace.warm_up_slice_s))
    bench.measure(BEATS, "heartbeats", Load(beats, _BEATING, 1, pace.warm_up_s, pace.duration_s))


def _per_core(turns: Sequence[Turn]) -> float | None:
    cpu_us = cpu_of(BEATS)(turns)
    return 1e6 / cpu_us if cpu_us else None


# -- targets


async def _time_target() -> tuple[float, float]:
    """(s, ms): how long a thread computes a target, and the longest time for which the event loop does not run meanwhile."""
    topic = TopicImage("t", bytes(15) + b"t", {i: UpdateMetadataPartitionState(partition_index=i) for i in range(_TARGET_PARTITIONS)})
    members = {f"member-{i:016}": Member(f"member-{i:016}", topics=("t",)) for i in range(_TARGET_MEMBERS)}
    work = ComputeTarget(2, "uniform", members, {}, {}, {"t": topic}, ConsumerGroup("g").pairs_of)
    before = compute(work)
    gone = dict(list(members.items())[1:])
    work = work._replace(members=gone, target={each: target for each, target in before.changed.items() if each in gone})
    longest_s, took_s = 0.0, 0.0
    with ThreadPoolExecutor(1) as worker:
        began = last = time.monotonic()
        computing = asyncio.get_running_loop().run_in_executor(worker, compute, work)
        while not computing.done():
            await asyncio.sleep(0)
            longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
        took_s = time.monotonic() - began
    return took_s, longest_s * 1000


# -- transactions


def _commit(stage: Stage, key: str, producers: int) -> None:
    bench = stage.bench
    (topic,) = stage.topics([key], producers)
    batch = batch_of_values(values_like_text(_RECORDS, 100), int(time.time() * 1000))
    port = bench.broker.port

    def transaction(at: int) -> Transaction:
        who = transaction_frames.begin(port, f"{key}-{at}")
        return [transaction_frames.produce_2(who, topic.name, at, batch, port), transaction_frames.end_2(who)]

    def make(pace: Pace) -> TransactionLoad:
        return TransactionLoad([transaction(at) for at in range(producers)], pace.warm_up_s, pace.duration_s, PAUSE_S)

    run = partial(run_transactions, pin_cpu=bench.plan.cores.generator, probe=partial(process.cpu_s, bench.broker.pid))
    try:
        bench.warm_up_by(lambda: run(make(shortly(stage.pace))), stage.pace.warm_up_limit_s / 2)
        keep(bench.turn, bench.plan, key, _title(producers), in_windows(bench.plan, make, run))
    finally:
        stage.clear()


def _title(producers: int) -> str:
    return f"transactions of version 2, {_RECORDS} records each, {producers} producer{'s' if producers > 1 else ''}"


# -- lines


def lines(size: Size) -> Sequence[Line]:
    found = []
    for members in _members(size):
        key, title = _rebalance(members), f"a group of {members:,}, one leaves"
        found += [
            Line(key, f"{title}: until all are stable", "s", number(key), 3, True, ratio_at_least=_HALF),
            Line(f"{key}-stalled", f"{title}: records stalled, 1,000/s", "", _stalled(key), 0, True, ratio_at_least=_HALF),
        ]
    found += [
        Line(BEATS, "heartbeats of one core's time", "1/s", _per_core, ratio_at_least=_BEATS_AT_LEAST),
        Line(f"{BEATS}-rate", f"heartbeats, {_BEATING} connections", "1/s", rate_of(BEATS)),
        Line("target-s", f"target of {_TARGET_MEMBERS:,} members, {_TARGET_PARTITIONS:,} partitions", "s", number("target-s"), 2, True,
             at_most=_MOST_TARGET_S),
        Line("target-turn", "longest turn meanwhile", "ms", number("target-turn-ms"), 1, True, at_most=_MOST_TURN_MS),
    ]  # fmt: skip
    for key, producers in COMMITS.items():
        found += [
            Line(key, _title(producers), "txn/s", rate_of(key), ratio_at_least=_AT_LEAST),
            Line(f"{key}-p99", f"{_title(producers)}: commit, p99", "ms", latency_of(key, 99), 2, True, ratio_at_least=_AT_LEAST),
        ]
    return found


def _stalled(key: str) -> Value:
    """Records that wait for an owner of their partition, if each partition gets 1,000 a second."""
    return number(f"{key}-unowned", 1 / 1_000)


_KINDS: Final[Mapping[str, str]] = {kind: label for kind, label in BROKER_LABELS.items() if kind != REFERENCE}
PART = Part(
    key="groups-4",
    title="Groups and transactions of Apache Kafka 4",
    about="One broker on one core. Members of groups have a connection each, and hear of a rebalance by their next heartbeat. "
    f"{_BEATING} members of a stable group send heartbeats that name nothing but the member and its epoch.",
    take_turn=take_turn,
    lines=lines,
    kinds=_KINDS,
    reference=REFERENCE_4,
    choices=(*map(_rebalance, MEMBERS), BEATS, TARGET, *COMMITS),
)
