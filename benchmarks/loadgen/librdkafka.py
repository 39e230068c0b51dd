"""Runs rdkafka_load, the C driver of librdkafka, with the librdkafka in the confluent-kafka package."""

import ctypes.util
import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loadgen.compiler import compiled
from benchmarks.loadgen.runner import LoadFailedError
from tests.support.apache_kafka import process_guard


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages acknowledged or consumed in a window. `in_all` counts what a producer wrote, warm-up included."""

    count: int
    window_s: float
    broker_cpu_s: float
    in_all: int

    @property
    def per_second(self) -> float:
        return self.count / self.window_s if self.window_s else 0.0


def librdkafka_path() -> Path:
    """The shared object of confluent-kafka, or the system's. Raises LoadFailedError when there is none."""
    found = importlib.util.find_spec("confluent_kafka")
    if found is not None and found.origin is not None:
        beside = sorted(Path(found.origin).parent.with_name("confluent_kafka.libs").glob("librdkafka*.so*"))
        if beside:
            return beside[0]
    system = ctypes.util.find_library("rdkafka")
    if system is None:
        raise LoadFailedError("no librdkafka: install the `test` extra, which brings confluent-kafka")
    return Path(system)


def produce(bootstrap: str, topic: str, warm_up_s: float, duration_s: float, probe: Callable[[], float]) -> Messages:
    """Produce messages of 100 bytes as fast as librdkafka can, linger 5 ms. Raises LoadFailedError."""
    return _run(["produce", bootstrap, topic, str(warm_up_s), str(duration_s)], probe)


def consume(
    bootstrap: str, topic: str, messages: int, partitions: int, probe: Callable[[], float], *, group: bool, settings: Sequence[str] = ()
) -> Messages:
    """Read `messages` messages from the beginning, as the only member of a group or by assignment. Raises LoadFailedError.

    `settings` are of the client, as `key=value`.
    """
    return _run(["group" if group else "assign", bootstrap, topic, str(messages), str(partitions), *settings], probe)


def _run(arguments: list[str], probe: Callable[[], float]) -> Messages:
    command = [str(compiled("rdkafka_load", "-ldl")), str(librdkafka_path()), *arguments]
    before = after = 0.0
    done: dict[str, Any] = {}
    in_all = 0
    with _guarded(command) as driver:
        assert driver.stdout is not None
        assert driver.stderr is not None
        for line in driver.stdout:
            report = json.loads(line)
            if report["event"] == "measuring":
                before = probe()
            elif report["event"] == "done":
                after, done = probe(), report
            else:
                in_all = report["messages"]
        if driver.wait() != 0 or not done:
            raise LoadFailedError((driver.stderr.read().splitlines() or ["the librdkafka driver ended without a result"])[-1])
    return Messages(done["messages"], done["window_s"], after - before, in_all)


@contextmanager
def _guarded(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process_guard().watch(process.pid)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process_guard().release(process.pid)
