"""Defines a part of a run, and starts a broker for its turns, or a comparison in a process of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import clusters
from benchmarks.brokers.kinds import COMMON_CONFIG, KINDS, REFERENCE
from benchmarks.report.lines import Line
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn, check_versions

KILLED = {"zookeeper.session.timeout.ms": "6000"}
"""Settings where a broker is killed: Apache Kafka starts again only when its session has expired, and nothing is measured meanwhile."""
ROOT = Path(__file__).parents[2]
_LIMIT_S = 1800
BROKER_LABELS: Mapping[str, str] = {kind: broker.label for kind, broker in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Curve:
    """Several courses in one chart: `courses` gives, for the turns of a side, the points of each course by name."""

    key: str
    title: str
    across: str
    up: str
    courses: Callable[[Sequence[Turn]], Mapping[str, Sequence[tuple[float, float]]]]
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One part. `take_turn(kind, turn, directory, plan)` fills a turn of one kind; `details` are loads (key, title) to show in full.

    `kinds` are those that it can compare, with the labels of their sides; `reference` is the one that stands first, unless others are
    chosen. `choices` are the loads that `--only` can choose.
    """

    key: str
    title: str
    about: str
    take_turn: Callable[[str, Turn, Path, Plan], None]
    lines: Callable[[Size], Sequence[Line]]
    kinds: Mapping[str, str]
    reference: str = REFERENCE
    details: Callable[[Size], Sequence[tuple[str, str]]] = lambda _: ()
    curves: Sequence[Curve] = ()
    is_repeated: bool = False
    choices: Sequence[str] = ()


def compare_alone(module: str, arguments: Sequence[str], turn: Turn, directory: Path, plan: Plan) -> None:
    """Run a comparison in a process that nothing else has made larger before, and note the numbers that it writes. A failure is noted."""
    directory.mkdir(parents=True, exist_ok=True)
    result = directory / "result.json"
    command = [sys.executable, "-m", f"benchmarks.comparisons.{module}", *arguments, "--json", str(result)]
    try:
        subprocess.run(command, cwd=ROOT, timeout=_LIMIT_S, check=True, stdout=subprocess.DEVNULL)
        turn.numbers |= json.loads(result.read_text(encoding="ascii"))
    except (subprocess.SubprocessError, OSError, ValueError) as failure:
        turn.failures[module] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: {module} FAILED: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def say_lines(lines: Sequence[Line], turn: Turn, plan: Plan) -> None:
    """Print the values that these lines have in a turn."""
    for line in lines:
        value = line.value([turn])
        if value is not None:
            plan.say(f"{turn.label}: {line.title}: {value:,.{line.digits}f} {line.unit}")


@contextmanager
def running(
    kind: str, turn: Turn, directory: Path, plan: Plan, *, is_bound: bool = True, config: Mapping[str, str] = COMMON_CONFIG
) -> Iterator[Bench]:
    """A fresh broker, bound to its core; afterwards it and its data are gone."""
    broker = KINDS[kind](directory, plan.cores.broker if is_bound else None, config)
    broker.start()
    try:
        check_versions(broker)
        yield Bench(broker, directory, turn, plan)
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


def on_three_brokers(kind: str, turn: Turn, directory: Path, plan: Plan, work: Callable[[clusters.Cluster, float], None]) -> None:
    """Do `work` on a fresh cluster of three brokers; its second argument is the length of the first warm-up, in seconds.

    A failure is noted. Afterwards the cluster and its data are gone.
    """
    if kind not in clusters.KINDS:
        turn.remarks.append("no cluster of this kind: three replicas are left out")
        return
    cluster = clusters.KINDS[kind](directory)
    try:
        cluster.start()
        pace = plan.size.pace
        work(cluster, min(cluster.warm_up_s, max(pace.warm_up_limit_s * 2, pace.warm_up_slice_s)))
    except Exception as failure:  # a client library raises what it likes, and the other results are worth keeping
        turn.failures["three brokers"] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: three brokers FAILED: {failure}")
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
