"""Provides the replicas of broker 0 in memory, with a controller and followers for them."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import EpochEndOffset, PartitionData
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaResponse, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.isr_proposals import IsrDecision, IsrProposal
from ottla.replication.reading.asked_partition import READ_UNCOMMITTED, AskedPartition
from ottla.replication.reading.fetch_read import FetchParams, read_one
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.origins import CLIENT
from ottla.storage.validation.run import BatchRun
from tests.support.batches import a_batch, a_run
from tests.support.log_manager import Disks
from tests.support.pauses import at_once

TOPIC = "orders"
TOPIC_ID = b"id of the topic."
LAG_MS = 10_000
"""replica.lag.time.max.ms"""


_T = TypeVar("_T")


def into(found: list[_T]) -> Callable[[list[_T]], Coroutine[Any, Any, None]]:
    """A callback that adds its items to `found`."""

    async def keep(items: list[_T]) -> None:
        found.extend(items)

    return keep


class Asked(AskedPartition):
    """One partition as a fetch asks for it."""

    __slots__ = ()

    def __init__(
        self,
        offset: int,
        *,
        start: int = -1,
        topic_id: bytes = ZERO_UUID,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        partition: int = 0,
    ) -> None:
        super().__init__(topic_id, partition)
        self.ask(offset, 1 << 20, leader_epoch, last_fetched_epoch, start)

    def found(self) -> PartitionData:
        """The result of the last reading, as in an answer to a client."""
        return PartitionData(
            partition_index=self.index,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            diverging_epoch=EpochEndOffset(epoch=self.diverging_epoch, end_offset=self.diverging_end_offset),
            preferred_read_replica=self.preferred_read_replica,
            records=b"" if self.region is None else self.region.read(),
        )


class Proposals:
    """The way to a controller that decides when the test says so. One proposal of a partition at a time, as in a real broker."""

    def __init__(self) -> None:
        self.undecided: list[tuple[IsrProposal, Callable[[IsrDecision], None]]] = []
        self.made: list[IsrProposal] = []

    def propose(self, proposal: IsrProposal, on_decided: Callable[[IsrDecision], None]) -> bool:
        """See IsrProposals."""
        if any(other.topic_partition == proposal.topic_partition for other, _ in self.undecided):
            return False
        self.undecided.append((proposal, on_decided))
        self.made.append(proposal)
        return True

    def confirm(self, isr: Sequence[int] | None = None, *, leader_epoch: int | None = None, partition_epoch: int | None = None) -> None:
        """The controller did what the oldest proposal says, or something else."""
        proposal, on_decided = self.undecided.pop(0)
        on_decided(
            IsrDecision(
                ErrorCode.NONE,
                0,
                proposal.leader_epoch if leader_epoch is None else leader_epoch,
                proposal.isr if isr is None else tuple(isr),
                0,
                proposal.partition_epoch + 1 if partition_epoch is None else partition_epoch,
            )
        )

    def refuse(self, code: ErrorCode) -> None:
        """The controller did not do what the oldest proposal says."""
        proposal, on_decided = self.undecided.pop(0)
        on_decided(IsrDecision(code, -1, proposal.leader_epoch, proposal.isr, 0, proposal.partition_epoch))


class Replicas:
    """Broker 0 of the live brokers 0, 1 and 2."""

    def __init__(self, filesystem: FileSystem | None = None, log_dirs: str = "/data", **topic_config: str) -> None:
        self.disks = Disks(filesystem, log_dirs)
        self.disks.topics[TOPIC] = {name.replace("_", "."): value for name, value in topic_config.items()}
        self.clock = self.disks.clock
        self.logs = self.disks.start()
        self.cluster = MetadataCache()
        self.proposals = Proposals()
        self.manager = ReplicaManager(0, self.logs, self.cluster, self.clock, LAG_MS, isr_proposals=self.proposals)
        self.alive(0, 1, 2)

    # -- the controller

    def alive(self, *broker_ids: int, controller_epoch: int = 1) -> UpdateMetadataResponse:
        """These brokers are alive, and no others."""
        return at_once(
            self.manager.on_update_metadata(
                UpdateMetadataRequest(controller_id=1, controller_epoch=controller_epoch, live_brokers=brokers(*broker_ids))
            )
        )

    def say(
        self, *states: LeaderAndIsrPartitionState, topic: str = TOPIC, topic_id: bytes = TOPIC_ID, controller_epoch: int = 1
    ) -> LeaderAndIsrResponse:
        """LeaderAndIsr about partitions of one topic."""
        topic_state = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch, topic_states=[topic_state])
        return at_once(self.manager.on_leader_and_isr(request))

    def code_of(self, *states: LeaderAndIsrPartitionState, topic_id: bytes = TOPIC_ID) -> int:
        """The error code for the only partition of a LeaderAndIsr."""
        response = self.say(*states, topic_id=topic_id)
        assert response.error_code == 0
        return response.topics[0].partition_errors[0].error_code

    def stop(self, leader_epoch: int, *, delete: bool = False, index: int = 0, controller_epoch: int = 1) -> StopReplicaResponse:
        """StopReplica of one partition."""
        state = StopReplicaPartitionState(partition_index=index, leader_epoch=leader_epoch, delete_partition=delete)
        topic_state = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
        request = StopReplicaRequest(controller_id=1, controller_epoch=controller_epoch, topic_states=[topic_state])
        with self.disks.background.hurried():
            return at_once(self.manager.on_stop_replica(request))

    # -- the partition

    @property
    def partition(self) -> Partition:
        """orders-0."""
        return self.manager.partitions[TOPIC][0]

    def append(self, records: int = 1, acks: int = -1, index: int = 0) -> BatchRun:
        """A producer's batch; `records` of them."""
        partition = self.manager.partitions[TOPIC][index]
        now_ms = self.clock.now_ms()
        run = a_run(a_batch(records))
        partition.append(run, acks, now_ms, CLIENT)
        return run

    def fetch(
        self,
        asked: Asked,
        replica_id: int = -1,
        isolation: int = READ_UNCOMMITTED,
        *,
        or_follower: bool = False,
        is_first_read: bool = True,
    ) -> PartitionData:
        """A fetch of orders-0."""
        return self.read(asked, FetchParams(replica_id, isolation, or_follower=or_follower), is_first_read=is_first_read)

    def read(self, asked: Asked, params: FetchParams, *, is_first_read: bool = True) -> PartitionData:
        """The same as a client of these parameters."""
        params.begin(1 << 20, elapsed_ms(self.clock), True)
        params.is_first_reading = is_first_read
        read_one(self.manager, self.manager.partition_or_raise(TOPIC, asked.index), asked, params)
        return asked.found()

    def shrink(self) -> int:
        """The periodic look at who lags behind; how many changes it proposed."""
        before = self.changes_in_flight
        self.manager.maybe_shrink_isrs(elapsed_ms(self.clock))
        return self.changes_in_flight - before

    @property
    def changes_in_flight(self) -> int:
        return sum(partition.isr_change is not None for partition in self.manager)

    def follow(self, broker_id: int, offset: int, start: int = 0) -> PartitionData:
        """A follower has everything below `offset`."""
        return self.fetch(Asked(offset, start=start, topic_id=TOPIC_ID), broker_id)


def brokers(*broker_ids: int) -> list[UpdateMetadataBroker]:
    """Live brokers as UpdateMetadata lists them."""
    return [
        UpdateMetadataBroker(
            id=each, rack=f"r{each}", endpoints=[UpdateMetadataEndpoint(port=9090 + each, host="host", listener="PLAINTEXT")]
        )
        for each in broker_ids
    ]


def state(
    leader: int = 0,
    epoch: int = 0,
    isr: Sequence[int] = (0, 1, 2),
    replicas: Sequence[int] = (0, 1, 2),
    *,
    partition_epoch: int = 0,
    index: int = 0,
    is_new: bool = True,
) -> LeaderAndIsrPartitionState:
    """The controller's state of a partition."""
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=tuple(isr),
        partition_epoch=partition_epoch,
        replicas=tuple(replicas),
        is_new=is_new,
    )


def metadata(topic: str, topic_id: bytes, **leaders: int) -> UpdateMetadataTopicState:
    """A topic for UpdateMetadata: `p0=1` says that broker 1 leads partition 0."""
    states = [
        UpdateMetadataPartitionState(partition_index=int(name[1:]), leader=leader, leader_epoch=3, isr=[leader], replicas=[leader])
        for name, leader in leaders.items()
    ]
    return UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
