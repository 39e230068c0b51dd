"""The result as tables of rich: the lines against their targets, and the details of every load."""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table

from benchmarks.lines import LINES, Line, cpu_of, generator_load_of, latency_of, rate_of
from benchmarks.turns import Turn
from benchmarks.workloads import LOADS

Sides = Mapping[str, Sequence[Turn]]  # label -> its turns; the first side is the reference

_FOREIGN_SHARE = 0.15  # writing dirty pages back is foreign too, though the load caused it


def result_tables(sides: Sides) -> Group:
    """Everything there is to show of a run."""
    return Group(line_table(sides, LINES), load_table(sides), *_notes(sides))


def line_table(sides: Sides, lines: Sequence[Line]) -> Table:
    """One row per line: a column per side, and for every side but the first its ratio, the target and whether it is reached."""
    reference, *others = sides
    table = Table(title="Side by side, one broker", title_justify="left")
    table.add_column("work")
    table.add_column("unit")
    for label in sides:
        table.add_column(label, justify="right")
    for label in others:
        table.add_column(f"{label}: times better", justify="right")
    table.add_column("target", justify="right")
    table.add_column("reached")
    for line in lines:
        values = {label: line.value(turns) for label, turns in sides.items()}
        base = values[reference] if others else None  # a side alone has nothing to be compared with, but bounds to keep
        cells = [line.title, line.unit, *(_number(value, line.digits) for value in values.values())]
        cells += [_times(line.ratio(values[label], base)) for label in others]
        verdicts = [line.reached(values[label], base) for label in others or [reference]]
        table.add_row(*cells, line.target(), " ".join(_verdict(verdict) for verdict in verdicts))
    return table


def load_table(sides: Sides) -> Table:
    """Latency and processor time of every load and side."""
    table = Table(title="Every load", title_justify="left")
    for heading in ("work", "broker"):
        table.add_column(heading)
    for heading in ("req/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "broker µs/req", "generator busy"):
        table.add_column(heading, justify="right")
    for load in LOADS:
        for label, turns in sides.items():
            values = [latency_of(load.key, percent)(turns) for percent in (50, 99, 99.9, 100)]
            busy = generator_load_of(load.key)(turns)
            cells = [_number(rate_of(load.key)(turns), 0), *(_number(value, 2) for value in values), _number(cpu_of(load.key)(turns), 1)]
            table.add_row(load.title, label, *cells, "" if busy is None else f"{busy:.0%}")
    return table


def _notes(sides: Sides) -> list[str]:
    notes = []
    for label, turns in sides.items():
        notes += [f"{label}, turn {i}, {key} failed: {why}" for i, turn in enumerate(turns, 1) for key, why in turn.failures.items()]
        if any(turn.consumed_by == "assign" for turn in turns):
            notes.append(f"{label}: does not list the group requests; librdkafka consumed by assignment")
        foreign = max((turn.numbers.get("foreign_share", 0.0) for turn in turns), default=0.0)
        if foreign > _FOREIGN_SHARE:
            notes.append(f"{label}: other programs used up to {foreign:.0%} of the machine during its loads; run again when it is quiet")
    return notes


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} ×"


def _verdict(reached: bool | None) -> str:
    if reached is None:
        return ""
    return "yes" if reached else "NO"
