"""Runs benchmarks/comparisons/transaction_state.py: the transaction coordinator at its largest, in a process of its own."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.brokers.kinds import KINDS
from benchmarks.comparisons.transaction_state import CROWD, OPEN_AT_ONCE
from benchmarks.parts.part import Part, compare_alone, say_lines
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Plan, Turn


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """All of it in one process."""
    sizes = ["--ids", str(plan.size.transactional_ids), "--partitions", str(plan.size.transaction_partitions)]
    compare_alone("transaction_state", sizes, turn, directory, plan)
    say_lines(lines(plan.size), turn, plan)


def lines(size: Size) -> Sequence[Line]:
    ids, partitions = f"{size.transactional_ids:,} ids", f"a transaction of {size.transaction_partitions:,} partitions"
    return (
        Line("load", f"load {ids}", "s", number("load_s"), 1, True),
        Line("load-cpu", f"load {ids}: processor time", "s", number("load_cpu_s"), 1, True),
        Line("load-memory", f"load {ids}: memory", "bytes/id", number("load_bytes_per_id"), 0, True),
        Line("load-turn", f"load {ids}: longest turn of the event loop", "ms", number("load_turn_ms"), 1, True),
        Line("crowd", f"{CROWD:,} ids, {OPEN_AT_ONCE:,} transactions open at once", "s", number("crowd_s"), 1, True),
        Line("crowd-turn", "their markers: longest turn", "ms", number("crowd_turn_ms"), 1, True),
        Line("large-add", f"{partitions}: longest turn of AddPartitionsToTxn", "ms", number("large_add_ms"), 1, True),
        Line("large-end", "its EndTxn: longest turn", "ms", number("large_end_ms"), 1, True),
        Line("large-markers", "its markers: longest turn", "ms", number("large_markers_ms"), 1, True),
        Line("topics-add", "the same with a topic for each: longest turn of AddPartitionsToTxn", "ms", number("topics_add_ms"), 1, True),
    )


PART = Part(
    key="transaction-state",
    title="The transaction coordinator at its largest",
    about="Ottla alone, in process: a partition of `__transaction_state` is loaded, many transactions are open at once, and one has many "
    "partitions. The coordinator and its log are real, files are in memory, and the leaders that write markers answer at once. A turn "
    "of less than half a millisecond counts as 0. Nothing is bound to a core.",
    take_turn=take_turn,
    lines=lines,
    kinds={"ottla": KINDS["ottla"].label},
)
