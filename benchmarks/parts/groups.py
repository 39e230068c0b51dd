"""Consumer groups, as benchmarks/groups.py measures them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks import groups
from benchmarks.brokers import COMMON_CONFIG, KINDS
from benchmarks.lines import Line, number
from benchmarks.parts.part import BROKER_LABELS, KILLED, Part
from benchmarks.sizes import Size
from benchmarks.turns import FAILURES, Plan, Turn


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """All of it on one broker, on all cores."""
    found = groups.Result()
    try:
        broker = KINDS[kind](directory, config={**COMMON_CONFIG, **groups.CONFIG, **KILLED})
        groups.take_turn(broker, found, plan.size.members, plan.size.offset_records)
    except (AssertionError, *FAILURES) as failure:
        turn.failures["groups"] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: groups FAILED: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    measured = {"commits": found.commits, "commit_p99_ms": found.commit_p99_ms, "load_s": found.loads}
    measured |= {f"rebalance_{members}_s": took for members, took in found.rebalances.items()}
    for name, values in measured.items():
        if values:
            turn.numbers[name] = values[-1]
            plan.say(f"{turn.label}: groups, {name}: {values[-1]:,.3f}")


def lines(size: Size) -> Sequence[Line]:
    return (
        Line("commits", "offset commits", "1/s", number("commits")),
        Line("commit-p99", "offset commits: p99", "ms", number("commit_p99_ms"), 2, True),
        *(
            Line(f"rebalance-{members}", f"{members:,} members: first join to stable", "s", number(f"rebalance_{members}_s"), 3, True)
            for members in size.members
        ),
        Line("load", f"{size.offset_records:,} offset records: killed, started, served again", "s", number("load_s"), 2, True),
    )


PART = Part(
    key="groups",
    title="Consumer groups",
    about="One broker on all cores, one partition of `__consumer_offsets`; the members are played with frames made beforehand. The initial "
    "delay of 200 ms, which begins anew with every member, is part of a rebalance.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
)
