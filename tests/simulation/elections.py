"""What the metadata store says of the watched partitions, looked at with every write: who is elected, why, and whether that is right.

A failover is counted where the store shows it: another broker leads than before, and the session in which the former leader was registered
has ended, and not because the broker closed it. The keeper of the sessions says what ended it. Elections that somebody ordered, and those
of a clean stop, count as elections only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.controller.store.memory_store import MemoryEnsemble
from ottla.controller.store.tree import Node
from ottla.controller.znodes.layout import (
    CONTROLLER_EPOCH,
    NO_LEADER,
    PartitionState,
    broker_id_path,
    decode_controller_epoch,
    decode_partition_state,
    partition_state_path,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.clock import Clock

STOPPED = "stopped"
"""What a session ended by that its owner closed."""


class WatchedEnsemble(MemoryEnsemble):
    """Tells of every node that is written."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.on_written: dict[str, Callable[[str, Node], None]] = {}

    def put(self, path: str, node: Node) -> None:
        """See tree.Nodes."""
        super().put(path, node)
        if (tell := self.on_written.get(path)) is not None:
            tell(path, node)


class Elections:
    """`ended` says by what the session of that id ended; `on_state` is told of every new state of a watched partition."""

    def __init__(self, ensemble: WatchedEnsemble, watched: list[TopicPartition], ended: dict[int, str]) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        """The newest."""
        self.elections = 0
        self.failovers: Counter[str] = Counter()
        self.controllers = 0
        self.on_state: Callable[[TopicPartition, PartitionState], None] = lambda partition, state: None
        self._ensemble = ensemble
        self._ended = ended
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._led_last: dict[TopicPartition, tuple[int, int]] = {}
        """Partition -> who led it last, and in which session."""
        self._paths = {partition_state_path(partition): partition for partition in watched}
        ensemble.on_written[CONTROLLER_EPOCH] = self._on_controller_epoch
        for path in self._paths:
            ensemble.on_written[path] = self._on_state_written

    def leader(self, partition: TopicPartition, epoch: int) -> int | None:
        """Who was ever said to lead it in that epoch."""
        return self._leaders.get((partition, epoch))

    def _on_controller_epoch(self, path: str, node: Node) -> None:
        epoch = decode_controller_epoch(node.data)
        assert epoch == (self.controllers + 1 if node.version else 0), f"controller epoch {epoch} comes after {self.controllers}"
        self.controllers = epoch

    def _on_state_written(self, path: str, node: Node) -> None:
        partition = self._paths[path]
        state = decode_partition_state(path, node.data)
        before = self.states.get(partition)
        if before is not None:
            _check_follows(partition, before, state)
        assert state.controller_epoch == self.controllers, (
            f"{partition}: a controller of epoch {state.controller_epoch} wrote {state} in epoch {self.controllers}"
        )
        self.states[partition] = state
        if state.leader != NO_LEADER:
            leader = self._leaders.setdefault((partition, state.leader_epoch), state.leader)
            assert leader == state.leader, f"{partition}: {state.leader} is to lead in epoch {state.leader_epoch}, in which {leader} led"
            self._count(partition, state.leader)
        self.on_state(partition, state)

    def _count(self, partition: TopicPartition, leader: int) -> None:
        last, session_id = self._led_last.get(partition, (leader, 0))
        if leader != last:
            self.elections += 1
            how = self._ended.get(session_id, STOPPED)
            if how != STOPPED:
                self.failovers[how] += 1
        registration = self._ensemble.find(broker_id_path(leader))
        if registration is not None:
            self._led_last[partition] = leader, registration.ephemeral_owner
        elif leader != last:
            self._led_last[partition] = leader, 0


def _check_follows(partition: TopicPartition, before: PartitionState, state: PartitionState) -> None:
    said = f"{partition}: {state} comes after {before}"
    assert state.leader_epoch >= before.leader_epoch, said
    assert state.controller_epoch >= before.controller_epoch, said
    assert state.isr, said
    if state.leader != before.leader:
        assert state.leader_epoch > before.leader_epoch, said
    if state.leader != NO_LEADER:
        assert state.leader in state.isr, said
        if state.leader_epoch > before.leader_epoch:
            assert state.leader in before.isr, f"{said}: that is an unclean election"
