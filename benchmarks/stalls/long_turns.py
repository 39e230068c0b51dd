"""Measures the longest turns of the event loop during administration: `python -m benchmarks.stalls.long_turns [--partitions 10000]
[--where]`.

Three brokers in one process and on one loop, with one metadata file; logs are in a memory file system if there is one. Topics are created,
a broker leaves and comes back, the controller loses its session, a client asks for all metadata, offsets are checkpointed, topics are
deleted. A turn is one callback of the loop. Its processor time in the loop's thread is measured, which other programs affect little. The
clock counts where it shows less: a virtual machine adds milliseconds to a thread now and then, mostly to one that is interrupted for
another program. The longest turns of each step are printed with their callbacks, and with the share of the garbage collector, which here
visits the objects of three brokers. `--where` samples the lines in them, once a millisecond of processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ottla.broker.network.peer_connection import PeerConnections
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.znodes.layout import CONTROLLER
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import PeerAddress

BROKERS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
SHOWN: Final = 4
QUIET_S: Final = 2.0
DEPTH: Final = 8


class Turns:
    """Watches every callback of every loop in this process."""

    def __init__(self, *, where: bool) -> None:
        self.turns: list[tuple[int, str, int, int, int]] = []
        self._collecting = 0
        self._collection_began = 0
        gc.callbacks.append(self._on_collection)
        self._stacks: dict[int, list[str]] = {}
        self._number = 0
        run = asyncio.Handle._run

        def watched(handle: asyncio.Handle) -> None:
            self._number += 1
            self._collecting = 0
            switched = _switches()
            began, began_cpu = time.monotonic_ns(), time.thread_time_ns()
            run(handle)
            took = min(time.thread_time_ns() - began_cpu, time.monotonic_ns() - began)
            if took > 500_000:
                self.turns.append((took, _name(handle), self._number, self._collecting, _switches() - switched))

        asyncio.Handle._run = watched  # type: ignore[method-assign, assignment]  # the loop asks the class for it each time
        if where:
            signal.signal(signal.SIGPROF, self._look)
            signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = time.thread_time_ns()
        else:
            self._collecting += time.thread_time_ns() - self._collection_began

    def _look(self, _: int, frame: FrameType | None) -> None:
        lines: list[str] = []
        while frame is not None and len(lines) < DEPTH:
            code = frame.f_code
            lines.append(f"{Path(code.co_filename).name}:{frame.f_lineno}:{code.co_name}")
            frame = frame.f_back
        self._stacks.setdefault(self._number, []).append(" < ".join(lines))

    def longest_ms(self, *, but: str = "") -> float:
        """The longest turn since the last report, ms; 0 if none took half a millisecond. Those of the task that runs the coroutine function
        `but` do not count."""
        return max((took / 1e6 for took, name, *_ in self.turns if not but or name.rpartition(" ")[2] != but), default=0.0)

    def report(self, step: str) -> None:
        """Print the longest turns since the last report."""
        longest = sorted(self.turns, reverse=True)[:SHOWN]
        over = [switches for took, *_, switches in self.turns if took > 2_000_000]
        print(f"{step}: {len(over)} turns over 2 ms, {len(over) - over.count(0)} of them interrupted", flush=True)
        for took, name, number, collecting, switches in longest:
            notes = (f", collector {collecting / 1e6:.1f} ms" if collecting else "") + (", interrupted" if switches else "")
            print(f"  {took / 1e6:7.1f} ms  {name}{notes}")
            for stack, times in Counter(self._stacks.get(number, ())).most_common(6):
                print(f"            {times:3} {stack}")
        self.turns.clear()
        self._stacks.clear()


def _switches() -> int:
    """How often the system has taken this thread off its core."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _name(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]  # a handle has no public attribute for its callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}"
    return f"{getattr(callback, '__qualname__', repr(callback))}"


class Cluster:
    """The brokers, and a client."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.brokers: dict[int, Broker] = {}

    async def start(self, broker_id: int) -> None:
        """Start a broker and wait until it serves."""
        logs = self._directory / f"broker-{broker_id}"
        logs.mkdir(exist_ok=True)
        properties = {
            "broker.id": broker_id,
            "log.dirs": logs,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "ottla.metadata.file": self._directory / "metadata.sqlite3",
            "auto.create.topics.enable": "false",
            "default.replication.factor": BROKERS,
            "log.cleaner.enable": "false",
        }
        broker = self.brokers[broker_id] = Broker(BrokerConfig({key: str(value) for key, value in properties.items()}))
        await broker.start()

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        await self.brokers.pop(broker_id).stop()

    @property
    def controller(self) -> Broker:
        """The broker that is the active controller."""
        return next(broker for broker in self.brokers.values() if broker.controller.is_active)

    async def ask(self, api_key: ApiKey, version: int, request: Message) -> Any:
        """The controller's answer to a client."""
        address = PeerAddress("127.0.0.1", int(self.controller.addresses[0].rpartition(":")[2]))
        peer = PeerConnections()(lambda: address, "client")
        answer = await peer.request(api_key, version, request, timeout_ms=600_000)
        await peer.close()
        return answer

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition, and then for quiet."""
        while not condition():
            await self._delivered()
            await asyncio.sleep(0.05)
        await self._delivered()
        await asyncio.sleep(QUIET_S)

    async def _delivered(self) -> None:
        for broker in list(self.brokers.values()):
            if broker.controller.is_active:
                await broker.controller.delivered()

    def known(self) -> list[int]:
        """The number of partitions with a leader that each broker knows."""
        return [
            sum(state.leader >= 0 for image in broker.services.metadata.topics.values() for state in image.partitions.values())
            for broker in self.brokers.values()
        ]


async def measure(directory: Path, partitions: int, turns: Turns) -> None:
    """All steps."""
    cluster = Cluster(directory)
    for broker_id in range(BROKERS):
        await cluster.start(broker_id)
    await cluster.until(lambda: all(len(each.services.metadata.brokers) == BROKERS for each in cluster.brokers.values()))
    turns.report("start")
    names = [f"t{number}" for number in range(-(-partitions // PARTITIONS_PER_TOPIC))]
    topics = [CreatableTopic(name=name, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=BROKERS) for name in names]
    made = await cluster.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=600_000))
    assert not any(each.error_code for each in made.topics), made
    partitions = len(names) * PARTITIONS_PER_TOPIC
    await cluster.until(lambda: cluster.known() == [partitions] * BROKERS)
    turns.report("topics are made")
    await cluster.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    turns.report("a client asks for all metadata")
    for broker in cluster.brokers.values():
        broker.services.data.replica_manager.checkpoint_high_watermarks()
        broker.services.data.replica_manager.maybe_shrink_isrs(0)
        broker.log_manager.checkpoint_recovery_points()
    await asyncio.sleep(QUIET_S)
    turns.report("checkpoints")
    await cluster.stop(2)
    await cluster.until(lambda: all(len(each.services.metadata.brokers) == 2 for each in cluster.brokers.values()))
    turns.report("a broker leaves")
    await cluster.start(2)
    await cluster.until(lambda: all(len(each.services.metadata.brokers) == 3 for each in cluster.brokers.values()))
    turns.report("it comes back")
    before = cluster.controller.controller.context.epoch
    await cluster.controller.store.delete(CONTROLLER)
    await cluster.until(lambda: max(each.controller.context.epoch for each in cluster.brokers.values()) > before)
    turns.report("another controller is elected")
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=600_000)
    await cluster.ask(ApiKey.DELETE_TOPICS, 6, deleted)
    await cluster.until(lambda: not any(each.services.data.replica_manager.partitions for each in cluster.brokers.values()))
    turns.report("topics are deleted")
    for broker_id in list(cluster.brokers):
        await cluster.stop(broker_id)
    turns.report("stop")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--where", action="store_true")
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        asyncio.run(measure(Path(directory), arguments.partitions, Turns(where=arguments.where)))


if __name__ == "__main__":
    main()
