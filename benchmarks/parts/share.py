"""Measures share groups beside Apache Kafka 4.4: records that members accept, how soon they get new ones, memory of records in flight."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.brokers import process
from benchmarks.brokers.kinds import COMMON_CONFIG, REFERENCE, REFERENCE_4
from benchmarks.loadgen.runner import LoadFailedError, Measured, one_after_another
from benchmarks.loadgen.sharing import Group, Member, accept_all, deliver_new
from benchmarks.loads import frames
from benchmarks.loads.admin import BrokerRefusedError, Topic
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.loads.share_groups import a_share_group
from benchmarks.loads.stage import Stage
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.report.lines import Line, cpu_of, generator_load_of, latency_of, number, rate_of
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Plan, Turn

Item = TypeVar("Item")
CONFIG = {
    **COMMON_CONFIG,
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.record.lock.duration.ms": "60000",
}
"""The locks last as long as allowed: on a busy machine it takes half a minute until all records are held."""
MEMBERS: Final = (1, 10, 100)
RECORDS_PER_BATCH: Final = 100
_VALUE_BYTES: Final = 100
_HELD_VALUE_BYTES: Final = 10
_ALONE_SHARE: Final = 5
"""Of records that are acknowledged alone a window has this part."""
IN_FLIGHT: Final = 2_000
_WIDE: Final = 50
"""Partitions in a request."""
_MOST_MEMORY_MB: Final = 300
DELIVERY: Final = "share-delivery"
MEMORY: Final = "share-memory"
_MIXED: Final = f"{MEMORY}-mixed"
_MEMORY_TITLE: Final = f"memory of {IN_FLIGHT:,} records in flight in each partition"
_DELIVERY_MEMBERS: Final = 10
_RATE: Final = 500.0
_LED_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Shape:
    members: int
    is_each_alone: bool

    @property
    def key(self) -> str:
        return f"share-{'each' if self.is_each_alone else 'batches'}-{self.members}"

    @property
    def title(self) -> str:
        how = "each record acknowledged alone" if self.is_each_alone else "whole batches accepted"
        return f"{self.members} consumer{'s' if self.members > 1 else ''}, {how}"


SHAPES: Final = tuple(_Shape(members, is_each_alone) for is_each_alone in (False, True) for members in MEMBERS)


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure on one broker on one core."""
    with running(kind, turn, directory, plan, config=CONFIG) as bench:
        _Measuring(Stage(bench)).run()


class _Measuring:
    """One turn. Each window has a group of its own, which reads a filled topic from its start."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._bench = stage.bench
        self._numbers = count()
        self._records = self._bench.plan.size.shared_records
        self._probe = partial(process.cpu_s, self._bench.broker.pid)

    def run(self) -> None:
        bench = self._bench
        for shape in SHAPES:
            if bench.plan.includes(shape.key):
                bench.attempt(shape.key, partial(self._accept, shape))
        if bench.plan.includes(DELIVERY):
            bench.attempt(DELIVERY, self._deliver)
        if bench.plan.includes(MEMORY):
            bench.attempt(MEMORY, self._hold)

    def _stock(self) -> Topic:
        """A topic of one partition with the records of a window, and with more than can be in flight: a fetch that finds none waits."""

        def fill() -> Topic:
            topic = self._stage.keep("shared", 1)
            self._stage.fill(topic, [0], _batch(RECORDS_PER_BATCH), (self._records + 2 * IN_FLIGHT) // RECORDS_PER_BATCH)
            return topic

        return self._stage.once("shared", fill)

    def _window(self, topic: Topic, work: Callable[[Group], Measured], *, is_each_alone: bool = False) -> Measured:
        group = Group(self._bench.broker.port, f"{topic.name}-{next(self._numbers)}", topic, is_each_alone)
        with a_share_group(group.port, group.group_id, topic):
            return work(group)

    def _in_windows(self, key: str, window: Callable[[], Measured]) -> Measured:
        plan = self._bench.plan
        self._bench.warm_up_by(window, plan.size.pace.warm_up_limit_s / 2)
        measured = self._bench.turn.loads[key] = one_after_another([window() for _ in plan.windows()])
        return measured

    def _accept(self, shape: _Shape) -> None:
        records = self._records // _ALONE_SHARE if shape.is_each_alone else self._records
        topic, cores = self._stock(), self._bench.plan.cores

        def work(group: Group) -> Measured:
            return accept_all(group, shape.members, records, pin_cpu=cores.generator, probe=self._probe)

        measured = self._in_windows(shape.key, lambda: self._window(topic, work, is_each_alone=shape.is_each_alone))
        cpu_s = measured.broker_cpu_s / measured.answered * 1e6
        self._bench.say(f"{shape.title}: {measured.per_second:,.0f} records/s, {cpu_s:.2f} s of processor time per million")

    def _deliver(self) -> None:
        plan, cores = self._bench.plan, self._bench.plan.cores
        seconds = max(plan.size.pace.duration_s / plan.size.windows, 1.0)

        def window() -> Measured:
            (topic,) = self._stage.topics([f"new-{next(self._numbers)}"], 1)
            produce = frames.produce(topic.name, 0, _batch(1))

            def work(group: Group) -> Measured:
                return deliver_new(group, _DELIVERY_MEMBERS, produce, _RATE, seconds, pin_cpu=cores.generator, probe=self._probe)

            try:
                return self._window(topic, work)
            finally:
                self._stage.clear()

        latencies = self._in_windows(DELIVERY, window).latency_ns
        self._bench.say(
            f"delivery of new records: p50 {latencies.percentile(50) / 1e6:.2f} ms, p99 {latencies.percentile(99) / 1e6:.2f} ms"
        )

    def _hold(self) -> None:
        """A member acquires records of all partitions, and accepts every second one: then each has a state of its own."""
        partitions = self._bench.plan.size.session_partitions
        (topic,) = self._stage.topics(["held"], partitions)
        self._until_led(topic)
        for some in batched(range(partitions), _WIDE):
            self._stage.fill(topic, some, _batch(RECORDS_PER_BATCH, _HELD_VALUE_BYTES), IN_FLIGHT // RECORDS_PER_BATCH)
        group = Group(self._bench.broker.port, "held", topic)
        with a_share_group(group.port, group.group_id, topic):
            before = process.resident_bytes(self._bench.broker.pid)
            with closing(Member(group, range(partitions), max_records=partitions * IN_FLIGHT)) as member:
                held = _acquire_all(member, partitions)
                acquired = process.resident_bytes(self._bench.broker.pid)
                _accept_every_second(member, held)
                after = process.resident_bytes(self._bench.broker.pid)
        numbers = self._bench.turn.numbers
        numbers[MEMORY], numbers[_MIXED] = acquired - before, after - before
        plain, mixed = (f"{numbers[key] / 1e6:,.0f} MB" for key in (MEMORY, _MIXED))
        self._bench.say(f"{_MEMORY_TITLE} of {partitions:,}: {plain}; after every second one was accepted: {mixed}")
        self._stage.clear()

    def _until_led(self, topic: Topic) -> None:
        """Apache Kafka names the leaders of many new partitions before these lead. Raises BrokerRefusedError."""
        deadline = time.monotonic() + _LED_S
        while True:
            try:
                self._stage.ends(topic)
            except BrokerRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return


def _acquire_all(member: Member, partitions: int) -> dict[int, list[tuple[int, int]]]:
    held: dict[int, list[tuple[int, int]]] = {}
    deadline = time.monotonic() + 120
    while sum(last - first + 1 for ranges in held.values() for first, last in ranges) < partitions * IN_FLIGHT:
        if time.monotonic() > deadline:
            raise LoadFailedError("not all records can be acquired")
        member.ask()
        for partition, ranges in member.acquired.items():
            held.setdefault(partition, []).extend(ranges)
        member.acquired = {}
    return held


def _accept_every_second(member: Member, held: dict[int, list[tuple[int, int]]]) -> None:
    for some in batched(held.items(), _WIDE):
        member.acquired = {
            partition: [(offset, offset) for first, last in ranges for offset in range(first | 1, last + 1, 2)]
            for partition, ranges in some
        }
        member.ask(wait_ms=0)
        if member.acquired:
            raise LoadFailedError("the locks have ended before all records were held")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of this size."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def _batch(records: int, value_bytes: int = _VALUE_BYTES) -> bytes:
    return batch_of_values(values_like_text(records, value_bytes), int(time.time() * 1000))


# Lines


def lines(_: Size) -> Sequence[Line]:
    return (
        *(line for shape in SHAPES for line in _shape_lines(shape)),
        *(_delivery_line(percent, ratio) for percent, ratio in ((50, None), (99, 1.0))),
        Line(MEMORY, _MEMORY_TITLE, "MB", number(MEMORY, 1e6), 0, True, at_most=_MOST_MEMORY_MB),
        Line(_MIXED, f"{_MEMORY_TITLE}, every second one accepted", "MB", number(_MIXED, 1e6), 0, True),
    )


def _delivery_line(percent: int, ratio_at_least: float | None) -> Line:
    title = f"from produce to delivery, {_DELIVERY_MEMBERS} consumers: p{percent}"
    return Line(f"{DELIVERY}-p{percent}", title, "ms", latency_of(DELIVERY, percent), 2, True, ratio_at_least=ratio_at_least)


def _shape_lines(shape: _Shape) -> Sequence[Line]:
    return (
        Line(shape.key, shape.title, "records/s", rate_of(shape.key), ratio_at_least=1.5 if shape.is_each_alone else 2),
        Line(f"{shape.key}-cpu", f"{shape.title}: processor time per million", "s", cpu_of(shape.key), 2, True, ratio_at_least=2),
        Line(f"{shape.key}-generator", f"{shape.title}: load of the generator", "", generator_load_of(shape.key), 2, is_compared=False),
    )


PART = Part(
    key="share",
    title="Share groups",
    about="One broker on one core, the members on the other. A window is a new group that reads all records of a partition: batches of "
    f"{RECORDS_PER_BATCH} records of {_VALUE_BYTES} bytes. For the delivery, a producer sends {_RATE:.0f} records a second, each alone.",
    take_turn=take_turn,
    lines=lines,
    kinds={kind: label for kind, label in BROKER_LABELS.items() if kind != REFERENCE},
    reference=REFERENCE_4,
    choices=(*(shape.key for shape in SHAPES), DELIVERY, MEMORY),
)
