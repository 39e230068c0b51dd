"""Runs Ottla and Apache Kafka part by part, in alternating windows: `python -m benchmarks.bench`, `make bench` and its sizes.

Prints the tables of every part when the part ends. By then benchmarks/results/<date and time>/ has a page with all tables and charts so
far, and every raw number. `--resume` with that folder goes on with an interrupted run. With `--strict` the exit code is 1 when a turn
failed or a target was missed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.brokers.machine import machine_facts
from benchmarks.brokers.present_memory import free_memory_present
from benchmarks.loadgen.compiler import NoCompilerError, compiled
from benchmarks.parts import (
    connections,
    groups,
    groups_4,
    long_run,
    many_partitions,
    old_clients,
    old_readers,
    rates,
    replication,
    security,
    shapes,
    share,
    single,
    test_suites,
    tiered,
    tls,
    transaction_state,
    transactions,
    two_brokers,
)
from benchmarks.parts.part import Part
from benchmarks.report.page import Run, part_tables, write_page
from benchmarks.report.table import FOREIGN_SHARE, TOOK_S, Sides, is_well, notes
from benchmarks.report.unfinished import NotResumableError, Unfinished, keep, kept
from benchmarks.turns.alternation import Alternation, Share
from benchmarks.turns.choices import folder, patterns, several
from benchmarks.turns.sizes import NORMAL, SIZES, Size
from benchmarks.turns.turn import Plan, Turn, foreign_share, two_cores
from tests.support.apache_kafka import ToolMissingError, process_guard

MODULES = (
    single,
    shapes,
    transactions,
    security,
    tls,
    rates,
    many_partitions,
    connections,
    old_readers,
    old_clients,
    two_brokers,
    groups,
    groups_4,
    share,
    tiered,
    replication,
    transaction_state,
    test_suites,
    long_run,
)
PARTS: dict[str, Part] = {module.PART.key: module.PART for module in MODULES}
_CHOICES = tuple(dict.fromkeys(choice for part in PARTS.values() for choice in part.choices))
_KINDS = tuple(dict.fromkeys(kind for part in PARTS.values() for kind in part.kinds))
OURS = "ottla"
_WIDTH = 170
_RESULTS = Path(__file__).parent / "results"
_MISSING = (NoCompilerError, ToolMissingError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Returns the exit code."""
    parser = _parser()
    begun = _begun(parser, parser.parse_args(arguments))
    asked, keys, facts = begun.asked, begun.missing, dict(begun.facts)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    size = _size(asked)
    plan = Plan(two_cores(), partial(_say, console), size, frozenset(asked.only))
    began = time.monotonic() - begun.took_s
    directory = Path(asked.resume) if asked.resume else _RESULTS / time.strftime("%Y-%m-%dT%H%M%S")
    done = dict(begun.done)
    try:
        compiled("loadgen")
        with _memory_present(size, facts, plan), tempfile.TemporaryDirectory(prefix="benchmark-", dir=asked.dir) as scratch:
            process_guard().remove_tree(Path(scratch))
            for at, key in enumerate(keys, 1):
                done[key] = _take_turns(PARTS[key], asked.kinds, plan, Path(scratch), console)
                for table in part_tables(PARTS[key], done[key], size):
                    console.print(table)
                for note in notes(done[key]):
                    console.print(note, highlight=False)
                run = Run(facts, asked.size, size, [(PARTS[of], sides) for of, sides in done.items()], time.monotonic() - began, keys[at:])
                write_page(run, directory)
                keep(Unfinished(asked, facts, done, run.missing, run.took_s), directory)
    except _MISSING as missing:
        console.print(str(missing), style="red", highlight=False)
        return 2
    if run.warning:
        console.print(run.warning, style="yellow", highlight=False)
    console.print(f"{run.took_s / 60:.1f} minutes; written to {directory / 'README.md'}", highlight=False, soft_wrap=True)
    return 1 if asked.strict and not all(is_well(sides, part.lines(size)) for part, sides in run.parts) else 0


def _begun(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> Unfinished:
    """A new run, or the one to go on with. Its arguments then are those it was begun with. Exits when neither can be measured."""
    facts = machine_facts()
    if not asked.resume:
        keys = measurable(asked.parts, asked.kinds)
        if not keys:
            parser.error(f"no part of {', '.join(asked.parts)} measures {' or '.join(dict.fromkeys(asked.kinds))}")
        return Unfinished(asked, facts, {}, keys, 0.0)
    try:
        run = kept(Path(asked.resume), facts)
    except NotResumableError as error:
        parser.error(str(error))
    run.asked.resume = asked.resume
    earlier = [run.facts["resumed"]] if "resumed" in run.facts else []
    return replace(run, facts={**run.facts, "resumed": ", ".join([*earlier, facts["date"]])})


@contextmanager
def _memory_present(size: Size, facts: dict[str, str], plan: Plan) -> Iterator[None]:
    if size.is_brief:
        yield
        return
    plan.say("where the host takes free memory away: making it present")
    with free_memory_present() as length:
        facts["free memory made present"] = f"{length / (1 << 30):.1f} GiB" if length else "none: the host takes none away"
        yield


def _take_turns(part: Part, kinds: Sequence[str], plan: Plan, scratch: Path, console: Console) -> Sides:
    """All turns of a part. The sides run beside one another and work in turns, so that changes of the machine affect all alike."""
    chosen = [kind for kind in kinds or (part.reference, OURS) if kind in part.kinds]
    sides: dict[str, list[Turn]] = {label: [] for label in labels([part.kinds[kind] for kind in chosen])}
    repeats = plan.size.repeats if part.is_repeated else 1
    for repeat in range(repeats):
        console.print(f"{part.title}, turn {repeat + 1} of {repeats}: {', '.join(sides)}", style="bold", highlight=False)
        os.sync()  # what the turn before left to the disk (deleted files, with `discard`) would be done in this one
        turns, foreign, began = [Turn(label) for label in sides], foreign_share(), time.monotonic()
        at_once = zip(chosen, turns, strict=True)
        Alternation().run([partial(_take_turn, part, kind, turn, scratch / str(at), plan) for at, (kind, turn) in enumerate(at_once)])
        for turn in turns:
            turn.numbers |= {FOREIGN_SHARE: foreign(), TOOK_S: time.monotonic() - began}
            sides[turn.label].append(turn)
    return sides


def _take_turn(part: Part, kind: str, turn: Turn, directory: Path, plan: Plan, share: Share) -> None:
    try:
        part.take_turn(kind, turn, directory / "broker", replace(plan, share=share))
    except _MISSING:
        raise
    except Exception as failure:  # whatever it is: the other parts took long, and their results must not be lost
        turn.failures["turn"] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: the turn FAILED: {failure}")


def _say(console: Console, text: str) -> None:
    console.print(f"  {text}", highlight=False, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__.partition("\n")[0])
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--size", choices=SIZES, default="normal", help="how large everything is (default: normal)")
    choice.add_argument("--quick", dest="size", action="store_const", const="quick", help="shows that all works, too noisy to quote")
    choice.add_argument("--long", dest="size", action="store_const", const="long", help="more turns, longer windows")
    parser.add_argument("--parts", type=several("part", PARTS), default=list(PARTS), help=f"comma-separated; of {', '.join(PARTS)}")
    parser.add_argument(
        "--kinds",
        type=several("kind of broker", _KINDS),
        default=[],
        help=f"the reference first, comma-separated; of {', '.join(_KINDS)} (default: the reference of each part, then ottla)",
    )
    parser.add_argument(
        "--only",
        type=patterns("load", _CHOICES),
        default=[],
        help=f"loads of `single`, `shapes`, `transactions`, `share`, `tiered`, comma-separated, with wildcards; of {', '.join(_CHOICES)}",
    )
    parser.add_argument("--repeats", type=int, help="turns of every side in `single` and `old-clients`")
    parser.add_argument("--seconds", type=float, help="length of every measuring window")
    parser.add_argument("--duration", type=float, help=f"seconds of the long run (normal: {NORMAL.long_s:.0f})")
    parser.add_argument(
        "--dir", type=folder, help="where the brokers keep their data meanwhile (default: the system's folder for temporary files)"
    )
    parser.add_argument(
        "--resume", type=folder, metavar="DIR", help="goes on with the interrupted run of that folder, with the arguments that it had"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 when something failed or a target was missed")
    return parser


def _size(asked: argparse.Namespace) -> Size:
    size = SIZES[asked.size]
    if asked.seconds:
        size = replace(size, pace=replace(size.pace, duration_s=asked.seconds))
    return replace(size, repeats=asked.repeats or size.repeats, long_s=asked.duration or size.long_s)


def measurable(parts: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Those of the parts that measure one of the kinds. All do if none is named."""
    return [key for key in parts if not kinds or not PARTS[key].kinds.keys().isdisjoint(kinds)]


def labels(of_kinds: Sequence[str]) -> list[str]:
    """A label per side; a kind that races against itself (which shows the noise of the machine) is numbered."""
    return [f"{label} #{of_kinds[: at + 1].count(label)}" if of_kinds.count(label) > 1 else label for at, label in enumerate(of_kinds)]


if __name__ == "__main__":
    sys.exit(main())
