"""Measures transactions: how many a second, how long a commit takes, on one broker and on three, and their cost for other clients."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.brokers import clusters, process
from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.comparisons import replication
from benchmarks.loadgen.prepared import Prepared
from benchmarks.loadgen.runner import Load, one_after_another, run_load
from benchmarks.loadgen.transactional import MeasuredTransactions, TransactionLoad, run_transactions
from benchmarks.loads import frames, others_of_transactions
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.stage import Stage
from benchmarks.loads.transactions import AT_LEAST, ROUND_TRIP, LoadMaker, TransactionShape, shapes
from benchmarks.parts.part import BROKER_LABELS, Part, on_three_brokers, running
from benchmarks.report.lines import Line, latency_of, number, rate_of
from benchmarks.turns.sizes import Pace, Size
from benchmarks.turns.turn import Plan, Turn

CONFIG = {
    **COMMON_CONFIG,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
THREE = "-rf3"
_THREE_TITLE = ", three replicas"
_ONE_LATER_SHARE = 4
"""The limit of a load's warm-up is this part of the limit of the first, which has warmed up nearly all."""
_WINDOW_WARM_UP_S = 0.1
_MOST_COST = 1.1
"""How many times as fast others may be without a transaction."""


class OneBroker:
    """Implements `benchmarks.loads.transactions.Site`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def port(self) -> int:
        return self._stage.bench.broker.port

    def topic(self, name: str, partitions: int) -> Topic:
        return self._stage.topics([name], partitions)[0]

    def leader_ports(self, topic: Topic) -> Mapping[int, int]:
        return dict.fromkeys(range(topic.partitions), self.port)

    def fill(self, topic: Topic, batch: bytes, times: int) -> None:
        self._stage.fill(topic, [0], batch, times)


class ThreeBrokers:
    """Implements `benchmarks.loads.transactions.Site`."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster

    @property
    def port(self) -> int:
        return self._cluster.port(0)

    def topic(self, name: str, partitions: int) -> Topic:
        replication.create(self._cluster, name, partitions)
        with Admin("127.0.0.1", self.port) as admin:
            return admin.described(name)

    def leader_ports(self, topic: Topic) -> Mapping[int, int]:
        with Admin("127.0.0.1", self.port) as admin:
            return {partition: self._cluster.port(leader) for partition, leader in admin.leaders(topic.name).items()}

    def fill(self, topic: Topic, batch: bytes, times: int) -> None:
        frame = Prepared(frames.produce(topic.name, 0, batch), frames.produce_error_offsets(topic.name))
        load = Load([frame], connections=1, in_flight=1, warm_up_s=0, duration_s=replication.PATIENCE_S, total=times)
        run_load("127.0.0.1", self.leader_ports(topic)[0], load)


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """One broker on one core, then three brokers."""
    if any(plan.includes(key) for key in ONE_BROKER_KEYS):
        with running(kind, turn, directory, plan, config=CONFIG) as bench:
            _one_broker(Stage(bench))
    if any(plan.includes(shape.key + THREE) for shape in shapes()):
        on_three_brokers(kind, turn, directory, plan, partial(_three_brokers, turn, plan))


def _one_broker(stage: Stage) -> None:
    bench = stage.bench
    limit_s = bench.plan.size.pace.warm_up_limit_s
    for shape in (*shapes(), ROUND_TRIP):
        if bench.plan.includes(shape.key):
            bench.attempt(shape.key, partial(_measure, stage, shape, limit_s))
            limit_s = bench.plan.size.pace.warm_up_limit_s / _ONE_LATER_SHARE
    others_of_transactions.measure_all(stage)


def _measure(stage: Stage, shape: TransactionShape, warm_up_limit_s: float) -> None:
    bench = stage.bench
    try:
        make = shape.prepare(OneBroker(stage))
        probe = partial(process.cpu_s, bench.broker.pid)
        run = partial(run_transactions, pin_cpu=bench.plan.cores.generator, probe=probe)
        bench.warm_up_by(lambda: run(make(shortly(stage.pace))), warm_up_limit_s)
        keep(bench.turn, bench.plan, shape.key, shape.title, in_windows(bench.plan, make, run))
    finally:
        stage.clear()


def shortly(pace: Pace) -> Pace:
    return replace(pace, warm_up_s=0, duration_s=pace.warm_up_slice_s)


def in_windows(plan: Plan, make: LoadMaker, run: Callable[[TransactionLoad], MeasuredTransactions]) -> MeasuredTransactions:
    pace = plan.size.pace
    window = replace(pace, warm_up_s=min(pace.warm_up_s, _WINDOW_WARM_UP_S), duration_s=pace.duration_s / plan.size.windows)
    found = [run(make(window)) for _ in plan.windows()]
    return MeasuredTransactions(one_after_another([each.window for each in found]), statistics.fmean(each.refused for each in found))


def keep(turn: Turn, plan: Plan, key: str, title: str, measured: MeasuredTransactions) -> None:
    turn.loads[key] = window = measured.window
    turn.numbers[f"{key}-refused"] = measured.refused
    p50_ms, p99_ms = (window.latency_ns.percentile(at) / 1e6 for at in (50, 99))
    plan.say(f"{turn.label}: {title}: {window.per_second:,.0f} txn/s, commit p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")


# Three brokers


def _three_brokers(turn: Turn, plan: Plan, cluster: clusters.Cluster, warm_up_s: float) -> None:
    for shape in shapes():
        key = shape.key + THREE
        if plan.includes(key):
            keep(turn, plan, key, shape.title + _THREE_TITLE, _replicated(cluster, shape.prepare, warm_up_s, plan))
            warm_up_s = min(cluster.warm_up_s / _ONE_LATER_SHARE / 2, warm_up_s)


def _replicated(
    cluster: clusters.Cluster, prepare: Callable[[ThreeBrokers], LoadMaker], warm_up_s: float, plan: Plan
) -> MeasuredTransactions:
    make = prepare(ThreeBrokers(cluster))

    def cpu_s() -> float:
        return sum(process.cpu_s(cluster.pid(broker_id)) for broker_id in range(clusters.BROKERS))

    run_transactions(make(replace(plan.size.pace, warm_up_s=0, duration_s=warm_up_s)))
    return in_windows(plan, make, partial(run_transactions, probe=cpu_s))


# Lines


def lines(_: Size) -> Sequence[Line]:
    one = [(shape.key, shape.title) for shape in shapes()]
    three = [(key + THREE, title + _THREE_TITLE) for key, title in one]
    return (
        *(line for key, title in (*one, *three) for line in _load_lines(key, title)),
        *(_latency_line(ROUND_TRIP.key, ROUND_TRIP.title, percentile) for percentile in (50, 99)),
        *(Line(key, title, "req/s", rate_of(key)) for key, title in _OTHERS.items()),
        *(_cost_line(key) for key in ("others-open", "others-held", "read-committed")),
    )


def _load_lines(key: str, title: str) -> Sequence[Line]:
    return (
        Line(key, title, "txn/s", rate_of(key), ratio_at_least=AT_LEAST),
        Line(f"{key}-p50", f"{title}: commit, p50", "ms", latency_of(key, 50), 2, True),
        Line(f"{key}-p99", f"{title}: commit, p99", "ms", latency_of(key, 99), 2, True, ratio_at_least=AT_LEAST),
        Line(f"{key}-refused", f"{title}: refusals per transaction", "", number(f"{key}-refused"), 2, True, is_compared=False),
    )


def _latency_line(key: str, title: str, percentile: int) -> Line:
    return Line(f"{key}-p{percentile}", f"{title}: p{percentile}", "ms", latency_of(key, percentile), 2, True)


def _cost_line(key: str) -> Line:
    return Line(f"{key}-cost", f"{_OTHERS[key]}: cost", "×", number(f"{key}-cost"), 2, True, at_most=_MOST_COST, is_compared=False)


_OTHERS = {**others_of_transactions.PRODUCE, **others_of_transactions.FETCH}
ONE_BROKER_KEYS = (*(shape.key for shape in shapes()), ROUND_TRIP.key, *_OTHERS)
KEYS = (*ONE_BROKER_KEYS, *(shape.key + THREE for shape in shapes()))


def _details(_: Size) -> Sequence[tuple[str, str]]:
    one = [(shape.key, shape.title) for shape in shapes()]
    return [*one, (ROUND_TRIP.key, ROUND_TRIP.title), *((key + THREE, title + _THREE_TITLE) for key, title in one), *_OTHERS.items()]


PART = Part(
    key="transactions",
    title="Transactions",
    about="One broker on one core, the generator on the other; three brokers, with three replicas, on all cores. A commit is timed from "
    "EndTxn to its answer. Refused with CONCURRENT_TRANSACTIONS, a producer asks again after 1 ms. Cost is how many times as fast others "
    "are without it.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    details=_details,
    choices=KEYS,
)
