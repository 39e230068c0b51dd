"""Measures the shapes of requests that clients send: many partitions, versions, sessions, mixtures, real clients."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.brokers import clusters
from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.brokers.withheld import Withheld
from benchmarks.comparisons import replication
from benchmarks.loadgen.clients import CLIENTS, Client
from benchmarks.loadgen.runner import Load, Measured, one_after_another
from benchmarks.loads import client_costs
from benchmarks.loads.shapes import FETCH_GROUPS, FIFTY, INTERVAL_S, MIXED, STEADY, TEN, Batches, LoadMaker, Shape, closed_loops, produced
from benchmarks.loads.stage import Stage
from benchmarks.loads.workloads import IN_FLIGHT
from benchmarks.parts.part import BROKER_LABELS, Curve, Part, on_three_brokers, running
from benchmarks.report.lines import Line, Value, latency_of, number, percent_name, rate_of
from benchmarks.turns.sizes import NORMAL, Size
from benchmarks.turns.turn import OnInterval, Plan, Turn

_CONFIG = {**COMMON_CONFIG, "group.initial.rebalance.delay.ms": "0", "offsets.topic.replication.factor": "1"}
_REPLICATED = {
    "produce-10x10-rf3": ("produce, 10 partitions of 10 records, three replicas", TEN),
    "produce-50x2-rf3": ("produce, 50 partitions of 2 records, three replicas", FIFTY),
}
_REPLICATED_CONNECTIONS = 4  # to each leader
_ONE_LATER_SHARE = 6
"""Divisor of the first warm-up's limit for a shape's own warm-up; the first has warmed up nearly everything."""
_STALL_MS = 2.0
_STALLS_SHOWN = 5
_SPREAD = 1.2


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """One broker on one core, then three brokers."""
    if any(plan.includes(key) for key in KEYS if key not in _REPLICATED):
        with running(kind, turn, directory, plan, config=_CONFIG) as bench:
            _one_broker(Stage(bench))
    if any(plan.includes(key) for key in _REPLICATED):
        on_three_brokers(kind, turn, directory, plan, partial(_three_brokers, turn, plan))


def _one_broker(stage: Stage) -> None:
    bench = stage.bench
    plan, pace = bench.plan, bench.plan.size.pace
    if not plan.only:  # else what is chosen warms up for itself, which is sooner done
        bench.attempt("warm-up", partial(_prepared, stage, MIXED, lambda make: _warm_up(stage, make, pace.warm_up_limit_s)))
    for shape in closed_loops(plan.size):
        if plan.includes(shape.key):
            bench.attempt(shape.key, partial(_prepared, stage, shape, partial(_measure, stage, shape)))
    for shape in STEADY:
        if plan.includes(shape.key):
            bench.attempt(shape.key, partial(_prepared, stage, shape, partial(_measure_steady, stage, shape)))
    client_costs.measure_all(stage)


def _prepared(stage: Stage, shape: Shape, work: Callable[[LoadMaker], None]) -> None:
    try:
        work(shape.prepare(stage))
    finally:
        stage.clear()


def _warm_up(stage: Stage, make: LoadMaker, limit_s: float) -> None:
    briefly = replace(stage.pace, warm_up_s=0, duration_s=stage.pace.warm_up_slice_s / 2)
    stage.bench.warm_up_by(lambda: stage.bench.load(make(briefly)), limit_s)


def _measure(stage: Stage, shape: Shape, make: LoadMaker) -> None:
    limit_s = stage.pace.warm_up_limit_s
    _warm_up(stage, make, limit_s if stage.bench.plan.only else limit_s / _ONE_LATER_SHARE)
    stage.bench.measure(shape.key, shape.title, make(stage.pace), run=partial(_window, stage, make))


def _window(stage: Stage, make: LoadMaker, part: Load, on_interval: OnInterval) -> Measured:
    """A window of a load that is made anew: an idempotent producer begins again with a new id."""
    fresh = make(stage.pace)
    return stage.bench.load(replace(fresh, warm_up_s=part.warm_up_s, duration_s=part.duration_s, max_bytes=part.max_bytes), on_interval)


def _measure_steady(stage: Stage, shape: Shape, make: LoadMaker) -> None:
    bench = stage.bench
    _warm_up(stage, make, stage.pace.warm_up_limit_s / _ONE_LATER_SHARE)
    withheld = Withheld(bench.turn.courses, f"{shape.key}-")
    pace = replace(stage.pace, duration_s=bench.plan.size.steady_s)

    def window(load: Load, on_interval: OnInterval) -> Measured:
        withheld.resume()
        return _window(stage, make, load, on_interval)

    measured = bench.measure(shape.key, shape.title, make(pace), withheld.note, window)
    numbers = bench.turn.numbers
    numbers[f"{shape.key}_stolen_share"] = withheld.stolen_s / measured.window_s
    if withheld.undisturbed_ns.count:
        numbers[f"{shape.key}_undisturbed_ms"] = withheld.undisturbed_ns.percentile(99.9) / 1e6
    stalls = withheld.stalls(_STALL_MS)
    numbers[f"{shape.key}_stalls"] = len(stalls)
    if stalls:
        longest = "; ".join(str(stall) for stall in stalls[:_STALLS_SHOWN])
        bench.turn.remarks.append(f"{shape.title}: {len(stalls)} intervals of {INTERVAL_S} s above {_STALL_MS:g} ms: {longest}")


# Three brokers


def _three_brokers(turn: Turn, plan: Plan, cluster: clusters.Cluster, warm_up_s: float) -> None:
    for key, (title, batches) in _REPLICATED.items():
        if plan.includes(key):
            turn.loads[key] = _replicated(cluster, key, batches, warm_up_s, plan)
            plan.say(f"{turn.label}: {title}: {turn.loads[key].per_second:,.0f} req/s")
            warm_up_s /= _ONE_LATER_SHARE / 2


def _replicated(cluster: clusters.Cluster, key: str, batches: Batches, warm_up_s: float, plan: Plan) -> Measured:
    """A request names partitions of one leader; all connections write to it."""
    replication.create(cluster, key, clusters.BROKERS * batches.partitions)
    batch, pace = batches.batch(), plan.size.pace

    def wanted(seconds: float, broker_id: int) -> Load:
        led = range(broker_id, clusters.BROKERS * batches.partitions, clusters.BROKERS)
        sent = produced(key, dict.fromkeys(led, batch))
        max_bytes = replication.WINDOW_BYTES // clusters.BROKERS // plan.size.windows
        return Load([sent], _REPLICATED_CONNECTIONS, IN_FLIGHT, pace.warm_up_s, seconds, max_bytes=max_bytes)

    replication.on_every_leader(cluster, lambda broker_id: replace(wanted(warm_up_s, broker_id), max_bytes=0))
    windows = []
    for _ in plan.windows():
        os.sync()
        windows.append(replication.on_every_leader(cluster, partial(wanted, pace.duration_s / plan.size.windows)))
    return one_after_another(windows)


# Lines


def _spread_of(keys: Sequence[str]) -> Value:
    """The rate of the fastest of these loads divided by that of the slowest."""

    def value(turns: Sequence[Turn]) -> float | None:
        rates = [rate for key in keys if (rate := rate_of(key)(turns)) is not None]
        return max(rates) / min(rates) if len(rates) == len(keys) else None

    return value


def lines(size: Size) -> Sequence[Line]:
    shapes = [(shape.key, shape.title, shape.ratio_at_least) for shape in closed_loops(size)]
    shapes[2:2] = [(key, title, 1.5) for key, (title, _) in _REPLICATED.items()]
    return (
        *(Line(key, title, "req/s", rate_of(key), ratio_at_least=ratio) for key, title, ratio in shapes),
        Line("mixed-p99", "mixed: p99", "ms", latency_of(MIXED.key, 99), 2, True, ratio_at_least=1),
        *(_spread_line(key, keys) for key, keys in FETCH_GROUPS.items()),
        *(line for shape in STEADY for line in _steady_lines(shape)),
        *(_cost_line(client, partitions) for partitions in client_costs.PARTITIONS for client in CLIENTS),
    )


def _spread_line(key: str, keys: Sequence[str]) -> Line:
    size, place = key.split("-")[1], ", at the beginning of a segment" if key.endswith("start") else ""
    title = f"fetch, {size[:-1]} KiB{place}: fastest version over slowest"
    return Line(f"{key}-spread", title, "×", _spread_of(keys), 2, True, at_most=_SPREAD, is_compared=False)


def _steady_lines(shape: Shape) -> Sequence[Line]:
    key, title = shape.key, shape.title
    stalls, stolen = number(f"{key}_stalls"), number(f"{key}_stolen_share", 0.01)
    return (
        *(Line(f"{key}-p{at:g}", f"{title}: {percent_name(at)}", "ms", latency_of(key, at), 2, True) for at in (50, 99)),
        Line(f"{key}-p99.9", f"{title}: p99.9", "ms", latency_of(key, 99.9), 2, True, at_most=2),
        Line(f"{key}-undisturbed", f"{title}: p99.9 while the host withheld nothing", "ms", number(f"{key}_undisturbed_ms"), 2, True),
        Line(f"{key}-longest", f"{title}: longest", "ms", latency_of(key, 100), 2, True),
        Line(f"{key}-stalls", f"{title}: intervals above {_STALL_MS:g} ms", "", stalls, 0, True, is_compared=False),
        Line(f"{key}-stolen", f"{title}: time that the host withheld", "%", stolen, 2, True, is_compared=False),
    )


def _cost_line(client: Client, partitions: int) -> Line:
    key, title = client_costs.key_of(client, partitions), client_costs.title_of(client, partitions)
    return Line(key, f"cost: {title}", "CPU s/M records", number(key), 3, True, ratio_at_least=2)


def _details(size: Size) -> Sequence[tuple[str, str]]:
    replicated = [(key, title) for key, (title, _) in _REPLICATED.items()]
    return [*((shape.key, shape.title) for shape in (*closed_loops(size), *STEADY)), *replicated]


def _courses(turns: Sequence[Turn]) -> Mapping[str, Sequence[tuple[float, float]]]:
    names = [f"{shape.key}-{name}" for shape in STEADY for name in ("longest", "stolen")]
    return {name: turns[-1].courses[name] for name in names if turns and turns[-1].courses.get(name)}


KEYS = (*(shape.key for shape in (*closed_loops(NORMAL), *STEADY)), *client_costs.KEYS, *_REPLICATED)

PART = Part(
    key="shapes",
    title="The shapes of requests",
    about="One broker on one core, the generator or the client on the other; three brokers, with three replicas, on all cores. No shape "
    "should be slower than the reference's. Cost is the broker's processor time, user and system of all its threads, per million records.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    details=_details,
    curves=(Curve("steady-stalls", "longest latency, and time withheld by the host", "seconds", "ms", _courses, is_log=True),),
    choices=KEYS,
)
