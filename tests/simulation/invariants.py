"""What is always true of a cluster (docs/design.md), looked up inside its brokers after every step of a simulation."""

from __future__ import annotations

from itertools import pairwise

from protocol.records import iter_batches
from replication.partition import Partition
from storage.partition_log import PartitionLog
from tests.simulation.cluster import SimulatedCluster


class Invariants:
    """Remembers what it must: high watermarks by leader epoch, and who led in which."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._high_watermarks: dict[tuple[int, int, int], int] = {}
        self._leaders: dict[tuple[int, int], int] = {}
        self.checks = 0
        self.elections = 0

    def check(self) -> None:
        """Everything that can be told in a moment."""
        self.checks += 1
        for index in range(self._partitions):
            for broker_id, replica in self._cluster.replicas(self._topic, index).items():
                log = replica.log
                where = f"{self._topic}-{index} on broker {broker_id}"
                assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, (
                    f"{where}: start {log.log_start_offset}, high watermark {log.high_watermark}, end {log.log_end_offset}"
                )
                if replica.is_leader:
                    self._check_leader(index, broker_id, replica, where)

    def _check_leader(self, index: int, broker_id: int, replica: Partition, where: str) -> None:
        epoch = replica.leader_epoch
        if (index, epoch) not in self._leaders:
            self.elections += 1
        leader = self._leaders.setdefault((index, epoch), broker_id)
        assert leader == broker_id, f"{where}: leads in epoch {epoch}, in which broker {leader} led"
        life = self._cluster.nodes[broker_id].life
        key = (index, epoch, id(life))
        assert replica.log.high_watermark >= self._high_watermarks.get(key, 0), f"{where}: the high watermark went back in epoch {epoch}"
        self._high_watermarks[key] = replica.log.high_watermark
        assert broker_id in replica.isr or not replica.isr, f"{where}: leads and is not in its ISR {replica.isr}"

    def check_replicas_agree(self) -> None:
        """Byte for byte below the high watermark of each pair."""
        for index in range(self._partitions):
            replicas = list(self._cluster.replicas(self._topic, index).items())
            for (one, here), (other, there) in pairwise(replicas):
                end = min(here.log.high_watermark, there.log.high_watermark)
                start = max(here.log.log_start_offset, there.log.log_start_offset)
                ours, theirs = batches(here.log, start, end), batches(there.log, start, end)
                for mine, yours in zip(ours, theirs, strict=False):
                    assert mine == yours, f"{self._topic}-{index}: brokers {one} and {other} differ below {end}"
                assert len(ours) == len(theirs), (
                    f"{self._topic}-{index}: brokers {one} and {other} have another number of batches below {end}"
                )


def batches(log: PartitionLog, start: int, end: int) -> list[bytes]:
    """The batches of a log whose records are below `end`."""
    found: list[bytes] = []
    offset = start
    while offset < end:
        part = log.read(offset, 1 << 20, log.log_end_offset, True)
        data = b"" if part.region is None else bytes(part.region.read())
        before = offset
        for at, header in iter_batches(data):
            if header.last_offset < end:
                found.append(data[at : at + header.size])
            offset = header.last_offset + 1
        assert offset > before, f"{log.topic_partition}: nothing can be read at {before}"
    return found
