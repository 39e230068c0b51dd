"""Runs benchmarks/comparisons/replication.py: three brokers."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.brokers import clusters
from benchmarks.comparisons import replication
from benchmarks.loads.workloads import batch_of_16_kib
from benchmarks.parts.part import Part
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Plan, Turn

_BRIEF_WARM_UP_S, _BRIEF_S = 1.0, 1.0
Measure = Callable[[clusters.Cluster, dict[str, list[float]]], None]


def _briefly(cluster: clusters.Cluster, found: dict[str, list[float]]) -> None:
    """Measure the throughput of one size, without the warm-up that a meaningful figure would need."""
    replication.create(cluster, "throughput", clusters.BROKERS * replication.PARTITIONS_PER_BROKER)
    batch = batch_of_16_kib("none")(int(time.time() * 1000))
    replication.throughput(cluster, "throughput", batch, _BRIEF_WARM_UP_S)
    per_second, cpu_s = replication.throughput(cluster, "throughput", batch, _BRIEF_S)
    found["16k"], found["16k-cpu"] = [per_second], [cpu_s * 1e6]


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Take every measure on a new cluster."""
    measures: Mapping[str, Measure] = {"throughput": _briefly} if plan.size.is_brief else replication.MEASURES
    for name, measure in measures.items():
        cluster = clusters.KINDS[kind](directory)
        found: dict[str, list[float]] = {}
        try:
            cluster.start()
            measure(cluster, found)
        except Exception as failure:  # a client library raises what it likes, and the other measures can still be taken
            turn.failures[name] = f"{type(failure).__name__}: {failure}"
            plan.say(f"{turn.label}: three brokers, {name} FAILED: {failure}")
        finally:
            cluster.stop()
            shutil.rmtree(directory, ignore_errors=True)
        plan.pass_on()
        for key, values in found.items():
            turn.numbers[key] = values[-1]
            plan.say(f"{turn.label}: three brokers, {key}: {values[-1]:,.2f}")


def lines(_: Size) -> Sequence[Line]:
    return [
        Line(each.key, each.title, each.unit, number(each.key), _digits(each.unit), not each.more_is_better, ratio_at_least=each.target)
        for each in replication.LINES
    ]


def _digits(unit: str) -> int:
    return 2 if unit == "s" else 0


PART = Part(
    key="replication",
    title="Three brokers",
    about="Three brokers on all cores, replication factor 3, `min.insync.replicas` 2, a session timeout of 4 s.",
    take_turn=take_turn,
    lines=lines,
    kinds={kind: cluster.label for kind, cluster in clusters.KINDS.items()},
)
