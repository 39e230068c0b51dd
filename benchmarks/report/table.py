"""Shows a result as tables, with rich on the console and as markdown on the page: lines with their targets, and details of loads."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.report.lines import Line, cpu_of, generator_load_of, latency_of, rate_of
from benchmarks.turns.turn import Turn

Sides = Mapping[str, Sequence[Turn]]  # label -> its turns; the first side is the reference

FOREIGN_SHARE = "foreign_share"
TOOK_S = "took_s"
"""The length of a turn, which all sides of it share, seconds."""
MOST_FOREIGN_SHARE = 0.15  # writing dirty pages back is foreign too, though the load caused it


def side_by_side(title: str, labels: Sequence[str]) -> Table:
    """An empty table with a column per side, and one for the ratio of every side but the first."""
    table = Table(title=title, title_justify="left")
    table.add_column("work")
    table.add_column("unit")
    for label in labels:
        table.add_column(label, justify="right")
    for label in labels[1:]:
        table.add_column(f"{label}: times better", justify="right")
    return table


def line_table(title: str, sides: Sides, lines: Sequence[Line]) -> Table:
    """One row per line: a column per side, and, for every side but the first, ratio, target and whether it is reached.

    A line without a number of any side was not requested, unless a turn failed.
    """
    reference, *others = sides
    table = side_by_side(title, list(sides))
    has_failed = any(turn.failures for turns in sides.values() for turn in turns)
    with_targets = any(line.target() for line in lines)
    if with_targets:
        table.add_column("target", justify="right")
        table.add_column("reached")
    for line in lines:
        values = {label: line.value(turns) for label, turns in sides.items()}
        if not has_failed and all(value is None for value in values.values()):
            continue
        base = values[reference] if others else None  # a side alone has nothing to be compared with, but bounds to keep
        cells = [line.title, line.unit, *(_number(value, line.digits) for value in values.values())]
        cells += [_times(line.ratio(values[label], base)) for label in others]
        if with_targets:
            verdicts = [line.reached(values[label], base) for label in others or [reference]]
            cells += [line.target(), " ".join(_verdict(verdict) for verdict in verdicts)]
        table.add_row(*cells)
    return table


def load_table(sides: Sides, loads: Sequence[tuple[str, str]]) -> Table:
    """Latency and processor time of these loads (key, title) for every side."""
    table = Table(title="Every load", title_justify="left")
    for heading in ("work", "broker"):
        table.add_column(heading)
    for heading in ("req/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "broker µs/req", "generator busy"):
        table.add_column(heading, justify="right")
    for key, title in loads:
        for label, turns in sides.items():
            values = [latency_of(key, percent)(turns) for percent in (50, 99, 99.9, 100)]
            busy = generator_load_of(key)(turns)
            cells = [_number(rate_of(key)(turns), 0), *(_number(value, 2) for value in values), _number(cpu_of(key)(turns), 1)]
            table.add_row(title, label, *cells, "" if busy is None else f"{busy:.0%}")
    return table


def notes(sides: Sides) -> list[str]:
    """Remarks that a reader needs in order to judge the numbers."""
    found = []
    for label, turns in sides.items():
        for at, turn in enumerate(turns, 1):
            found += [f"{label}, turn {at}, {key} failed: {why}" for key, why in turn.failures.items()]
        found += [f"{label}: {remark}" for remark in dict.fromkeys(remark for turn in turns for remark in turn.remarks)]
        foreign = max((turn.numbers.get(FOREIGN_SHARE, 0.0) for turn in turns), default=0.0)
        if foreign > MOST_FOREIGN_SHARE:
            found.append(f"{label}: other programs used up to {foreign:.0%} of the machine meanwhile; run again when it is quiet")
    return found


def is_well(sides: Sides, lines: Sequence[Line]) -> bool:
    """Whether nothing failed and no target was missed."""
    reference, *others = sides
    base = sides[reference]
    verdicts = [
        line.reached(line.value(sides[label]), line.value(base) if others else None) for line in lines for label in others or [reference]
    ]
    return False not in verdicts and not any(turn.failures for turns in sides.values() for turn in turns)


def markdown(table: Table) -> str:
    """The same table for a page."""
    columns = table.columns
    rows = zip(*(list(column.cells) for column in columns), strict=True)
    marks = ["---:" if column.justify == "right" else "---" for column in columns]
    lines = [[str(column.header) for column in columns], marks, *([_escaped(str(cell)) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f} ×"


def _verdict(reached: bool | None) -> str:
    if reached is None:
        return ""
    return "yes" if reached else "NO"
