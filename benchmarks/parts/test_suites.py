"""Runs a test suite that needs a broker: with pytest-ottla, and with an Apache Kafka, started once and for each test."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.brokers.kinds import COMPARED, KINDS
from benchmarks.parts.part import Part
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Plan, Turn

ROOT = Path(__file__).parents[2]
_TESTS = 50
_BRIEF_TESTS = 5
_LIMIT_S = 1800
_PLUGINS = {"apache": "benchmarks.test_suite.apache", "ottla": "benchmarks.test_suite.ottla"}
_MODES = {"once": "a broker for all tests", "each": "a broker for each test"}


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Run the suite twice, and measure starts that only Ottla has."""
    if kind == "ottla":
        try:
            turn.numbers |= _starts(directory)
        except (subprocess.SubprocessError, OSError, ValueError) as failure:
            turn.failures["suite-starts"] = f"{type(failure).__name__}: {failure}"
            plan.say(f"{turn.label}: starts FAILED: {failure}")
    for mode, title in _MODES.items():
        tests = _BRIEF_TESTS if plan.size.is_brief else _TESTS
        try:
            found = _run(kind, directory, tests, is_per_test=mode == "each")
        except (subprocess.SubprocessError, OSError, ValueError) as failure:
            turn.failures[f"suite-{mode}"] = f"{type(failure).__name__}: {failure}"
            plan.say(f"{turn.label}: {title} FAILED: {failure}")
            continue
        plan.pass_on()
        for name, value in found.items():
            turn.numbers[f"{mode}_{name}"] = value
        plan.say(f"{turn.label}: {tests} tests, {title}: {found['seconds']:.1f} s, ready in {found['ready_s']:.2f} s")


def _run(kind: str, directory: Path, tests: int, *, is_per_test: bool) -> dict[str, float]:
    """Seconds and other numbers of one run. Raises CalledProcessError when a test failed."""
    directory.mkdir(parents=True, exist_ok=True)
    result = directory / "result.json"
    environment = {
        **_environment(),
        "SUITE_TESTS": str(tests),
        "SUITE_PER_TEST": str(int(is_per_test)),
        "SUITE_RESULT": str(result),
    }
    suite = str(ROOT / "benchmarks" / "test_suite" / "suite.py")
    arguments = ["-q", "-p", _PLUGINS[kind], "-p", "no:cacheprovider", "-n0", "--timeout=600", f"--basetemp={directory / 'pytest'}", suite]
    began = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            env=environment,
            cwd=ROOT,
            timeout=_LIMIT_S,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - began
        return {"seconds": seconds, **json.loads(result.read_text(encoding="ascii"))}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _starts(directory: Path) -> dict[str, float]:
    """Seconds of a cluster's start and of the help. Raises CalledProcessError."""
    command = [sys.executable, "-m", "benchmarks.test_suite.starts", str(directory)]
    try:
        done = subprocess.run(command, env=_environment(), cwd=ROOT, timeout=_LIMIT_S, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _environment() -> dict[str, str]:
    """Variables of a process that has the benchmarks and the plugin."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'pytest-ottla'}"}


def lines(size: Size) -> Sequence[Line]:
    tests = _BRIEF_TESTS if size.is_brief else _TESTS
    return (
        Line("suite-once", f"{tests} tests, one broker for all", "s", number("once_seconds"), 1, True),
        Line("suite-each", f"{tests} tests, a broker for each", "s", number("each_seconds"), 1, True),
        Line("suite-ready", "a broker is ready", "s", number("once_ready_s"), 2, True, at_most=0.5),
        Line("suite-topic", "a topic of the test", "ms", number("once_topic_ms"), 1, True, at_most=20.0),
        Line("suite-cluster", "three brokers are ready", "s", number("cluster_s"), 2, True, at_most=1.5, is_compared=False),
        Line("suite-help", "the help of the command line", "s", number("help_s"), 2, True, at_most=0.15, is_compared=False),
        Line("suite-memory", "largest memory of the broker", "MB", _memory, 0, True),
    )


def _memory(turns: Sequence[Turn]) -> float | None:
    found = number("once_peak_bytes")(turns)
    return None if found is None else found / 1e6


PART = Part(
    key="test-suites",
    title="Test suites that need a broker",
    about="pytest runs tests that write ten records and read them in a group. Ottla's broker comes from pytest-ottla; Apache Kafka is "
    "started with its ZooKeeper, whose memory is not counted. Nothing is bound to a core.",
    take_turn=take_turn,
    lines=lines,
    kinds={kind: KINDS[kind].label for kind in COMPARED},
)
