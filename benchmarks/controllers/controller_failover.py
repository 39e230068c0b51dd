"""Measures how long a controller takes to take over, and to change ISRs: `python -m benchmarks.controllers.controller_failover
[--partitions 2000]`.

Three brokers without logs share one tree, in memory and in the file of the embedded store, all in this process. So the measurement covers
the work of the controller, of the store, and of the brokers that apply the metadata, on one core. The controller dies while it leads a
third of the partitions; the clock runs from the end of its session until every broker has answered every request. Then the new controller
has to shrink the ISRs of all partitions that one broker leads.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.config.broker import BrokerConfig
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.controller import Controller
from ottla.controller.events.isr_changes import IsrChange
from ottla.controller.registration import prepare_store
from ottla.controller.state.channels import InProcessChannel
from ottla.controller.store.embedded_store import EmbeddedStore
from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.metadata_store import Create, MetadataStore
from ottla.controller.znodes.layout import (
    BrokerRegistration,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    encode_topic,
    topic_path,
)
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import FixedRandom, RecordingBroker

BROKERS = 3
PARTITIONS_PER_TOPIC = 100


class Cluster:
    """Three controllers over stores of one kind."""

    def __init__(self, new_store: Callable[[], MetadataStore]) -> None:
        self.stores = [new_store() for _ in range(BROKERS)]
        self.receivers = [RecordingBroker() for _ in range(BROKERS)]
        self.waits = MetadataWaits()
        self.controllers = [self._controller(broker_id) for broker_id in range(BROKERS)]

    def _controller(self, broker_id: int) -> Controller:
        registration = BrokerRegistration((Endpoint("INTERNAL", "PLAINTEXT", "127.0.0.1", 1 + broker_id),), None, 0)
        return Controller(
            self.stores[broker_id],
            broker_id,
            BrokerConfig({}),
            ManualClock(),
            FixedRandom(broker_id).bytes,
            lambda broker: InProcessChannel(self.receivers[broker.broker_id], self.waits.notify),
            "INTERNAL",
            lambda: registration,
        )

    async def start(self, partitions: int) -> None:
        """Start the brokers and make the topics."""
        for store, controller in zip(self.stores, self.controllers, strict=True):
            await store.open_session()
            await prepare_store(store, FixedRandom().bytes)
            await controller.startup()
        requests = []
        for number in range(-(-partitions // PARTITIONS_PER_TOPIC)):
            count = min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC)
            assignments = {index: ReplicaAssignment(tuple((index + at) % BROKERS for at in range(BROKERS))) for index in range(count)}
            body = encode_topic(TopicAssignment(number.to_bytes(16, "big"), assignments))
            requests += [Create(config_path("topics", f"t{number}")), Create(topic_path(f"t{number}"), body)]
        await self.stores[0].pipeline(requests)
        while len(self.controllers[0].context.leaderships) < partitions:
            await self.controllers[0].delivered()
            await asyncio.sleep(0.01)
        await self.controllers[0].delivered()

    async def fail_over(self) -> tuple[float, Controller]:
        """Seconds until all brokers have answered the next controller, and that controller."""
        await self.controllers[0].shutdown()
        started = time.perf_counter()
        await self.stores[0].close()
        while not any(controller.is_active for controller in self.controllers[1:]):
            for controller in self.controllers[1:]:
                await controller.delivered()
            await asyncio.sleep(0)
        (active,) = [controller for controller in self.controllers[1:] if controller.is_active]
        await active.delivered()
        return time.perf_counter() - started, active

    async def shrink(self, active: Controller, limit: int) -> tuple[int, float]:
        """The number of ISRs that one request shrank, and its time in seconds."""
        leaderships = active.context.leaderships.items()
        led = [(partition, each) for partition, each in leaderships if each.state.leader == active.broker_id][:limit]
        changes = {
            partition: IsrChange(each.state.leader_epoch, (active.broker_id,), each.partition_epoch, each.state.leader_recovery_state)
            for partition, each in led
        }
        started = time.perf_counter()
        await active.alter_isr(active.broker_id, active.broker_epoch, changes)
        return len(changes), time.perf_counter() - started

    async def stop(self) -> None:
        """Release everything."""
        for store, controller in zip(self.stores[1:], self.controllers[1:], strict=True):
            await controller.shutdown()
            await store.close()


async def measure(name: str, partitions: int, new_store: Callable[[], MetadataStore]) -> None:
    """One line of figures."""
    cluster = Cluster(new_store)
    await cluster.start(partitions)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the server does
    took, active = await cluster.fail_over()
    shrunk, shrinking = await cluster.shrink(active, 2_000)
    print(f"{name:9} {partitions:6} partitions: failover {took * 1e3:7.0f} ms; {shrunk} ISRs altered in {shrinking * 1e3:5.0f} ms")
    await cluster.stop()


def main() -> None:
    """Measure both stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[2_000, 10_000])
    for partitions in parser.parse_args().partitions:
        asyncio.run(measure("memory", partitions, MemoryEnsemble(ManualClock()).store))
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(measure("embedded", partitions, partial(EmbeddedStore, str(Path(directory) / "metadata.db"), ManualClock())))


if __name__ == "__main__":
    main()
