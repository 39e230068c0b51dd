"""Runs the data pipeline with Apache Kafka and Ottla in turns on one machine: `python -m benchmarks.comparisons.spark_validation`, `make
validate`.

Every turn starts a broker in an empty folder and runs the pipeline as `ottla validate` does, Spark and broker sharing all cores. Prints the
verdicts and a table of medians with their ratios, and leaves them with every report in benchmarks/results/<date and time>-spark/. Exit code
1 when a verdict does not hold, 2 when something is missing.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import process
from benchmarks.brokers.kinds import KINDS, REFERENCE, Broker
from benchmarks.brokers.machine import machine_facts
from benchmarks.brokers.present_memory import free_memory_present
from benchmarks.turns.choices import folder, several
from tests.support.apache_kafka import DidNotStartError, ToolMissingError, process_guard

_RESULTS = Path(__file__).parents[1] / "results"
_WIDTH = 150
_LOOK_S = 0.5
_MB = 1 << 20


class PipelineFailedError(Exception):
    """The pipeline came to no verdict."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn: the pipeline's report, and the broker's costs meanwhile."""

    report: Mapping[str, Any]
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    title: str
    value: Callable[[Measured], float]
    digits: int = 0
    less_is_better: bool = False


def _percentile(name: str) -> Callable[[Measured], float]:
    return lambda measured: float(measured.report["latency_ms"][name])


LINES = (
    Line("written, rows/s", lambda measured: measured.report["rows"] / measured.report["seconds"]["generate"]),
    Line("through, rows/s", lambda measured: measured.report["records"] / measured.report["seconds"]["ingest"]),
    Line("latency p50, ms", _percentile("p50"), less_is_better=True),
    Line("latency p99, ms", _percentile("p99"), less_is_better=True),
    Line("broker CPU, s", lambda measured: measured.cpu_s, digits=2, less_is_better=True),
    Line("broker CPU per million rows, s", lambda measured: measured.cpu_s / measured.report["rows"] * 1e6, digits=2, less_is_better=True),
    Line("broker memory, peak MB", lambda measured: measured.peak_bytes / _MB, less_is_better=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Returns the exit code."""
    asked = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    facts = machine_facts() | {"command": " ".join(["python", "-m", "benchmarks.comparisons.spark_validation", *sys.argv[1:]])}
    results = _RESULTS / time.strftime("%Y-%m-%dT%H%M%S-spark")
    sides: dict[str, list[Measured]] = {KINDS[kind].label: [] for kind in asked.kinds}
    try:
        with free_memory_present(), tempfile.TemporaryDirectory(prefix="validate-", dir=asked.dir) as scratch:
            process_guard().remove_tree(Path(scratch))
            for turn in range(1, asked.repeats + 1):
                for kind in asked.kinds:
                    console.print(f"turn {turn} of {asked.repeats}: {KINDS[kind].label}", style="bold", highlight=False)
                    folder = results / f"{kind}-{turn}"
                    measured = _turn(KINDS[kind](Path(scratch) / "broker"), folder, asked)
                    shutil.rmtree(Path(scratch) / "broker", ignore_errors=True)
                    sides[KINDS[kind].label].append(measured)
    except (ToolMissingError, DidNotStartError, PipelineFailedError) as missing:
        console.print(str(missing), style="red", highlight=False)
        return 2
    table = result_table(sides)
    console.print(table)
    _write(results, table, sides, facts)
    console.print(f"written to {results}", highlight=False)
    return 0 if all(measured.report["holds"] for turns in sides.values() for measured in turns) else 1


def result_table(sides: Mapping[str, Sequence[Measured]]) -> Table:
    """Medians of every side, and the ratios of the other sides to the first."""
    reference, *others = sides
    table = Table(title="Spark through one broker, side by side", title_justify="left")
    table.add_column("what")
    for label in sides:
        table.add_column(label, justify="right")
    for label in others:
        table.add_column(f"{label}: times better", justify="right")
    for line in LINES:
        values = {label: statistics.median(line.value(measured) for measured in turns) for label, turns in sides.items()}
        ratios = [_ratio(line, values[label], values[reference]) for label in others]
        table.add_row(line.title, *(f"{value:,.{line.digits}f}" for value in values.values()), *ratios)
    verdicts = ["holds" if all(one.report["holds"] for one in turns) else "DOES NOT HOLD" for turns in sides.values()]
    table.add_row("verdict", *verdicts, *("" for _ in others))
    return table


def _ratio(line: Line, value: float, reference: float) -> str:
    if not value or not reference:
        return "-"
    return f"{reference / value if line.less_is_better else value / reference:.2f} ×"


def _turn(broker: Broker, folder: Path, asked: argparse.Namespace) -> Measured:
    broker.start()
    try:
        peak = _Peak(broker.pid)
        before = process.cpu_s(broker.pid)
        report = _run_pipeline(broker, folder, asked)
        return Measured(report, process.cpu_s(broker.pid) - before, peak.stop())
    finally:
        broker.stop()


def _run_pipeline(broker: Broker, folder: Path, asked: argparse.Namespace) -> Mapping[str, Any]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "--bootstrap": f"127.0.0.1:{broker.port}",
        "--rows": asked.rows,
        "--record-bytes": asked.record_bytes,
        "--partitions": asked.partitions,
        "--codec": asked.codec,
        "--master": asked.master,
        "--spark-conf": f"spark.driver.memory={asked.memory}",
        "--report": folder,
    }
    command = [sys.executable, "-m", "ottla", "validate", *(str(part) for pair in options.items() for part in pair)]
    done = subprocess.run(command, check=False)
    if not (folder / "report.json").exists():
        raise PipelineFailedError(f"the pipeline came to no verdict against {broker.label} (exit status {done.returncode})")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


class _Peak:
    """Watches the resident memory of a broker and its children."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._bytes = max(self._bytes, process.resident_bytes(self._pid))

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return max(self._bytes, process.resident_bytes(self._pid))


def _write(folder: Path, table: Table, sides: Mapping[str, Sequence[Measured]], facts: Mapping[str, str]) -> None:
    with (folder / "table.txt").open("w", encoding="utf-8") as text:
        text.writelines(f"{name}: {fact}\n" for name, fact in facts.items())
        text.write("\n")
        Console(file=text, width=_WIDTH).print(table)
    raw = {
        label: [{"cpu_s": one.cpu_s, "peak_bytes": one.peak_bytes, "report": one.report} for one in turns] for label, turns in sides.items()
    }
    (folder / "results.json").write_text(json.dumps({"machine": dict(facts), "sides": raw}, indent=1), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons.spark_validation", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--repeats", type=int, default=1, help="turns of every side")
    parser.add_argument("--master", default="local[*]", help="Spark's master")
    parser.add_argument("--memory", default="2g", help="Spark's driver memory")
    parser.add_argument(
        "--kinds",
        type=several("kind of broker", KINDS),
        default=[REFERENCE, "ottla"],
        help="the reference first, comma-separated; of " + ", ".join(KINDS),
    )
    parser.add_argument("--dir", type=folder, help="where the brokers keep their data meanwhile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
