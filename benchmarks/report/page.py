"""Writes the page of a run: README.md with the machine, versions, commands, tables and charts; results.json with every number."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.loadgen.runner import Measured
from benchmarks.parts.part import Part
from benchmarks.report.table import FOREIGN_SHARE, MOST_FOREIGN_SHARE, TOOK_S, Sides, line_table, load_table, markdown, notes
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Turn

_PERCENTS = (50, 90, 99, 99.9, 99.99, 100)


@dataclass(frozen=True, slots=True)
class Run:
    """A run so far: the results of completed parts, its size, and its machine. `missing` names the parts to come."""

    facts: Mapping[str, str]
    size_name: str
    size: Size
    parts: Sequence[tuple[Part, Sides]]
    took_s: float
    missing: Sequence[str] = ()

    @property
    def foreign_share(self) -> float:
        """The largest share of the machine that other programs used during a turn."""
        return max((_foreign_share(sides) for _, sides in self.parts), default=0.0)

    @property
    def warning(self) -> str:
        """The reason why the figures should not be quoted; empty if they may be quoted."""
        if self.missing:
            return f"The run has not come to its end: {', '.join(self.missing)} is missing."
        loud = [f"{part.title} ({share:.0%})" for part, sides in self.parts if (share := _foreign_share(sides)) > MOST_FOREIGN_SHARE]
        if loud:
            return (
                f"Other programs used the machine during these parts: {', '.join(loud)}. "
                "Their figures show that everything works, not how fast it is."
            )
        if self.size.is_brief:
            return "A quick run: its windows are far too short for figures that mean something. It shows that everything works."
        return ""


def _foreign_share(sides: Sides) -> float:
    """The largest share of the machine that other programs used during a turn of a part."""
    return max((turn.numbers.get(FOREIGN_SHARE, 0.0) for of_side in sides.values() for turn in of_side), default=0.0)


def write_page(run: Run, directory: Path) -> None:
    """Write all files of the page into a folder, over those of an earlier moment of the run."""
    directory.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": dict(run.facts),
        "size": run.size_name,
        "took_s": run.took_s,
        "warning": run.warning,
        "parts": {part.key: {label: [_raw(turn) for turn in turns] for label, turns in sides.items()} for part, sides in run.parts},
    }
    (directory / "results.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    text = [_head(run)]
    for part, sides in run.parts:
        text.append(_section(run, part, sides, directory))
    (directory / "README.md").write_text("\n".join(text), encoding="utf-8")


def part_tables(part: Part, sides: Sides, size: Size) -> list[Table]:
    """The lines of the part, and its loads in full."""
    details = part.details(size)
    return [line_table(part.title, sides, part.lines(size)), *([load_table(sides, details)] if details else [])]


def _head(run: Run) -> str:
    facts = "\n".join(f"| {name} | {fact} |" for name, fact in run.facts.items())
    warning = f"**{run.warning}**\n\n" if run.warning else ""
    return (
        f"# Benchmark of {run.facts['date']}\n\n{warning}"
        f"Size `{run.size_name}`, {run.took_s / 60:.0f} minutes. The sides' windows alternated on the same machine. *Times better* "
        "is a rate over the reference's, or the reference's time, memory or cost over the measured one: above 1 is better. What is "
        "measured and how stands in `benchmarks/README.md`; every number of every turn in [results.json](results.json).\n\n"
        f"| machine | |\n| --- | --- |\n{facts}\n"
        f"| other programs | at most {run.foreign_share:.0%} of the machine during a turn |\n"
    )


def _section(run: Run, part: Part, sides: Sides, directory: Path) -> str:
    from benchmarks.report.picture import (  # it takes a second to import, which most users of this module do not need
        curve_picture,
        ratio_picture,
    )

    lines_shown, *details = part_tables(part, sides, run.size)
    command = f"`python -m benchmarks.bench --parts {part.key}`{_length(sides)}. {part.about}"
    text = [f"## {part.title}", "", command, "", markdown(lines_shown)]
    pictures = {f"{part.key}-ratios": ratio_picture(sides, part.lines(run.size))}
    pictures |= {curve.key: curve_picture(sides, curve) for curve in part.curves}
    for name, picture in pictures.items():
        if picture:
            (directory / f"{name}.svg").write_text(picture, encoding="utf-8")
            text += [f"![{name}]({name}.svg)", ""]
    for table in details:
        text += [f"{table.title}:", "", markdown(table)]
    text += [_item(note) for note in notes(sides)]
    return "\n".join([*text, ""])


def _length(sides: Sides) -> str:
    """How long all turns of a part took; nothing for a result that does not have it."""
    took_s = max(sum(turn.numbers.get(TOOK_S, 0.0) for turn in turns) for turns in sides.values())
    return f" took {took_s / 60:.1f} minutes" if took_s else ""


def _item(note: str) -> str:
    """A note of the list; lines behind the first one, quoted from a log, stay as they are."""
    first, *others = note.rstrip().split("\n")
    return "\n".join([f"- {first}", *(["", *(f"      {line}" for line in others), ""] if others else [])])


def _raw(turn: Turn) -> dict[str, object]:
    return {
        "loads": {key: _raw_load(load) for key, load in turn.loads.items()},
        "numbers": turn.numbers,
        "courses": turn.courses,
        "failures": turn.failures,
        "remarks": turn.remarks,
    }


def _raw_load(load: Measured) -> dict[str, float]:
    return {
        "requests_per_s": load.per_second,
        "requests": load.responses,
        "window_s": load.window_s,
        "bytes_sent": load.bytes_sent,
        "bytes_received": load.bytes_received,
        "broker_cpu_s": load.broker_cpu_s,
        "generator_cpu_s": load.generator_cpu_s,
        **{f"p{percent:g}_ms": load.latency_ns.percentile(percent) / 1e6 for percent in _PERCENTS},
    }
