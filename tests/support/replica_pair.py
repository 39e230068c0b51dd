"""Takes two replicas of a partition through histories of elections, appends and deletions, step by step."""

import asyncio
import contextlib
from collections.abc import Callable

from ottla.replication.leader.partition import Partition
from ottla.storage.errors import LogBeingTruncated
from ottla.storage.log.origins import CLIENT, COORDINATOR
from tests.support.batches import a_batch, a_run
from tests.support.followers import Replica, until
from tests.support.transactions import a_marker_batch

Step = tuple[str, int]
"""A kind of event and a number: of a replica, a producer, records or turns of the loop."""


class Pair:
    """The replicas, and who leads. An election does not ask who has what: that is an unclean one."""

    def __init__(self, **topic_config: str) -> None:
        self.replicas = [Replica(**topic_config), Replica(**topic_config)]
        self.replicas[0].other, self.replicas[1].other = self.replicas[1], self.replicas[0]
        self.leader = self.replicas[0]
        self.epoch = 0
        self.elect(0)

    @property
    def leaders(self) -> list[Partition]:
        """The partition where it is believed to be led: on both, while a deposed leader has not heard of it."""
        hosted = [replica.bench.replicas.partition for replica in self.replicas if replica.manager.partitions]
        return [partition for partition in hosted if partition.is_leader]

    @property
    def follower(self) -> Replica:
        """The one that does not lead."""
        return self.replicas[1 - self.replicas.index(self.leader)]

    def elect(self, index: int, *, follower_hears: bool = True) -> None:
        """That replica leads from now on."""
        self.epoch += 1
        self.leader = self.replicas[index]
        self.leader.lead(self.epoch)
        if follower_hears:
            self.follower.follow(self.epoch)

    async def take(self, step: Step) -> None:
        """One step of a history; the number says which replica or producer, or how many."""
        name, number = step
        if name == "lead":
            self.elect(number)
        elif name == "part":
            # the deposed leader does not hear of it and goes on
            self.elect(number, follower_hears=False)
        elif name == "produce":
            for replica in self.replicas:
                if replica.manager.partitions and replica.bench.replicas.partition.is_leader:
                    replica.bench.produce(*([a_batch(number, value_bytes=10 + self.epoch)]), acks=1)
        elif name == "write":
            self._append(lambda partition: write_to(partition, number))
        elif name in ("commit", "abort"):
            self._append(lambda partition: partition.append(a_run(a_marker_batch(number, commit=name == "commit")), 1, 0, COORDINATOR))
        elif name == "delete":
            partition = self.leader.bench.replicas.partition
            with contextlib.suppress(LogBeingTruncated):  # it followed a moment ago
                partition.delete_records(min(number, partition.log.high_watermark))
        else:
            for _ in range(number):
                await asyncio.sleep(0)

    def _append(self, append: Callable[[Partition], None]) -> None:
        for partition in self.leaders:
            with contextlib.suppress(LogBeingTruncated):
                append(partition)

    async def settle(self) -> None:
        """The first one leads, and both have everything."""
        self.elect(0)
        await until(lambda: self.leader.log.truncations.current is None)
        self.leader.bench.produce(a_batch(1), acks=1)
        await until(
            lambda: (
                self.replicas[1].log.truncations.current is None
                and self.replicas[0].log.log_end_offset == self.replicas[1].log.log_end_offset == self.replicas[1].log.high_watermark
            )
        )

    async def close(self) -> None:
        """They stop to fetch."""
        for replica in self.replicas:
            await replica.pool.close()


def write_to(partition: Partition, producer_id: int) -> None:
    """A record of a transaction of the producer, which its coordinator has verified."""
    known = (entry.last_sequence + 1 for entry in partition.log.active_producers() if entry.producer_id == producer_id)
    sequence = next(known, 0)
    run = a_run(a_batch(producer_id=producer_id, base_sequence=sequence, transactional=True))
    run.guard = partition.begin_verification(producer_id, sequence, 0)
    partition.append(run, 1, 0, CLIENT)
