"""One story of a cluster with tiered storage, told by its seed: brokers and their store fail, records are deleted; then quiet.

python -m tests.simulation --tiered --seed 17     one story, with what happened
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.misfortune import Misfortune
from tests.simulation.remote import STORE, Trouble
from tests.simulation.stage import QUIET_S
from tests.simulation.story import Told
from tests.simulation.tiered import RETENTION_BYTES, TieredStage

BROKERS = 4
PARTITIONS = 3
DELETED = "deleted"
"""The topic whose records are deleted on request; in the other one they expire by size."""
EXPIRING = "expiring"
TOPICS = {DELETED: {"retention.bytes": "-1"}, EXPIRING: {"retention.bytes": str(RETENTION_BYTES)}}
TROUBLES = (Trouble(), Trouble(fails=1.0), Trouble(fails=0.3), Trouble(is_lost=0.5), Trouble(is_late=0.5), Trouble(0.1, 0.1, 0.1))


class TieredStory(TieredStage):
    """See the module. `say` is told of every fault."""

    def __init__(self, seed: int, seconds: float = 30.0, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__(seed, BROKERS, TOPICS, PARTITIONS)
        self._seconds = seconds
        self._misfortune = Misfortune(self.cluster, seconds, self._is_well, say)

    @property
    def digest(self) -> int:
        """Of everything that anybody said to anybody: the same seed has the same."""
        return self.cluster.network.digest

    def tell(self) -> Told:
        """Raises AssertionError when something was not as it always must be."""
        try:
            self.cluster.run(self._tell())
        finally:
            self.cluster.close()
        committed = [self.invariants.committed[partition] for partition in self.partitions]
        requests = self.cluster.objects.requests
        return Told(
            faults=self._misfortune.faults,
            failovers=self.elections.failovers,
            elections=self.elections.elections,
            controllers=self.elections.controllers,
            acknowledged=sum(each.acknowledged for each in committed),
            seen=sum(each.seen for each in committed),
            checks=self.invariants.checks + self.starts.checks,
            copied=requests["put log"],
            removed=requests["delete log"],
            steps=self.cluster.loop.steps,
            virtual_seconds=self.cluster.loop.time(),
        )

    async def _tell(self) -> None:
        await self.begin()
        producers, consumers = self.producers(), self.consumers()
        deleter = self.deleter(DELETED)
        acting = [asyncio.create_task(each.run()) for each in (*producers, deleter)]
        reading = [asyncio.create_task(each.run()) for each in consumers]
        misfortune = [asyncio.create_task(self._misfortune.run()), asyncio.create_task(self._trouble_the_store())]
        self.tasks = [*acting, *reading, *misfortune]
        await self._until_done(misfortune)
        for each in (*producers, deleter):
            each.stopping = True
        await self._misfortune.make_good()
        await self._until_done(acting)
        await self.settle()
        await self.until(lambda: all(each.position == each.committed.end_offset for each in consumers), "the consumers")
        await self.read_all()
        self.raise_errors()
        for task in reading:
            task.cancel()

    async def _trouble_the_store(self) -> None:
        objects, random = self.cluster.objects, self.random
        end = self.cluster.loop.time() + self._seconds
        while self.cluster.loop.time() < end:
            objects.trouble = random.choice(TROUBLES)
            self._misfortune.note(f"the store: {objects.trouble}")
            if random.random() < 0.3:
                host = random.choice([node.host for node in self.cluster.nodes.values()])
                self._misfortune.note(f"{host} is cut off from the store")
                self.cluster.network.cut(host, STORE)  # until the next fault of the network passes
            await asyncio.sleep(random.expovariate(0.5))

    async def _until_done(self, wanted: list[asyncio.Task[None]]) -> None:
        """Wait for tasks; whatever else ends meanwhile ended by an error."""
        async with asyncio.timeout(self._seconds + QUIET_S):
            while not all(task.done() for task in wanted):
                await asyncio.wait([task for task in self.tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
                self.raise_errors()

    def _is_well(self) -> bool:
        """Whether every partition has a leader and somebody who could take over."""
        return all(state.leader >= 0 and len(state.isr) > 1 for state in self.elections.states.values())
