"""What goes wrong in a story: crashes, hangs, cuts, expired sessions, slow links, wrong clocks. Everything passes again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from tests.simulation.cluster import SESSION_TIMEOUT_S, SimulatedCluster
from tests.simulation.network import CLIENT
from tests.simulation.store import ENSEMBLE

FAULTS_PER_S = 5
PATIENT = 0.8
PATIENCE_S = 3.0


class Misfortune:
    """Chance comes from the cluster's seed. `say` is told of everything; `faults` counts them by kind."""

    def __init__(self, cluster: SimulatedCluster, seconds: float, is_well: Callable[[], bool], say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.faults: Counter[str] = Counter()
        self._greatest_skew_ms = 0
        self._seconds = seconds
        self._is_well = is_well
        self._say = say
        self._stopping: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """For the seconds that it has."""
        end = self.cluster.loop.time() + self._seconds
        faults, weights = zip(
            (self._kill, 6),
            (self._pause, 3),
            (self._lose_ensemble, 2),
            (self._isolate, 2),
            (self._expire, 2),
            (self._stop, 1),
            (self._cut, 1),
            (self._slow, 1),
            (self._skew, 1),
            strict=True,
        )
        while self.cluster.loop.time() < end:
            await self._wait()
            (fault,) = self.random.choices(faults, weights)
            self.faults[fault.__name__.strip("_")] += 1
            up = [broker_id for broker_id, node in self.cluster.nodes.items() if node.life is not None and node.life.is_running]
            await fault(self.random.choice(up or list(self.cluster.nodes)))

    async def _wait(self) -> None:
        """Mostly until the cluster has recovered so far that it can bear the next misfortune, and sometimes not."""
        await asyncio.sleep(self.random.expovariate(FAULTS_PER_S))
        if self.random.random() < PATIENT:
            for _ in range(int(PATIENCE_S / 0.05)):
                if self._is_well():
                    break
                await asyncio.sleep(0.05)

    def note(self, what: str) -> None:
        """Say it with the time."""
        self._say(f"{self.cluster.loop.time():8.3f} s  {what}")

    def _later(self, seconds: float, what: str, action: Callable[[], object]) -> None:
        def act() -> None:
            self.note(what)
            action()

        self.cluster.loop.call_later(seconds, act)

    async def _kill(self, broker_id: int) -> None:
        self.note(f"broker {broker_id} is killed")
        self.cluster.kill(broker_id, self.random)
        self._later(self.random.expovariate(1.0), f"broker {broker_id} is started again", lambda: self.start(broker_id))

    def start(self, broker_id: int) -> None:
        """Start a broker that is down, again and again until it starts."""
        if not self.cluster.nodes[broker_id].is_up:
            starting = self.cluster.start(broker_id)
            starting.add_done_callback(lambda task: self._on_started(broker_id, task))

    def _on_started(self, broker_id: int, task: asyncio.Task[list[str]]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        node = self.cluster.nodes[broker_id]
        if node.starting is task:
            self.note(f"broker {broker_id} does not start: {task.exception()}")
            self.cluster.kill(broker_id)
            self._later(1.0, f"broker {broker_id} is started again", lambda: self.start(broker_id))

    async def _pause(self, broker_id: int) -> None:
        seconds = self.random.uniform(0, 2 * SESSION_TIMEOUT_S)
        self.note(f"broker {broker_id} hangs for {seconds:.1f} s")
        self.cluster.pause(broker_id)
        self._later(seconds, f"broker {broker_id} goes on", lambda: self.cluster.resume(broker_id))

    async def _isolate(self, broker_id: int) -> None:
        host = self.cluster.nodes[broker_id].host
        others = [node.host for node in self.cluster.nodes.values()]
        others += [more for more in (CLIENT, ENSEMBLE) if self.random.random() < 0.5]
        self.note(f"broker {broker_id} is cut off from {', '.join(each for each in others if each != host)}")
        self.cluster.network.isolate(host, others)
        self._later(self.random.uniform(0, 3 * SESSION_TIMEOUT_S), "the network is whole", self.cluster.network.heal)

    async def _lose_ensemble(self, broker_id: int) -> None:
        self.note(f"broker {broker_id} is cut off from the metadata store")
        self.cluster.network.cut(self.cluster.nodes[broker_id].host, ENSEMBLE)
        self._later(self.random.uniform(0, 3 * SESSION_TIMEOUT_S), "the network is whole", self.cluster.network.heal)

    async def _cut(self, broker_id: int) -> None:
        other = self.random.choice([each for each in self.cluster.nodes if each != broker_id])
        self.note(f"the link between brokers {broker_id} and {other} is cut")
        self.cluster.network.cut(self.cluster.nodes[broker_id].host, self.cluster.nodes[other].host)
        self._later(self.random.uniform(0, 3 * SESSION_TIMEOUT_S), "the network is whole", self.cluster.network.heal)

    async def _stop(self, broker_id: int) -> None:
        self.note(f"broker {broker_id} is stopped")
        self._stopping.append(asyncio.create_task(self._stop_and_start(broker_id)))

    async def _stop_and_start(self, broker_id: int) -> None:
        await self.cluster.stop(broker_id)
        self._later(self.random.expovariate(1), f"broker {broker_id} is started again", lambda: self.start(broker_id))

    async def _expire(self, broker_id: int) -> None:
        self.note(f"the session of broker {broker_id} is ended")
        self.cluster.expire_session(broker_id)

    async def _slow(self, broker_id: int) -> None:
        factor = self.random.choice([10.0, 100.0, 1000.0])
        host = self.cluster.nodes[broker_id].host
        self.note(f"everything to and from ottla.broker {broker_id} takes {factor:.0f} times as long")
        self.cluster.network.slowness[host] = factor
        self._later(
            self.random.uniform(0, 5), f"broker {broker_id} is as fast as ever", lambda: self.cluster.network.slowness.pop(host, None)
        )

    async def _skew(self, broker_id: int) -> None:
        skew_ms = self.random.randint(-600_000, 600_000)
        self.note(f"the clock of broker {broker_id} is wrong by {skew_ms} ms")
        self.cluster.nodes[broker_id].clock.skew_ms = skew_ms
        self._greatest_skew_ms = max(self._greatest_skew_ms, skew_ms)

    async def make_good(self) -> None:
        """From now on everything works. No clock is behind what it, or another one, once said: times that lie ahead are waited for."""
        self.note("quiet")
        self.cluster.network.heal()
        self.cluster.network.slowness.clear()
        for node in self.cluster.nodes.values():
            node.clock.skew_ms = self._greatest_skew_ms
        await asyncio.gather(*self._stopping)
        for broker_id, node in self.cluster.nodes.items():
            self.cluster.resume(broker_id)
            if not node.is_up:
                self.start(broker_id)
