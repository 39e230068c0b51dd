"""Measures many topics of four partitions each: memory, start time, and requests that go through all of them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.batches import batch_of_size
from benchmarks.parts.part import BROKER_LABELS, KILLED, Part, running
from benchmarks.report.lines import Line, number, rate_of
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn

PARTITIONS = 4
_PER_REQUEST = 100
_PATIENCE_S = 300.0
_BATCH_BYTES = 1000
_FETCH_BYTES = 64 * 1024


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Create them, use them, and start again on them after a clean stop and after a kill."""
    with running(kind, turn, directory, plan, config={**COMMON_CONFIG, **KILLED}) as bench:
        bench.settle()
        bench.note_memory("idle_bytes")
        bench.attempt("many-partitions", partial(_measure, bench))


def _measure(bench: Bench) -> None:
    turn, size = bench.turn, bench.plan.size
    names = [f"of-many-{at:06}" for at in range(size.topics)]  # equally long: the places of error codes depend on that
    began = time.monotonic()
    topics: list[Topic] = []
    with Admin("127.0.0.1", bench.broker.port) as admin:
        for first in range(0, len(names), _PER_REQUEST):
            topics += admin.create_topics(names[first : first + _PER_REQUEST], PARTITIONS)
    turn.numbers["create_s"] = time.monotonic() - began
    bench.say(f"{len(topics) * PARTITIONS:,} partitions created in {turn.numbers['create_s']:.1f} s")
    bench.settle()
    idle_bytes, partitions = turn.numbers["idle_bytes"], len(topics) * PARTITIONS
    turn.numbers["bytes_per_partition"] = (bench.note_memory("created_bytes") - idle_bytes) / partitions
    batch = batch_of_size(_BATCH_BYTES, 10, int(time.time() * 1000))
    once = _load(bench, [frames.produce(*at, batch) for at in _partitions(topics)], frames.produce_error_offsets(topics[0].name))
    bench.load(replace(once, warm_up_s=0, duration_s=_PATIENCE_S, total=2 * partitions))  # or a fetch would find nothing and wait
    bench.warm_up(replace(once, warm_up_s=0, duration_s=size.pace.warm_up_slice_s))
    bench.measure("produce-over-all", "produce over all", once)
    asked = [frames.fetch(topic.topic_id, at, 0, _FETCH_BYTES) for topic in topics for at in range(PARTITIONS)]
    bench.measure("fetch-over-all", "fetch over all", _load(bench, asked, frames.fetch_error_offsets()))
    bench.note_memory("used_bytes")
    for name, is_clean in (("restart_s", True), ("restart_after_kill_s", False)):
        turn.numbers[name] = _restart(bench, names, is_clean=is_clean)
        bench.say(f"serves all again {turn.numbers[name]:.2f} s after {'a clean stop' if is_clean else 'a kill'}")
    bench.settle()
    bench.note_memory("restarted_bytes")


def _partitions(topics: Sequence[Topic]) -> list[tuple[str, int]]:
    return [(topic.name, at) for topic in topics for at in range(PARTITIONS)]


def _load(bench: Bench, asked: Sequence[bytes], error_offsets: tuple[int, ...]) -> Load:
    pace = bench.plan.size.pace
    return Load(asked, workloads.PRODUCE_CONNECTIONS, workloads.IN_FLIGHT, pace.warm_up_s, pace.duration_s, error_offsets=error_offsets)


def _restart(bench: Bench, names: Sequence[str], *, is_clean: bool) -> float:
    """Seconds from the start of the process until every partition has a leader, without the stop or the expiry of a session."""
    bench.broker.restart(is_clean=is_clean)
    answered = time.monotonic()
    with Admin("127.0.0.1", bench.broker.port) as admin:
        admin.wait_for_leaders(names, PARTITIONS)
    return bench.broker.start_s + time.monotonic() - answered


def lines(size: Size) -> Sequence[Line]:
    partitions = size.topics * PARTITIONS
    return (
        Line("create", f"create {size.topics:,} topics of {PARTITIONS}", "s", number("create_s"), 2, True),
        Line("produce-over-all", f"produce 1 KB batches over {partitions:,} partitions", "req/s", rate_of("produce-over-all")),
        Line("fetch-over-all", f"fetch over {partitions:,} partitions", "req/s", rate_of("fetch-over-all")),
        Line("memory-before", "resident memory before", "MB", number("idle_bytes", 1e6), 0, True),
        Line("memory-per-partition", "more memory per partition, unused", "KB", number("bytes_per_partition", 1e3), 1, True),
        Line("memory-used", "resident memory, all used", "MB", number("used_bytes", 1e6), 0, True),
        Line("restart", "start until all are led: after a clean stop", "s", number("restart_s"), 2, True),
        Line("restart-kill", "start until all are led: after a kill", "s", number("restart_after_kill_s"), 2, True),
        Line("memory-restarted", "resident memory after that", "MB", number("restarted_bytes", 1e6), 0, True),
    )


PART = Part(
    key="partitions",
    title="Many partitions",
    about="One broker on one core. Eight connections with two requests in flight; every request goes to the next partition, with one batch "
    "of ten records or a fetch of up to 64 KiB from the beginning.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    details=lambda _: [("produce-over-all", "produce over all"), ("fetch-over-all", "fetch over all")],
)
