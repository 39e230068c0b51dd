"""One turn of one broker: started fresh, loaded, measured, stopped, its data removed.

A turn has two halves. Bound to one core, with the generator on another: all loads of workloads.py, memory before and after. On all cores:
start time, and librdkafka as producer and consumer. A load that fails is noted and the turn goes on.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks import frames, process, workloads
from benchmarks.admin import Admin, BrokerRefusedError, Topic
from benchmarks.brokers import Broker
from benchmarks.loadgen import librdkafka
from benchmarks.loadgen.runner import Load, LoadFailedError, Measured, run_load
from benchmarks.workloads import Pace
from protocol.api_keys import ApiKey

LIBRDKAFKA = "librdkafka"
_GROUP_APIS = (ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
_FETCH_PARTITIONS = 4
_LIBRDKAFKA_PARTITIONS = 4
_SETTLE_S = 2.0
_FAILURES = (LoadFailedError, BrokerRefusedError, OSError)
_LOG_LINES = 12
_WARM_UP_SLICE_S = 2.0
_COMPILING = 0.04  # the share of a JIT in the work of a warm broker


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the bound half runs; None where the machine has too few cores to bind anything."""

    broker: int | None
    generator: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How every turn is taken. `only` names the loads to run (`librdkafka` for the second half's), all of them when empty."""

    cores: Cores
    pace: Pace
    say: Callable[[str], None]
    only: frozenset[str] = frozenset()

    def includes(self, key: str) -> bool:
        return not self.only or key in self.only


@dataclass(slots=True)
class Turn:
    """What one turn showed: loads by workload key, single numbers by name, and what failed and why."""

    label: str
    loads: dict[str, Measured] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    consumed_by: str = ""


def take_turn(kind: type[Broker], label: str, directory: Path, plan: Plan) -> Turn:
    """Both halves, one after the other. Raises when the broker does not start or lacks a request version."""
    turn = Turn(label)
    for half in (_bound_half, _free_half):
        try:
            half(kind, turn, directory, plan)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return turn


def _bound_half(kind: type[Broker], turn: Turn, directory: Path, plan: Plan) -> None:
    broker = kind(directory, plan.cores.broker)
    broker.start()
    try:
        turn.numbers["start_s_one_core"] = broker.start_s
        _check_versions(broker)
        time.sleep(_SETTLE_S)  # what a broker does right after its start is not its idle state
        turn.numbers["idle_bytes"] = process.resident_bytes(broker.pid)
        foreign_share = _foreign_share(broker.pid)
        _Loads(broker, turn, plan).run()
        turn.numbers["foreign_share"] = foreign_share()
        turn.numbers["loaded_bytes"] = process.resident_bytes(broker.pid)
        turn.numbers["peak_bytes"] = process.peak_resident_bytes(broker.pid)
    finally:
        broker.stop()


def _free_half(kind: type[Broker], turn: Turn, directory: Path, plan: Plan) -> None:
    broker = kind(directory)
    broker.start()
    try:
        turn.numbers["start_s"] = broker.start_s
        plan.say(f"{turn.label}: answers ApiVersions {broker.start_s:.2f} s after its start")
        if plan.includes(LIBRDKAFKA):
            try:
                _drive_librdkafka(broker, turn, plan)
            except _FAILURES as failure:
                _note_failure(broker, turn, plan, LIBRDKAFKA, failure)
    finally:
        broker.stop()


def _drive_librdkafka(broker: Broker, turn: Turn, plan: Plan) -> None:
    bootstrap, probe = f"127.0.0.1:{broker.port}", partial(process.cpu_s, broker.pid)
    with Admin("127.0.0.1", broker.port) as admin:
        topic = admin.create_topic(LIBRDKAFKA, _LIBRDKAFKA_PARTITIONS)
        turn.consumed_by = "group" if all(api in admin.api_versions() for api in _GROUP_APIS) else "assign"
    produced = librdkafka.produce(bootstrap, topic.name, broker.librdkafka_warm_up_s, plan.pace.duration_s, probe)
    turn.numbers["librdkafka_produce"] = produced.per_second
    plan.say(f"{turn.label}: librdkafka produces {produced.per_second:,.0f} msg/s")
    group = turn.consumed_by == "group"
    consumed = librdkafka.consume(bootstrap, topic.name, produced.in_all, topic.partitions, probe, group=group)
    turn.numbers["librdkafka_consume"] = consumed.per_second
    plan.say(f"{turn.label}: librdkafka consumes ({turn.consumed_by}) {consumed.per_second:,.0f} msg/s")


def _note_failure(broker: Broker, turn: Turn, plan: Plan, key: str, failure: Exception) -> None:
    turn.failures[key] = str(failure)
    plan.say(f"{turn.label}: {key} FAILED: {failure}")
    for line in broker.log_text().splitlines()[-_LOG_LINES:]:
        plan.say(f"    its log: {line}")


class _Loads:
    """The loads of the bound half, each on a topic of its own that is dropped after it."""

    def __init__(self, broker: Broker, turn: Turn, plan: Plan) -> None:
        self._broker = broker
        self._turn = turn
        self._plan = plan

    def run(self) -> None:
        if not any(self._plan.includes(load.key) for load in workloads.LOADS):
            return
        self._on_topic("warm-up", workloads.PRODUCE_CONNECTIONS, lambda topic: self._warm_up(workloads.warm_up(topic, _WARM_UP_SLICE_S)))
        for produce in workloads.PRODUCE:
            if self._plan.includes(produce.key):
                self._on_topic(produce.key, workloads.PRODUCE_CONNECTIONS, partial(self._produce, produce))
        if any(self._plan.includes(fetch.key) for fetch in workloads.FETCH):
            self._on_topic("fetched", _FETCH_PARTITIONS, self._fetch_all)

    def _warm_up(self, load: Load) -> None:
        """Repeat a load until a JIT, if there is one, has nearly nothing left to compile.

        A fixed time will not do: bound to one core, Apache Kafka's compiler competes with what it compiles, and a minute can pass until the
        last hot method is done. So the broker may use every core here, and is bound again before anything is measured.
        """
        pid, limit_s = self._broker.pid, self._plan.pace.warm_up_limit_s
        bound = self._plan.cores.broker
        deadline = time.monotonic() + limit_s
        process.bind(pid, os.sched_getaffinity(0))
        try:
            while True:
                before, compiled_before = process.cpu_s(pid), process.compiler_cpu_s(pid)
                self._load(load)
                used, compiling = process.cpu_s(pid) - before, process.compiler_cpu_s(pid) - compiled_before
                if compiling < used * _COMPILING:
                    return
                if time.monotonic() > deadline:
                    self._plan.say(f"{self._turn.label}: after {limit_s:.0f} s of warm-up {compiling / used:.0%} of its work is the JIT's")
                    return
        finally:
            if bound is not None:
                process.bind(pid, {bound})

    def _produce(self, produce: workloads.Produce, topic: Topic) -> None:
        self._measure(produce.key, produce.title, produce.load(topic, self._plan.pace))

    def _fetch_all(self, topic: Topic) -> None:
        pace = self._plan.pace
        for partition in range(topic.partitions):
            self._load(workloads.prefill(topic, partition, pace))
        self._warm_up(workloads.FETCH[0].load(topic, replace(pace, warm_up_s=0, duration_s=_WARM_UP_SLICE_S)))
        for fetch in workloads.FETCH:
            if self._plan.includes(fetch.key):
                self._measure(fetch.key, fetch.title, fetch.load(topic, pace))

    def _measure(self, key: str, title: str, load: Load) -> None:
        measured = self._load(load)
        self._turn.loads[key] = measured
        p99_ms = measured.latency_ns.percentile(99) / 1e6
        self._plan.say(f"{self._turn.label}: {title}: {measured.per_second:,.0f} req/s, p99 {p99_ms:.2f} ms")

    def _load(self, load: Load) -> Measured:
        probe = partial(process.cpu_s, self._broker.pid)
        return run_load("127.0.0.1", self._broker.port, load, pin_cpu=self._plan.cores.generator, probe=probe)

    def _on_topic(self, key: str, partitions: int, work: Callable[[Topic], None]) -> None:
        try:
            with Admin("127.0.0.1", self._broker.port) as admin:
                topic = admin.create_topic(key, partitions)
            work(topic)
            with Admin("127.0.0.1", self._broker.port) as admin:  # a new one: a long load may have outlasted the idle limit
                admin.delete_topic(key)
        except _FAILURES as failure:
            _note_failure(self._broker, self._turn, self._plan, key, failure)


def _foreign_share(pid: int) -> Callable[[], float]:
    """A function that tells which part of the machine neither the broker nor this process and its children used since now."""

    def foreign_s() -> float:
        return process.machine_busy_s() - process.cpu_s(pid) - process.own_s()

    began, before = time.monotonic(), foreign_s()
    return lambda: max(foreign_s() - before, 0.0) / ((time.monotonic() - began) * (os.cpu_count() or 1))


def _check_versions(broker: Broker) -> None:
    with Admin("127.0.0.1", broker.port) as admin:
        listed = admin.api_versions()
    for api_key, version in frames.VERSIONS.items():
        lowest, highest = listed.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise BrokerRefusedError(f"the generator sends api {api_key} in version {version}, the broker lists {lowest} to {highest}")
