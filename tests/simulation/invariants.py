"""What is always true of a cluster (docs/design.md), looked up inside its brokers after every step that any of them takes.

docs/long-tests.md lists them, and where each is looked at; `test_planted_faults` sees each of them fail.
"""

from __future__ import annotations

from ottla.controller.znodes.layout import PartitionState
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.state import BATCHES_RETAINED
from tests.simulation.cluster import Node, SimulatedCluster
from tests.simulation.committed import OFFSETS_TOPIC, Committed
from tests.simulation.elections import Elections
from tests.simulation.loop import Life
from tests.simulation.outcomes import Aborted, Decisions


class _Replica:
    """What was last seen of a replica in a life of its broker."""

    __slots__ = (
        "compared",
        "controller_epoch",
        "end_offset",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "partition",
        "partition_epoch",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.compared = 0
        """Up to here it was found to be as it was committed."""
        self.end_offset = self.high_watermark = -1
        self.is_leader = False
        self.leader_epoch = self.partition_epoch = self.controller_epoch = -1


class Invariants:
    """Of the replicas of the watched partitions; `after_step` is the loop's."""

    def __init__(self, cluster: SimulatedCluster, elections: Elections, watched: list[TopicPartition]) -> None:
        self.decisions = Decisions()
        self.committed = {partition: Committed(partition, self.decisions) for partition in watched}
        self.checks = 0
        self._cluster = cluster
        self._elections = elections
        self._topics = sorted({partition.topic for partition in watched})
        """In this order `__transaction_state` comes before the partitions that get markers."""
        self._replicas: dict[Life, dict[str, list[_Replica]]] = {}
        self._logs: dict[TopicPartition, dict[int, PartitionLog]] = {partition: {} for partition in watched}
        """By broker, also of those that are down: what is on their disks."""
        elections.on_state = self.on_state

    def after_step(self, life: Life) -> None:
        """Look at what is new on the node. Called some thousand times a virtual second, so what did not change must cost nothing."""
        node = self._cluster.nodes[life.broker_id]
        if node.life is not life or node.broker is None:
            return
        replicas = self._replicas.get(life)
        if replicas is None:
            if not hasattr(node.broker, "services"):
                return
            replicas = self._on_logs_loaded(node, life)
        partitions = node.broker.services.data.replica_manager.partitions
        for topic, known in replicas.items():
            hosted = partitions.get(topic)
            if hosted is None:
                continue
            same = known if len(hosted) == len(known) else self._find_again(replicas, topic, hosted)
            for seen, partition in zip(same, hosted.values(), strict=True):
                log = partition.log
                if seen.partition is not partition:  # one went, and another came
                    self._find_again(replicas, topic, hosted)
                    self.after_step(life)
                    return
                if (
                    seen.end_offset != log.log_end_offset
                    or seen.high_watermark != log.high_watermark
                    or seen.leader_epoch != partition.leader_epoch
                    or seen.is_leader is not partition.is_leader
                ):
                    self._look(node, partition, seen)

    def _find_again(self, replicas: dict[str, list[_Replica]], topic: str, hosted: dict[int, Partition]) -> list[_Replica]:
        """Replicas come and go; those that stayed are as they were seen last."""
        known = {seen.partition: seen for seen in replicas[topic]}
        replicas[topic] = [known.get(partition) or _Replica(partition) for partition in hosted.values()]
        return replicas[topic]

    def _on_logs_loaded(self, node: Node, life: Life) -> dict[str, list[_Replica]]:
        """The broker has opened its logs, and nobody has told it anything yet: all that it had before its death is there."""
        assert node.broker is not None
        for partition, logs in self._logs.items():
            before = logs.get(node.broker_id)
            if before is None:
                continue
            log = node.broker.log_manager.get(partition)
            where = f"{partition} on broker {node.broker_id}"
            in_sync = node.broker_id in self._elections.states[partition].isr
            if log is None:
                assert not in_sync, f"{where}: the log is gone after a start"
                del logs[node.broker_id]
                continue
            # A log that was being cut may be as long as before: it is cut again.
            assert log.log_end_offset == before.log_end_offset or before.truncations.current is not None, (
                f"{where}: the log ends at {log.log_end_offset} after a start; it ended at {before.log_end_offset}"
            )
            logs[node.broker_id] = log
            committed = self.committed[partition]
            end_offset = log.log_end_offset if in_sync else log.high_watermark
            committed.compare(log, log.local_log_start_offset, min(end_offset, committed.end_offset), where)
        replicas = self._replicas[life] = {topic: [] for topic in self._topics}
        return replicas

    def _look(self, node: Node, partition: Partition, seen: _Replica) -> None:
        self.checks += 1
        topic_partition = partition.topic_partition
        committed = self.committed[topic_partition]
        log = partition.log
        end_offset, high_watermark = log.log_end_offset, log.high_watermark
        self._logs[topic_partition][node.broker_id] = log
        where = f"{topic_partition} on broker {node.broker_id}"
        assert log.log_start_offset <= high_watermark <= end_offset, (
            f"{where}: start {log.log_start_offset}, high watermark {high_watermark}, end {end_offset}"
        )
        epochs = partition.leader_epoch, partition.partition_epoch, partition.controller_epoch
        for now, before in zip(epochs, (seen.leader_epoch, seen.partition_epoch, seen.controller_epoch), strict=True):
            assert now >= before, f"{where}: an epoch went back; leader's, partition's and controller's are {epochs}, and {before} is known"
        if partition.is_leader:
            self._check_leader(partition, seen, where)
        seen.compared = min(seen.compared, end_offset)
        if high_watermark > committed.end_offset:
            assert partition.is_leader, f"{where}: the high watermark is {high_watermark}; no leader had more than {committed.end_offset}"
            had_all = seen.compared == committed.end_offset
            committed.extend(log, high_watermark, where)
            if had_all:
                seen.compared = committed.end_offset
            self._check_members(topic_partition, partition)
        if end_offset < seen.end_offset:
            self._check_members(topic_partition)
        if high_watermark > seen.compared:
            start_offset = max(seen.compared, log.local_log_start_offset)
            seen.compared = committed.compare(log, start_offset, min(high_watermark, committed.end_offset), where)
        if log.truncations.current is None:
            committed.check_last_stable_offset(log.last_stable_offset, where)
        seen.end_offset, seen.high_watermark = end_offset, high_watermark
        seen.leader_epoch, seen.partition_epoch, seen.controller_epoch = epochs
        seen.is_leader = partition.is_leader

    def _check_leader(self, partition: Partition, seen: _Replica, where: str) -> None:
        epoch = partition.leader_epoch
        elected = self._elections.leader(partition.topic_partition, epoch)
        assert elected == partition.broker_id, f"{where}: leads in epoch {epoch}, in which broker {elected} was elected"
        if seen.is_leader and seen.leader_epoch == epoch:
            log = partition.log
            assert log.high_watermark >= seen.high_watermark, f"{where}: the high watermark went back in epoch {epoch}"
            assert log.log_end_offset >= seen.end_offset, f"{where}: the log end went back in epoch {epoch}"
        assert partition.broker_id in partition.isr, f"{where}: leads and is not in its ISR {partition.isr}"
        change = partition.isr_change
        proposed = () if change is None else change.isr
        assert {*partition.isr, *proposed} <= {*partition.maximal_isr}, (
            f"{where}: {proposed} is to follow the ISR {partition.isr}, and the maximal one is {partition.maximal_isr}"
        )

    def _check_members(self, topic_partition: TopicPartition, leader: Partition | None = None) -> None:
        """Whoever is in sync has everything that was committed, and so has whom the leader counts in already."""
        state = self._elections.states[topic_partition]
        end_offset = self.committed[topic_partition].end_offset
        members = set(state.isr)
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            members.update(leader.maximal_isr)
        for broker_id in members:
            log = self._logs[topic_partition].get(broker_id)
            has = 0 if log is None else log.log_end_offset
            assert has >= end_offset, (
                f"{topic_partition} is committed up to {end_offset}; broker {broker_id}, one of those in sync ({state}), has it up to {has}"
            )

    def on_state(self, partition: TopicPartition, state: PartitionState) -> None:
        """The store has a new state: those that may be elected from now on have everything that was committed."""
        self._check_members(partition)

    def check_at_the_end(self) -> None:
        """Every byte on every disk, and what every replica knows of producers and transactions, when all are in sync and none is open."""
        for partition, logs in self._logs.items():
            committed = self.committed[partition]
            aborted = sorted(committed.transactions.aborted)
            producers: list[tuple[str, dict[int, tuple[object, ...]]]] = []
            for broker_id in self._elections.states[partition].isr:
                log = logs[broker_id]
                where = f"{partition} on broker {broker_id}"
                end_offset = committed.compare(log, log.local_log_start_offset, committed.end_offset, where)
                assert end_offset == committed.end_offset, f"{where} ends at {end_offset}, not at {committed.end_offset}"
                assert log.last_stable_offset == end_offset, f"{where}: stable up to {log.last_stable_offset}, and ends at {end_offset}"
                index = aborted_transactions(log, log.local_log_start_offset, end_offset)
                listed = sorted(Aborted(each.producer_id, each.first_offset, each.last_offset) for each in index)
                assert listed == aborted, f"{where}: its list of aborted transactions is {listed}; {aborted} were"
                producers.append((where, _producers(log)))
            for where, known in producers:
                assert known == producers[0][1], f"{where} knows the producers {known}; {producers[0][0]} knows {producers[0][1]}"


def _producers(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """Those of a replica, without times.

    Batches with offsets in transactions all have the sequence number 0, and none is looked for as a duplicate. So a start restores the last
    one only. A tiered log begins with a snapshot of its producers, which has the last one of each, too.
    """
    compared = 1 if log.topic_partition.topic == OFFSETS_TOPIC or log.tier is not None else BATCHES_RETAINED
    return {
        each.producer_id: (
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_first_offset,
            [(batch[0], batch[1], batch[2]) for batch in each.batches[-compared:]],
        )
        for each in log.active_producers()
    }
