"""Measures tiered storage: reads of old data in a directory and in S3, copying, other clients beside that, memory, new replicas, metadata.

Apache Kafka 3.9.1 has a store for a directory only, that of its own tests; its stores for S3 are products of others.
"""

import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.brokers import clusters
from benchmarks.brokers.kinds import KINDS, OttlaBroker
from benchmarks.brokers.remote_stores import DIRECTORY, LATE_S3, S3, TITLES, RemoteStore, a_remote_store
from benchmarks.comparisons import new_replica
from benchmarks.loads import beside_old_data, old_data
from benchmarks.loads.old_data import OldData
from benchmarks.loads.stage import Stage
from benchmarks.loads.workloads import batch_of_16_kib
from benchmarks.parts.part import BROKER_LABELS, Part, compare_alone, running, say_lines
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Plan, Turn
from tests.support.versitygw import NoVersitygwError, ensure_versitygw

STORES: Final = (DIRECTORY, S3, LATE_S3)
BESIDE: Final = "tiered-beside"
BESIDE_STORES: Final = (DIRECTORY, LATE_S3)
REPLICA: Final = "tiered-replica"
METADATA: Final = "tiered-metadata"
READERS: Final = 10
_CHUNK_BYTES: Final = 4 << 20
_COPIED_PER_S: Final = 100_000_000
_BESIDE_CONFIG: Final = {
    "remote.log.manager.copy.max.bytes.per.second": str(_COPIED_PER_S),
    "ottla.remote.chunk.cache.bytes": str(64 << 20),
}
"""Beside others, copying takes as long as they are measured, and old data is not found in the cache when it is read again."""
_CATCH_UP: Final[Mapping[str, tuple[float | None, float | None]]] = {DIRECTORY: (None, None), S3: (250, 400), LATE_S3: (150, 400)}
"""Least MB/s of a consumer that reads old data the first and the second time."""
_MOST_MEMORY_MB: Final = 105
"""100 MiB."""


def key_of(store: str) -> str:
    """The load of a store."""
    return f"tiered-{store}"


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure all stores that this kind of broker has."""
    stores = _stores_of(kind, turn)
    for store in stores:
        if plan.includes(key_of(store)):
            with _on_store(kind, turn, directory, plan, store) as (stage, opened):
                stage.bench.attempt(key_of(store), _Reading(stage, opened).run)
    for store in stores:
        if store in BESIDE_STORES and plan.includes(BESIDE):
            with _on_store(kind, turn, directory, plan, store, _BESIDE_CONFIG) as (stage, _):
                stage.bench.attempt(f"{BESIDE}-{store}", partial(_work_beside, stage, store))
    if plan.includes(REPLICA) and kind in clusters.KINDS:
        _add_replicas(kind, turn, directory, plan)
    if plan.includes(METADATA) and issubclass(KINDS[kind], OttlaBroker):
        compare_alone("remote_metadata", ["--records", str(plan.size.metadata_records)], turn, directory, plan)
        say_lines(_metadata_lines(plan.size), turn, plan)


def _stores_of(kind: str, turn: Turn) -> Sequence[str]:
    if not issubclass(KINDS[kind], OttlaBroker):
        return (DIRECTORY,)
    try:
        ensure_versitygw()
    except NoVersitygwError as missing:
        turn.remarks.append(f"S3 is left out: {missing}")
        return (DIRECTORY,)
    return STORES


@contextmanager
def _on_store(
    kind: str, turn: Turn, directory: Path, plan: Plan, key: str, more: Mapping[str, str] | None = None
) -> Iterator[tuple[Stage, RemoteStore]]:
    """A broker on all cores with a new store, which goes with it."""
    folder = directory.with_name("store")
    try:
        with (
            a_remote_store(key, folder) as store,
            running(kind, turn, directory, plan, is_bound=False, config={**store.config, **(more or {})}) as bench,
        ):
            yield Stage(bench), store
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Reading:
    """The loads of one store. Each window has a topic of its own, whose old data no consumer has read."""

    def __init__(self, stage: Stage, store: RemoteStore) -> None:
        self._stage = stage
        self._bench = stage.bench
        self._store = store
        self._port = stage.bench.broker.port
        self._topics = count()
        self._found: dict[str, list[float]] = {}

    def run(self) -> None:
        self._window()  # a JIT compiles meanwhile, and nothing of it is kept
        self._found.clear()
        for _ in self._bench.plan.windows():
            self._window()
        for name, values in self._found.items():
            self._note(name, statistics.median(values))
        self._jump_about()
        self._bench.plan.pass_on()
        self._read_at_once()
        self._bench.plan.pass_on()

    def _window(self) -> None:
        data, copying = self._old_data()
        gets = self._gets()
        first = old_data.catch_up(self._port, data)
        gets = self._gets() - gets
        second = old_data.catch_up(self._port, data)
        self._stage.clear()
        found = {
            "copied": data.size / copying.seconds / 1e6,
            "copied-cpu": copying.cpu_s / data.size * 1e9,
            "first-record": first.first_s * 1e3,
            "first": first.mb_per_s,
            "second": second.mb_per_s,
            "first-width": first.width,
            "second-width": second.width,
            "gets": gets,
        }
        for name, value in found.items():
            self._found.setdefault(name, []).append(value)
        self._bench.say(f"{TITLES[self._store.key]}: {', '.join(f'{name} {value:,.1f}' for name, value in found.items())}")

    def _jump_about(self) -> None:
        data, _ = self._old_data()
        places = old_data.jumps(data, _CHUNK_BYTES, seed=7)
        for name in ("cold", "warm"):
            taken = sorted(seconds * 1e3 for seconds in old_data.jump_about(self._port, data, places))
            self._note(f"{name}-p50", statistics.median(taken))
            self._note(f"{name}-p95", taken[int(len(taken) * 0.95)])
        self._stage.clear()

    def _read_at_once(self) -> None:
        data, _ = self._old_data()
        gets = self._gets()
        grown, slowest = old_data.crowd(self._bench.broker.pid, self._port, data, READERS)
        self._note("crowd-memory", max(grown, 1) / 1e6)
        self._note("crowd-slowest", slowest)
        if self._store.proxy is not None:
            self._note("crowd-gets", (self._gets() - gets) / statistics.median(self._found["gets"]))
        self._stage.clear()

    def _old_data(self) -> tuple[OldData, old_data.Copying]:
        size = self._bench.plan.size
        data = old_data.fill(self._stage, f"old-{next(self._topics)}", size.remote_segment_bytes, size.remote_segments)
        copying = old_data.copy(self._stage, data)
        old_data.move_away(self._stage, data)
        return data, copying

    def _gets(self) -> int:
        return 0 if self._store.proxy is None else self._store.proxy.gets()

    def _note(self, name: str, value: float) -> None:
        self._bench.turn.numbers[f"{key_of(self._store.key)}-{name}"] = value


def _work_beside(stage: Stage, store: str) -> None:
    """Alternate windows without and with a reader of old data and copying; the times of all windows count."""
    bench, size = stage.bench, stage.bench.plan.size
    (local,) = stage.topics(["local"], 2)
    batch = batch_of_16_kib("none")(int(time.time() * 1000))
    stage.fill(local, [0], batch, size.pace.prefill_bytes // len(batch) // 4)
    local_end = stage.ends(local)[0]
    seconds = max(size.steady_s / size.windows, 1.0)
    data = old_data.fill(stage, "old", size.remote_segment_bytes, size.remote_segments)
    old_data.copy(stage, data)
    old_data.move_away(stage, data)
    to_copy = int(_COPIED_PER_S * seconds * 1.5) // size.remote_segment_bytes + 1
    found: dict[bool, list[beside_old_data.Beside]] = {False: [], True: []}
    for window_number in bench.plan.windows():
        other = old_data.fill(stage, f"copied-{window_number}", size.remote_segment_bytes, to_copy, partitions=1)
        for is_beside in (False, True):
            if is_beside:
                old_data.begin_copying(stage, other)
            found[is_beside].append(
                beside_old_data.measure(bench.broker.port, local, local_end, batch, data if is_beside else None, seconds)
            )
    for is_beside, windows in found.items():
        taken = sorted(seconds * 1e3 for window in windows for seconds in window.produced_s)
        name = f"{BESIDE}-{store}-{'beside' if is_beside else 'alone'}"
        bench.turn.numbers[f"{name}-p99"] = taken[int(len(taken) * 0.99)]
        bench.turn.numbers[f"{name}-read"] = statistics.median(window.read_mb_per_s for window in windows)
        bench.turn.numbers[f"{name}-old"] = statistics.median(window.old_mb_per_s for window in windows)
        bench.say(f"{name}: p99 {bench.turn.numbers[f'{name}-p99']:.2f} ms, local data {bench.turn.numbers[f'{name}-read']:.1f} MB/s")
    for what, better in (("p99", "alone"), ("read", "beside")):
        numbers = {which: bench.turn.numbers[f"{BESIDE}-{store}-{which}-{what}"] for which in ("alone", "beside")}
        cost = numbers["alone"] / numbers["beside"]
        bench.turn.numbers[f"{BESIDE}-{store}-{what}-cost"] = 1 / cost if better == "alone" else cost


def _add_replicas(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    folder = directory.with_name("store")
    try:
        with a_remote_store(DIRECTORY, folder) as store:
            taken = new_replica.measure(kind, directory, store.config, plan)
    except Exception as failure:  # a client library raises what it likes, and the other results are worth keeping
        turn.failures[REPLICA] = f"{type(failure).__name__}: {failure}"
        plan.say(f"{turn.label}: new replica FAILED: {failure}")
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    turn.numbers[f"{REPLICA}-without"], turn.numbers[f"{REPLICA}-with"] = taken
    turn.numbers[f"{REPLICA}-cost"] = taken[1] / taken[0]
    plan.say(f"{turn.label}: a new replica after {taken[0]:.2f} s, and with old data in the store after {taken[1]:.2f} s")


# Lines


def lines(size: Size) -> Sequence[Line]:
    return (
        *(line for store in STORES for line in _store_lines(store)),
        *(line for store in BESIDE_STORES for line in _beside_lines(store)),
        *_replica_lines(size),
        *_metadata_lines(size),
    )


def _store_lines(store: str) -> Sequence[Line]:
    key, title = key_of(store), TITLES[store]
    is_local, is_late = store == DIRECTORY, store == LATE_S3
    first, second = _CATCH_UP[store]

    def rate(name: str, what: str, unit: str, at_least: float | None) -> Line:
        ratio = 1 if is_local and name in ("first", "second") else None
        value = number(f"{key}-{name}")
        return Line(f"{key}-{name}", f"{title}: {what}", unit, value, 1, at_least=at_least, ratio_at_least=ratio)

    def cost(name: str, what: str, unit: str, at_most: float | None = None) -> Line:
        return Line(f"{key}-{name}", f"{title}: {what}", unit, number(f"{key}-{name}"), 1, True, at_most=at_most)

    return (
        rate("first", "one consumer catches up, first time", "MB/s", first),
        rate("second", "the same data once more", "MB/s", second),
        cost("first-record", "first record", "ms", 100 if is_late else None),
        *(
            cost(f"{name}-p{percent}", f"random MiB, {name}: p{percent}", "ms", at_most if is_late else None)
            for name, percent, at_most in (("cold", 50, 70), ("cold", 95, 130), ("warm", 50, 3), ("warm", 95, None))
        ),
        rate("first-width", f"partitions with data in a fetch of {old_data.PARTITIONS}, first time", "", None),
        rate("second-width", "the same once more", "", old_data.PARTITIONS),
        rate("copied", "copying", "MB/s", 100),
        cost("copied-cpu", "processor time of copying a GB", "s", 2),
        cost("crowd-memory", f"memory for {READERS} consumers of the same data", "MB", _MOST_MEMORY_MB),
        rate("crowd-slowest", "the slowest of them", "MB/s", None),
        *([cost("crowd-gets", "their GETs, beside those of one", "×", 1.05)] if is_late else ()),
    )


def _beside_lines(store: str) -> Sequence[Line]:
    key, title = f"{BESIDE}-{store}", TITLES[store]
    told = (
        ("p99", f"{beside_old_data.PRODUCED_PER_S} batches of 16 KiB a second, p99", "ms", True),
        ("read", f"{beside_old_data.READ_PER_S} fetches of 64 KiB of local data a second", "MB/s", False),
    )
    return (
        *(
            Line(f"{key}-{which}-{what}", f"{title}: {name}, {which}", unit, number(f"{key}-{which}-{what}"), 2, is_less)
            for what, name, unit, is_less in told
            for which in ("alone", "beside")
        ),
        Line(f"{key}-beside-old", f"{title}: old data read meanwhile", "MB/s", number(f"{key}-beside-old"), 1),
        *(
            Line(f"{key}-{what}-cost", f"{title}: {name}, cost", "×", number(f"{key}-{what}-cost"), 2, True, at_most=1.1)
            for what, name, _, _ in told
        ),
    )


def _replica_lines(size: Size) -> Sequence[Line]:
    local, old = (f"{megabytes:,} MB" for megabytes in (size.replica_megabytes, size.replica_old_megabytes))
    return (
        Line(f"{REPLICA}-without", f"new replica of {local}", "s", number(f"{REPLICA}-without"), 2, True),
        Line(f"{REPLICA}-with", f"the same with {old} more in the store", "s", number(f"{REPLICA}-with"), 2, True),
        Line(f"{REPLICA}-cost", "the second time over the first", "×", number(f"{REPLICA}-cost"), 2, True, at_most=1.2),
    )


def _metadata_lines(size: Size) -> Sequence[Line]:
    title = f"{size.metadata_records:,} records of metadata"

    def cost(name: str, what: str, unit: str, at_most: float) -> Line:
        return Line(f"{METADATA}-{name}", f"{title}, {what}", unit, number(f"metadata_{name}"), 2, True, at_most=at_most)

    return (
        cost("read_s", "read at the start", "s", 5),
        cost("read_turn_ms", "read at the start: longest turn of the event loop", "ms", 2),
        cost("snapshot_s", "from a snapshot", "s", 0.5),
        cost("snapshot_turn_ms", "from a snapshot: longest turn", "ms", 2),
    )


PART = Part(
    key="tiered",
    title="Tiered storage",
    about=f"One broker and its store on all cores. A window is a new topic of {old_data.PARTITIONS} partitions that is filled, copied, and "
    "read twice when its closed segments are in the store only. The S3 is versitygw, behind a proxy where it is "
    f"{TITLES[LATE_S3].rpartition(' at ')[2]} away. Metadata are read in process, from a broker that answers at once.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    choices=(*(key_of(store) for store in STORES), BESIDE, REPLICA, METADATA),
)
