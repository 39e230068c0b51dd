"""Measures a broker's processor time per million records that real clients write or read."""

from collections.abc import Callable, Sequence

from benchmarks.brokers import process
from benchmarks.loadgen.clients import CLIENTS, Client, Job
from benchmarks.loadgen.compiler import NoGoError
from benchmarks.loadgen.runner import LoadFailedError
from benchmarks.loads.shapes import ONE_LARGE
from benchmarks.loads.stage import Stage
from tests.support.apache_kafka import ToolMissingError, pinned_to

PARTITIONS = (12, 100)
_WARM_UP_SHARE = 4
"""Divisor of a client's work for its warm-up before the first measurement, which JITs need."""
_BRIEF_S, _SECONDS = 0.5, 4.0


def key_of(client: Client, partitions: int) -> str:
    return f"{client.key}-{partitions}"


def title_of(client: Client, partitions: int) -> str:
    return f"{client.title}, {partitions} partitions"


KEYS: Sequence[str] = [key_of(client, partitions) for partitions in PARTITIONS for client in CLIENTS]


def measure_all(stage: Stage) -> None:
    """Every client that the plan includes, with few partitions and with many; numbers of its turn have the names of KEYS."""
    bench = stage.bench
    is_warm: set[str] = set()
    for partitions in PARTITIONS:
        for client in CLIENTS:
            key = key_of(client, partitions)
            if bench.plan.includes(key):
                bench.attempt(key, _measuring(stage, client, partitions, is_warm))


def _measuring(stage: Stage, client: Client, partitions: int, is_warm: set[str]) -> Callable[[], None]:
    bench = stage.bench
    records = bench.plan.size.client_records
    seconds = _BRIEF_S if bench.plan.size.is_brief else _SECONDS

    def work() -> None:
        topic = f"{client.key}-{partitions}" if client.is_producer else _filled(stage, partitions, records)
        if client.is_producer:
            stage.topics([topic], partitions)
        job = Job(f"127.0.0.1:{bench.broker.port}", topic, partitions, records, seconds)
        try:
            if client.key not in is_warm:
                _run(stage, client, Job(job.bootstrap, topic, partitions, records // _WARM_UP_SHARE, seconds / _WARM_UP_SHARE))
                is_warm.add(client.key)
            before = process.cpu_s(bench.broker.pid)
            done = _run(stage, client, job)
            used_s = process.cpu_s(bench.broker.pid) - before
        except (NoGoError, ToolMissingError) as missing:
            bench.turn.remarks.append(f"{client.title} is left out: {missing}")
            return
        finally:
            stage.clear()
        bench.turn.numbers[key_of(client, partitions)] = used_s / done * 1e6
        bench.plan.pass_on()
        bench.say(f"{title_of(client, partitions)}: {used_s / done * 1e6:.3f} s of processor time per million records")

    return work


def _run(stage: Stage, client: Client, job: Job) -> int:
    """Run a client on the core that is not the broker's. Returns the number of records; raises LoadFailedError when there were too few."""
    with pinned_to(stage.bench.plan.cores.generator):
        done = client.run(job)
    if not done or (done < job.records and client.key != "librdkafka-produce"):
        raise LoadFailedError(f"{done:,} of {job.records:,} records")
    return done


def _filled(stage: Stage, partitions: int, records: int) -> str:
    """A topic with at least `records` records, in batches of 16 KiB with records of about 100 bytes."""

    def make() -> str:
        topic = stage.keep(f"read-{partitions}", partitions)
        times = records // (partitions * ONE_LARGE.records) + 1
        stage.fill(topic, range(partitions), ONE_LARGE.batch(), times)
        return topic.name

    return stage.once(f"read-{partitions}", make)
