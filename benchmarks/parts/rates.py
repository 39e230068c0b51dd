"""Measures latency under load: the same requests at several fixed rates, from low to more than the slower broker can serve."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.loads import workloads
from benchmarks.loads.admin import Topic
from benchmarks.loads.workloads import Fetch, Produce
from benchmarks.parts.part import BROKER_LABELS, Curve, Part, running
from benchmarks.parts.single import prepare_fetches
from benchmarks.report.lines import Line, latency_of, percent_name
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn

_FETCH_PARTITIONS = 4
_OVERLOADED_MS = 1000
_PERCENTS = (50, 99, 99.9)


def loads(size: Size) -> Sequence[Produce | Fetch]:
    """Every rate of every shape, ascending within a shape."""
    batch = workloads.batch_of_16_kib("none")
    return (
        *(Produce(f"produce-at-{rate}", f"produce 16 KiB at {rate:,} req/s", batch, rate) for rate in size.produce_rates),
        *(Fetch(f"fetch-at-{rate}", f"fetch 64 KiB at {rate:,} req/s", 64 * 1024, rate) for rate in size.fetch_rates),
    )


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure all rates, each on its own topic."""
    pace = plan.size.pace
    with running(kind, turn, directory, plan) as bench:
        bench.on_topic(
            "warm-up", workloads.PRODUCE_CONNECTIONS, lambda topic: bench.warm_up(workloads.warm_up(topic, pace.warm_up_slice_s))
        )
        for load in loads(plan.size):
            if isinstance(load, Produce) and not _is_overloaded(bench, "produce"):
                bench.on_topic(load.key, workloads.PRODUCE_CONNECTIONS, partial(_measure, bench, load))
        bench.on_topic("fetched", _FETCH_PARTITIONS, partial(_fetch_all, bench))


def _measure(bench: Bench, load: Produce | Fetch, topic: Topic) -> None:
    bench.measure(load.key, load.title, load.load(topic, replace(bench.plan.size.pace, max_bytes=0)))


def _fetch_all(bench: Bench, topic: Topic) -> None:
    prepare_fetches(bench, topic)
    for load in loads(bench.plan.size):
        if isinstance(load, Fetch) and not _is_overloaded(bench, "fetch"):
            _measure(bench, load, topic)


def _is_overloaded(bench: Bench, shape: str) -> bool:
    """Whether a lower rate was already too high; a higher one would only take time."""
    measured = [load for key, load in bench.turn.loads.items() if key.startswith(shape)]
    failed = any(key.startswith(shape) for key in bench.turn.failures)
    return failed or any(load.latency_ns.percentile(50) / 1e6 > _OVERLOADED_MS for load in measured)


def lines(size: Size) -> Sequence[Line]:
    return [
        Line(f"{load.key}-p{percent:g}", f"{load.title}: {percent_name(percent)}", "ms", latency_of(load.key, percent), 2, True)
        for load in loads(size)
        for percent in _PERCENTS
    ]


def _courses(shape: str, turns: Sequence[Turn]) -> Mapping[str, Sequence[tuple[float, float]]]:
    keys = sorted({key for turn in turns for key in turn.loads if key.startswith(shape)}, key=_rate)
    return {
        f"p{percent:g}": [(_rate(key), found) for key in keys if (found := latency_of(key, percent)(turns)) is not None]
        for percent in _PERCENTS
    }


def _rate(key: str) -> float:
    return float(key.rpartition("-")[2])


PART = Part(
    key="rates",
    title="Latency under load",
    about="An open loop: requests leave at the named rate whatever the answers do, and latency runs from the moment a request was meant to "
    "be sent. A broker whose median at a rate is above a second is not asked for more.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    curves=(
        Curve("produce-latency", "produce 16 KiB", "requests per second", "ms", partial(_courses, "produce"), is_log=True),
        Curve("fetch-latency", "fetch 64 KiB", "requests per second", "ms", partial(_courses, "fetch"), is_log=True),
    ),
)
