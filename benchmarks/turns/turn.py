"""Defines a turn of a broker: its results and its plan; runs loads on the broker and notes their results.

A turn starts a broker in an empty folder, measures, and stops it; a part (benchmarks/parts) decides what is measured. A load that fails is
noted, and the turn continues.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.brokers import process
from benchmarks.brokers.kinds import Broker
from benchmarks.loadgen.runner import Interval, Load, LoadFailedError, Measured, one_after_another, run_load
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.turns.alternation import Share
from benchmarks.turns.sizes import NORMAL, Size

Course = list[tuple[float, float]]
"""Points over time."""
OnInterval = Callable[[Interval], None]
FAILURES = (LoadFailedError, BrokerRefusedError, OSError)

_LOG_LINES = 12
_DELETION_LIMIT_S = 30.0
_COMPILING = 0.04  # the share of a JIT in the work of a warm broker
_LATER_WARM_UP_S = 0.1
"""The warm-up of the windows of a load after the first one."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of a bound broker and of the generator; None where the machine has too few cores to bind anything."""

    broker: int | None
    generator: int | None


def two_cores() -> Cores:
    """The first and the last core that this program may use."""
    cores = sorted(os.sched_getaffinity(0))
    return Cores(cores[0], cores[-1]) if len(cores) > 1 else Cores(None, None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of every turn. `only` names the loads to run of the part with one broker; all loads if empty.

    `share` lets the other side of a comparison work between two windows; None for a side alone.
    """

    cores: Cores
    say: Callable[[str], None]
    size: Size = NORMAL
    only: frozenset[str] = frozenset()
    share: Share | None = None

    def windows(self) -> Iterator[int]:
        """The number of each window of a load. Between two windows the other side works. Raises AbandonedError."""
        for number in range(self.size.windows):
            yield number
            if self.share:
                self.share.after_window(number)

    def pass_on(self) -> None:
        """Let the other side work, after something that no windows divide. Raises AbandonedError."""
        if self.share:
            self.share.pass_on()

    def includes(self, key: str) -> bool:
        return not self.only or key in self.only


@dataclass(slots=True)
class Turn:
    """The results of one turn: loads by workload key, single numbers by name, courses over time, failures with reasons, and remarks."""

    label: str
    loads: dict[str, Measured] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    courses: dict[str, Course] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


class Bench:
    """Loads the running broker of a turn, whose data is in `directory`, and notes the results."""

    def __init__(self, broker: Broker, directory: Path, turn: Turn, plan: Plan) -> None:
        self.broker = broker
        self._directory = directory
        self.turn = turn
        self.plan = plan

    def say(self, text: str) -> None:
        self.plan.say(f"{self.turn.label}: {text}")

    def attempt(self, key: str, work: Callable[[], None]) -> None:
        """Do `work`. A failure is noted under `key`, with the end of the broker's log on the console."""
        try:
            work()
        except FAILURES as failure:
            self.turn.failures[key] = str(failure) or type(failure).__name__
            self.say(f"{key} FAILED: {failure}")
            for line in self.broker.log_text().splitlines()[-_LOG_LINES:]:
                self.plan.say(f"    its log: {line}")

    def on_topic(self, key: str, partitions: int, work: Callable[[Topic], None]) -> None:
        """Attempt `work` on a new topic, which is deleted afterwards."""

        def work_on_it() -> None:
            with Admin("127.0.0.1", self.broker.port) as admin:
                topic = admin.create_topic(key, partitions)
            work(topic)
            with Admin("127.0.0.1", self.broker.port) as admin:  # a new one: a long load may have outlasted the idle limit
                admin.delete_topic(key)
            self.until_deleted(key)

        self.attempt(key, work_on_it)

    def until_deleted(self, topic: str) -> None:
        """Wait until the files of a deleted topic are gone. Freeing several GB of pages would take processor time from the next load."""
        deadline = time.monotonic() + _DELETION_LIMIT_S
        while _holds_topic(self._directory, topic) and time.monotonic() < deadline:
            time.sleep(0.1)

    def measure(
        self,
        key: str,
        title: str,
        load: Load,
        on_interval: OnInterval = lambda _: None,
        run: Callable[[Load, OnInterval], Measured] | None = None,
    ) -> Measured:
        """Run a load in windows, each by `run`, and keep its result under `key`."""
        length_s, windows = load.duration_s / self.plan.size.windows, []
        for number in self.plan.windows():
            part = replace(load, duration_s=length_s, max_bytes=load.max_bytes // self.plan.size.windows)
            if number:
                part = replace(part, warm_up_s=min(load.warm_up_s, _LATER_WARM_UP_S))
            windows.append((run or self.load)(part, partial(_later, on_interval, number * length_s)))
        measured = one_after_another(windows)
        self.keep(key, title, measured)
        return measured

    def keep(self, key: str, title: str, measured: Measured) -> None:
        """Keep the result of a load under `key`."""
        self.turn.loads[key] = measured
        p99_ms = measured.latency_ns.percentile(99) / 1e6
        self.say(f"{title}: {measured.per_second:,.0f} req/s, p99 {p99_ms:.2f} ms")

    def load(self, load: Load, on_interval: OnInterval = lambda _: None) -> Measured:
        """Run a load without keeping its result."""
        probe = partial(process.cpu_s, self.broker.pid)
        return run_load("127.0.0.1", self.broker.port, load, pin_cpu=self.plan.cores.generator, probe=probe, on_interval=on_interval)

    def settle(self) -> None:
        """Leave the broker alone for a while."""
        time.sleep(self.plan.size.settle_s)

    def note_memory(self, name: str) -> float:
        """Keep the resident memory under `name`. Returns it in bytes."""
        resident = process.resident_bytes(self.broker.pid)
        self.turn.numbers[name] = resident
        return resident

    def warm_up(self, load: Load) -> None:
        """Repeat a load until a JIT, if there is one, has nearly nothing left to compile."""
        self.warm_up_by(partial(self.load, load), self.plan.size.pace.warm_up_limit_s)

    def warm_up_by(self, work: Callable[[], object], limit_s: float) -> None:
        """Repeat `work` until a JIT, if there is one, has nearly nothing left to compile, or until the time limit.

        A fixed time is not enough: bound to one core, Apache Kafka's compiler competes with the code that it compiles, and a minute can
        pass until the last hot method is compiled. So the broker may use every core here, and is bound again before anything is measured.
        """
        pid = self.broker.pid
        bound = os.sched_getaffinity(pid)
        deadline = time.monotonic() + limit_s
        process.bind(pid, os.sched_getaffinity(0))
        try:
            while True:
                before, compiled_before = process.cpu_s(pid), process.compiler_cpu_s(pid)
                work()
                used, compiling = process.cpu_s(pid) - before, process.compiler_cpu_s(pid) - compiled_before
                if compiling < used * _COMPILING:
                    return
                if time.monotonic() > deadline:
                    if limit_s:
                        self.say(f"after {limit_s:.0f} s of warm-up {compiling / max(used, 0.01):.0%} of its work is the JIT's")
                    return
        finally:
            process.bind(pid, bound)

    def segments(self, topic: str, partition: int) -> list[int]:
        """The base offsets of a partition's segments on the disk, ascending."""
        found = [Path(outer, name) for outer, _, names in os.walk(self._directory) for name in names if name.endswith(".log")]
        return sorted(int(path.stem) for path in found if path.parent.name == f"{topic}-{partition}")


def _later(on_interval: OnInterval, by_s: float, interval: Interval) -> None:
    on_interval(replace(interval, at_s=interval.at_s + by_s))


def _holds_topic(directory: Path, topic: str) -> bool:
    return any(name.startswith(f"{topic}-") for _, inner, _ in os.walk(directory) for name in inner)


def check_versions(broker: Broker) -> None:
    """Check that the broker supports the versions that the generator sends. Raises BrokerRefusedError."""
    with Admin("127.0.0.1", broker.port) as admin:
        listed = admin.api_versions()
    for api_key, version in frames.VERSIONS.items():
        lowest, highest = listed.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise BrokerRefusedError(f"the generator sends api {api_key} in version {version}, the broker lists {lowest} to {highest}")


def foreign_share() -> Callable[[], float]:
    """A function that returns the share of the machine used from now on by programs other than this process and its children.

    A child counts once it has been waited for, so call it after the brokers have ended.
    """
    began, before = time.monotonic(), process.machine_busy_s() - process.own_s()

    def share() -> float:
        others = process.machine_busy_s() - process.own_s() - before
        return max(others, 0.0) / ((time.monotonic() - began) * (os.cpu_count() or 1))

    return share
