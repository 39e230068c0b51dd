"""One broker of each kind, in turns, on the same core under the same load: `python -m benchmarks.single_broker`, `make bench`.

Prints the tables and leaves them, every raw number and a picture in benchmarks/results/<date and time>/. Exit code 1 when a load failed or
a target was missed and `--strict` was given.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.admin import BrokerRefusedError
from benchmarks.brokers import KINDS, REFERENCE
from benchmarks.lines import LINES
from benchmarks.loadgen.compiler import NoCompilerError, compiled
from benchmarks.machine import machine_facts
from benchmarks.picture import ratio_picture
from benchmarks.table import Sides, result_tables
from benchmarks.turns import LIBRDKAFKA, Cores, Plan, Turn, take_turn
from benchmarks.workloads import LOADS, Pace
from tests.support.apache_kafka import DidNotStartError, ToolMissingError, process_guard

_MIB = 1 << 20
_FULL = Pace(warm_up_limit_s=60, warm_up_s=1.5, duration_s=4.0, max_bytes=3072 * _MIB, prefill_bytes=512 * _MIB)
_QUICK = Pace(warm_up_limit_s=20, warm_up_s=0.5, duration_s=1.0, max_bytes=768 * _MIB, prefill_bytes=128 * _MIB)
_FULL_REPEATS, _QUICK_REPEATS = 3, 1
_WIDTH = 170
_KEYS = (*(load.key for load in LOADS), LIBRDKAFKA)
_RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Returns the exit code."""
    asked = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    pace = _QUICK if asked.quick else _FULL
    if asked.seconds:
        pace = replace(pace, duration_s=asked.seconds)
    repeats = asked.repeats or (_QUICK_REPEATS if asked.quick else _FULL_REPEATS)
    plan = Plan(_cores(), pace, partial(_say, console), frozenset(asked.only))
    facts = machine_facts()
    sides: dict[str, list[Turn]] = {label: [] for label in _labels(asked.kinds)}
    try:
        compiled("loadgen")
        with tempfile.TemporaryDirectory(prefix="benchmark-", dir=asked.dir) as scratch:
            process_guard().remove_tree(Path(scratch))
            for repeat in range(repeats):
                for kind, (label, turns) in zip(asked.kinds, sides.items(), strict=True):
                    console.print(f"turn {repeat + 1} of {repeats}: {label}", style="bold", highlight=False)
                    turns.append(take_turn(KINDS[kind], label, Path(scratch) / "broker", plan))
    except (NoCompilerError, ToolMissingError, DidNotStartError, BrokerRefusedError) as missing:
        console.print(str(missing), style="red", highlight=False)
        return 2
    directory = _write(sides, facts)
    console.print(result_tables(sides))
    console.print(f"written to {directory}", highlight=False)
    return 1 if asked.strict and not _all_well(sides) else 0


def _say(console: Console, text: str) -> None:
    console.print(f"  {text}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.single_broker", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short turn each: shows that all works, too noisy to quote")
    parser.add_argument("--repeats", type=int, help=f"turns of every side (default {_FULL_REPEATS})")
    parser.add_argument("--seconds", type=float, help="length of every measuring window")
    parser.add_argument(
        "--kinds", type=_kinds, default=[REFERENCE, "ottla"], help="the reference first, comma-separated; of " + ", ".join(KINDS)
    )
    parser.add_argument("--only", type=_keys, default=[], help="run only these loads, comma-separated; of " + ", ".join(_KEYS))
    parser.add_argument("--dir", help="where the brokers keep their data meanwhile (default: the system's folder for temporary files)")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a load failed or a target was missed")
    return parser


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such kind of broker: {', '.join(unknown)}")
    return kinds


def _keys(text: str) -> list[str]:
    keys = text.split(",")
    unknown = [key for key in keys if key not in _KEYS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such load: {', '.join(unknown)}")
    return keys


def _labels(kinds: Sequence[str]) -> list[str]:
    """A label per side; a kind that races against itself (which shows the noise of the machine) is numbered."""
    labels: list[str] = []
    for i, kind in enumerate(kinds):
        label = KINDS[kind].label
        labels.append(f"{label} #{kinds[: i + 1].count(kind)}" if kinds.count(kind) > 1 else label)
    return labels


def _cores() -> Cores:
    cores = sorted(os.sched_getaffinity(0))
    return Cores(cores[0], cores[-1]) if len(cores) > 1 else Cores(None, None)


def _all_well(sides: Sides) -> bool:
    reference, *others = sides
    verdicts = [line.reached(line.value(sides[label]), line.value(sides[reference])) for line in LINES for label in others]
    return False not in verdicts and not any(turn.failures for turns in sides.values() for turn in turns)


def _write(sides: Sides, facts: dict[str, str]) -> Path:
    directory = _RESULTS / time.strftime("%Y-%m-%dT%H%M%S")
    directory.mkdir(parents=True)
    with open(directory / "table.txt", "w", encoding="utf-8") as text:
        for name, fact in facts.items():
            text.write(f"{name}: {fact}\n")
        text.write("\n")
        Console(file=text, width=_WIDTH).print(result_tables(sides))
    result = {"machine": facts, "sides": {label: [_raw(turn) for turn in turns] for label, turns in sides.items()}}
    (directory / "results.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    (directory / "ratios.svg").write_text(ratio_picture(sides, LINES), encoding="utf-8")
    return directory


def _raw(turn: Turn) -> dict[str, object]:
    loads = {}
    for key, load in turn.loads.items():
        percentiles = {f"p{percent:g}_ms": load.latency_ns.percentile(percent) / 1e6 for percent in (50, 90, 99, 99.9, 99.99, 100)}
        loads[key] = {
            "requests_per_s": load.per_second,
            "requests": load.responses,
            "window_s": load.window_s,
            "bytes_sent": load.bytes_sent,
            "bytes_received": load.bytes_received,
            "broker_cpu_s": load.broker_cpu_s,
            "generator_cpu_s": load.generator_cpu_s,
            **percentiles,
        }
    return {"loads": loads, "numbers": turn.numbers, "failures": turn.failures, "consumed_by": turn.consumed_by}


if __name__ == "__main__":
    sys.exit(main())
