"""Runs benchmarks/comparisons/groups.py: consumer groups."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.comparisons import groups
from benchmarks.parts.part import BROKER_LABELS, KILLED, Part
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import FAILURES, Plan, Turn


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """All of it on one broker after the other, on all cores."""
    found = groups.Result()
    try:
        new_broker = partial(groups.a_broker, kind, directory, {**COMMON_CONFIG, **groups.CONFIG, **KILLED})
        groups.take_turn(new_broker, found, plan.size.members, plan.size.offset_records, plan.pass_on)
    except (AssertionError, *FAILURES) as failure:
        turn.failures["groups"] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: groups FAILED: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for name, values in found.numbers.items():
        turn.numbers[name] = values[-1]
        plan.say(f"{turn.label}: groups, {name}: {values[-1]:,.3f}")


def lines(size: Size) -> Sequence[Line]:
    return tuple(
        Line(each.key.replace("_", "-"), each.title, each.unit, number(each.key), each.digits, not each.more_is_better)
        for each in groups.measures(size.members, size.offset_records)
    )


PART = Part(
    key="groups",
    title="Consumer groups",
    about="A broker on all cores, one partition of `__consumer_offsets`; the members are played with frames made beforehand. The initial "
    "delay of 200 ms, which begins anew with every member, is part of a rebalance. Processor time of loading counts from the start on.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
)
