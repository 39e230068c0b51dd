"""Measures the controller of large clusters in one process: `python -m benchmarks.controllers.scale [--sizes 10:20000 32:64000
100:200000]`.

The controller is the real one, with its channels, connections and codecs, on uvloop. Only the machines around it are simulated:

- The metadata store is in memory (`ottla.controller.store.memory_store`). Its time is measured apart.
- Another broker is a registration in the store and the far end of a connection (`FarBroker`). It decodes the requests and answers them.
  Three of them also apply UpdateMetadata to a metadata cache. The brokers of a cluster work at the same time, so the time of the slowest
  one counts, apart from the controller's.

Times are processor seconds of this process, so other programs disturb them little. Every partition has three replicas, placed as
CreateTopics does, so with the default sizes every broker leads 2,000 partitions. Each size is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from time import thread_time
from typing import Any, Final, NamedTuple, cast

import uvloop

from benchmarks.brokers.process import peak_resident_bytes
from benchmarks.controllers.scale_parts import FarBroker, Meter, MeteredStore, NearBroker, bytes_of
from ottla.broker.cluster.broker_channels import BrokerChannels, control_versions
from ottla.broker.loop.collector import collector_paused
from ottla.broker.network.peer_connection import MAX_RESPONSE_BYTES, PeerConnection
from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.controller.admin.placement import assign_replicas
from ottla.controller.controller import Controller
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.registration import prepare_store
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import Create, Delete, Request
from ottla.controller.znodes.layout import (
    BrokerRegistration,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    broker_id_path,
    config_path,
    encode_broker,
    encode_topic,
    topic_path,
)
from ottla.protocol.client_security import PLAINTEXT
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import Peer, Resolve
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import FixedRandom

SIZES: Final = ("10:20000", "32:64000", "100:200000")
PARTITIONS_PER_TOPIC: Final = 100
REPLICATION_FACTOR: Final = 3
LISTENER: Final = "INTERNAL"
FIRST_PORT: Final = 10_000
WHOLE_BROKERS: Final = (2, 3, 4)
"""The far brokers that apply the metadata."""
VICTIM: Final = 5
"""The broker that dies while it is not the controller."""


class Row(NamedTuple):
    """Processor seconds of one step, and the bytes that the controller sent."""

    step: str
    controller_s: float
    store_s: float
    slowest_broker_s: float
    sent_mb: float

    @property
    def together_s(self) -> float:
        """The time of the step on machines of this speed: a broker begins when it has its request, at the latest after the last one."""
        return self.controller_s + self.store_s + self.slowest_broker_s


class LargeCluster:
    """Two controllers, of which the second takes over, and far brokers."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.meter = Meter()
        self.ensemble = MemoryEnsemble(ManualClock())
        self.broker_ids = range(brokers)
        self.partitions = partitions
        self._far = {broker_id: FarBroker(self.meter, broker_id, broker_id in WHOLE_BROKERS) for broker_id in self.broker_ids}
        self._stores = [MeteredStore(self.ensemble, self.meter) for _ in range(2)]
        self._others = MeteredStore(self.ensemble, self.meter)
        """The session in which the far brokers are registered."""
        self.controllers = [self._controller(broker_id) for broker_id in range(2)]
        self.active = self.controllers[0]

    def _registration(self, broker_id: int) -> BrokerRegistration:
        return BrokerRegistration((Endpoint(LISTENER, "PLAINTEXT", f"broker-{broker_id}.example", FIRST_PORT + broker_id),), None, 0)

    def _controller(self, broker_id: int) -> Controller:
        config = BrokerConfig({"auto.leader.rebalance.enable": "false"})
        channels = BrokerChannels(
            broker_id,
            lambda: self.controllers[broker_id].broker_epoch,
            NearBroker(self.meter, broker_id),
            self._connect,
            LISTENER,
            control_versions(config[INTER_BROKER_PROTOCOL_VERSION]),
            30_000,
        )
        return Controller(
            self._stores[broker_id],
            broker_id,
            config,
            ManualClock(),
            FixedRandom(broker_id).bytes,
            channels,
            LISTENER,
            lambda: self._registration(broker_id),
            while_large=collector_paused,
        )

    def _connect(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        """A connection that is open already."""
        address = resolve()
        assert address is not None
        peer = PeerConnection(resolve, client_id, memoryview(bytearray()), MAX_RESPONSE_BYTES, PLAINTEXT, negotiate=negotiate)
        peer._wire = cast("Any", self._far[address.port - FIRST_PORT])
        return peer

    async def start(self) -> None:
        """Start the controllers and register the other brokers."""
        for store, controller in zip(self._stores, self.controllers, strict=True):
            await store.open_session()
            await prepare_store(store, FixedRandom().bytes)
            await controller.startup()
        await self._others.open_session()
        await self._others.pipeline([self._register(broker_id) for broker_id in self.broker_ids[2:]])
        await self.until(lambda: len(self.active.context.brokers) == len(self.broker_ids))

    def _register(self, broker_id: int) -> Create:
        return Create(broker_id_path(broker_id), encode_broker(self._registration(broker_id)), ephemeral=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition, and then for the last events and answers."""
        while not condition():
            await self.active.delivered()
            await asyncio.sleep(0)
        await self.active.delivered()
        await self.active.delivered()

    # The steps

    async def create(self) -> None:
        """Create all topics at once."""
        random = Random(1)
        racks = dict.fromkeys(self.broker_ids)
        requests: list[Request] = []
        for number in range(self.partitions // PARTITIONS_PER_TOPIC):
            placed = assign_replicas(racks, PARTITIONS_PER_TOPIC, REPLICATION_FACTOR, random.randrange)
            partitions = {index: ReplicaAssignment(replicas) for index, replicas in placed.items()}
            name = f"topic-{number}"
            body = encode_topic(TopicAssignment((number + 1).to_bytes(16, "big"), partitions))
            requests += [Create(config_path("topics", name), b'{"version":1,"config":{}}'), Create(topic_path(name), body)]
        await self._others.pipeline(requests)
        await self.until(lambda: len(self.active.context.leaderships) == self.partitions)

    async def end_first(self) -> None:
        """The active controller's process ends; its session lasts until `fail_over`."""
        await self.controllers[0].shutdown()
        self.active = self.controllers[1]

    async def fail_over(self) -> None:
        """The session of the active controller's broker ends; the other controller takes over."""
        await self._stores[0].close()
        await self.until(lambda: self.active.is_active and not self._led_by(0))

    async def kill(self) -> None:
        """A broker that is not the controller dies."""
        await self._others.pipeline([Delete(broker_id_path(VICTIM))])
        await self.until(lambda: VICTIM not in self.active.context.brokers and not self._led_by(VICTIM))

    async def restart(self) -> None:
        """That broker registers again."""
        await self._others.pipeline([self._register(VICTIM)])
        await self.until(lambda: VICTIM in self.active.context.brokers)

    async def join_isrs(self) -> None:
        """Leaders propose that broker for the ISRs of all its partitions, in one request."""
        context = self.active.context
        changes: dict[TopicPartition, IsrChange] = {}
        for partition, _ in context.placements({VICTIM}):
            state, partition_epoch = context.leaderships[partition]
            changes[partition] = IsrChange(
                state.leader_epoch, (*state.isr, VICTIM), partition_epoch, topic_id=context.topic_id(partition.topic)
            )
        await self.active.alter_isr(self.active.broker_id, self.active.broker_epoch, changes)
        await self.active.delivered()

    async def elect(self) -> None:
        """An administrator gives that broker its leaderships back."""
        context = self.active.context
        await self.active.elect_leaders(
            [each for each, on in context.placements({VICTIM}) if context.replicas(each)[0] == VICTIM], unclean=False
        )
        await self.active.delivered()

    async def look_for_imbalance(self) -> None:
        """The periodic search for brokers that lead too few partitions; it finds none."""
        await self.active.rebalance_leaders()

    def _led_by(self, broker_id: int) -> int:
        return sum(state.leader == broker_id for state, _ in self.active.context.leaderships.values())

    async def stop(self) -> None:
        """Release everything."""
        await self.active.shutdown()
        await self._stores[1].close()
        await self._others.close()


async def measure(brokers: int, partitions: int) -> tuple[list[Row], dict[str, float]]:
    """The rows of one size, and figures of memory."""
    cluster = LargeCluster(brokers, partitions)
    meter = cluster.meter
    rows: list[Row] = []

    async def step(name: str, work: Callable[[], Awaitable[None]]) -> None:
        gc.collect()
        meter.reset()
        began = thread_time()
        await work()
        spent = thread_time() - began
        rows.append(
            Row(name, spent - meter.store_s - sum(meter.brokers_s.values()), meter.store_s, meter.slowest_s, meter.sent_bytes / 1e6)
        )

    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the server does
    await step("brokers register", cluster.start)
    await step("all topics are created", cluster.create)
    await cluster.end_first()
    await step("failover of the controller, whose broker leads too", cluster.fail_over)
    await step("death of a broker", cluster.kill)
    await step("start of that broker", cluster.restart)
    await step("that broker joins all its ISRs", cluster.join_isrs)
    await step("election of its preferred leaders", cluster.elect)
    await step("search for imbalance", cluster.look_for_imbalance)
    context = cluster.active.context
    context_mb = bytes_of(context.assignments, context.leaderships, context.topic_ids) / 1e6
    await cluster.stop()
    peak_mb = peak_resident_bytes(os.getpid()) / 1e6
    return rows, {"state of the controller, MB": context_mb, "highest memory of the process, with the simulated machines, MB": peak_mb}


def show(size: str, rows: Sequence[Row], memory: dict[str, float]) -> None:
    """Print the table of one size."""
    brokers, partitions = (int(part) for part in size.split(":"))
    print(f"\n{brokers} brokers, {partitions:,} partitions, {REPLICATION_FACTOR} replicas each\n")
    print("| step | controller s | store s | slowest broker s | together s | sent MB |\n|---|---|---|---|---|---|")
    for row in rows:
        figures = (row.controller_s, row.store_s, row.slowest_broker_s, row.together_s)
        print(f"| {row.step} | {' | '.join(f'{each:.2f}' for each in figures)} | {row.sent_mb:.1f} |", flush=True)
    for name, figure in memory.items():
        print(f"\n{name}: {figure:.0f} ({figure * 1e6 / partitions:.0f} bytes per partition)")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="BROKERS:PARTITIONS")
    parser.add_argument("--json", action="store_true", help="measure one size in this process, and print the figures as JSON")
    options = parser.parse_args()
    if options.json:
        brokers, partitions = (int(part) for part in options.sizes[0].split(":"))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(measure(brokers, partitions))))
        return
    for size in options.sizes:
        command = [sys.executable, "-m", "benchmarks.controllers.scale", "--json", "--sizes", size]
        rows, memory = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        show(size, [Row(*row) for row in rows], memory)


if __name__ == "__main__":
    main()
