"""Deletes topics: from the request under /admin/delete_topics to the last znode. Kafka's TopicDeletionManager.

Steps for a topic whose replicas are all on live brokers:

- UpdateMetadata with leader -2 reports to all brokers that the topic has no leader;
- its replicas leave the ISRs one by one, leader -1 at the end;
- StopReplica without and then with delete goes to every replica;
- when all have answered, the znodes are deleted, the request last.

Every step can be repeated: if a controller dies in the middle, the request remains and the next controller starts again. With ZooKeeper a
topic with a replica on a dead broker, or in a failed log directory, waits until that is back; its other replicas are already deleted by
then. Without ZooKeeper neither is waited for, as in Apache Kafka 4. A broker that is back, or has its directory back, sets its replicas
aside, because their topic's id is gone.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from ottla.controller.errors import NoNode, NotEmpty, SessionExpired, StoreError
from ottla.controller.state.context import ControllerContext, Replica
from ottla.controller.state.partition_states import PartitionStates
from ottla.controller.state.request_batch import EVERY_BROKER, RequestBatch
from ottla.controller.store.metadata_store import Delete, MetadataStore
from ottla.controller.znodes.layout import config_path, delete_topic_path, partition_path, partition_state_path, partitions_path, topic_path
from ottla.controller.znodes.pauses import Pause, slices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class TopicDeletion:
    """The deletions in progress of one controller."""

    def __init__(
        self,
        store: MetadataStore,
        context: ControllerContext,
        states: PartitionStates,
        pause: Pause,
        on_progress: Callable[[], None],
        *,
        waits_for_offline_replicas: bool,
    ) -> None:
        """`on_progress` is called when a deletion is finished, suspended or left to another controller."""
        self._store = store
        self._context = context
        self._states = states
        self._pause = pause
        self._waits_for_offline_replicas = waits_for_offline_replicas
        self._started: dict[str, set[Replica]] = {}
        """Topics whose replicas were sent StopReplica with delete, and the replicas that have not answered."""
        self._deleted: dict[str, set[Replica]] = {}
        """Topics whose deletion was reported to all brokers, and the replicas that were deleted or are not waited for."""
        self._on_progress = on_progress

    def clear(self) -> None:
        """Drop the deletions in progress, because another controller took over, or this one begins."""
        self._started.clear()
        self._deleted.clear()
        self._on_progress()

    def enqueue(self, topics: Set[str]) -> None:
        """Add topics whose deletion was requested. `resume` starts it.

        Nothing of a new deletion is done yet: an operator may have removed an earlier topic of the name in the middle of its deletion.
        """
        for topic in topics - self._context.topics_to_be_deleted:
            self._started.pop(topic, None)
            self._deleted.pop(topic, None)
        self._context.topics_to_be_deleted.update(topics)

    async def retry(self, brokers: set[int]) -> None:
        """Make deletions with replicas on these brokers, which are back, eligible again.

        The replicas that such a broker deleted in an earlier incarnation are deleted again, because a LeaderAndIsr has
        just made it host them.
        """
        for topic in self._context.topics_to_be_deleted:
            deleted = self._deleted.get(topic, set())
            for some in slices(self._context.partitions_of(topic)):
                for partition in some:
                    for broker_id in brokers.intersection(self._context.replicas(partition)):
                        self._context.topics_ineligible_for_deletion.discard(topic)
                        deleted.discard(Replica(partition, broker_id))
                await self._pause()

    def is_begun(self, replica: Replica) -> bool:
        """Whether its broker was sent StopReplica with delete."""
        topic = replica.partition.topic
        return replica in self._started.get(topic, ()) or replica in self._deleted.get(topic, ())

    async def resume(self, batch: RequestBatch) -> None:
        """Start or finish every deletion that can be. The caller sends `batch`."""
        starting = []
        for topic in sorted(self._context.topics_to_be_deleted):
            if topic in self._started:
                # Replicas have not answered. Looking at all of them after every answer would cost brokers times partitions.
                continue
            if topic in self._deleted and await self._is_deleted(topic):
                await self._try_to_finish(topic)
            elif topic not in self._context.topics_ineligible_for_deletion:
                starting.append(topic)
        if starting:
            await self._start(starting, batch)

    async def on_stop_replica_errors(self, broker_id: int, errors: Mapping[Replica, int]) -> None:
        """Take in a broker's answer to StopReplica with delete: the error codes of its replicas of topics that are
        being deleted."""
        for some in slices(errors.items()):
            for replica, error in some:
                topic = replica.partition.topic
                if not self._context.is_being_deleted(topic):
                    continue
                waiting = self._started.get(topic, set())
                waiting.discard(replica)
                if error == ErrorCode.NONE or (error == ErrorCode.KAFKA_STORAGE_ERROR and not self._waits_for_offline_replicas):
                    self._deleted.setdefault(topic, set()).add(replica)
                else:
                    self._halt(topic, f"broker {broker_id} could not delete {replica.partition} (error {error})")
                if not waiting:
                    self._started.pop(topic, None)
            await self._pause()

    async def on_replicas_offline(self, replicas: Iterable[Replica]) -> None:
        """Suspend the deletion of topics with replicas that went offline, or continue without those of dead brokers.

        A live broker whose log directory failed answers StopReplica.
        """
        for some in slices(replicas):
            for replica in some:
                topic = replica.partition.topic
                if not self._waits_for_offline_replicas and replica.broker_id in self._context.brokers:
                    continue
                if self._waits_for_offline_replicas:
                    self._halt(topic, f"the replica of {replica.partition} on broker {replica.broker_id} is offline")
                else:
                    self._context.topics_ineligible_for_deletion.discard(topic)
                waiting = self._started.get(topic)
                if waiting is not None:
                    waiting.discard(replica)
                    if not waiting:
                        del self._started[topic]
            await self._pause()

    async def halt_where_replicas_are_offline(self) -> None:
        """Suspend topics that cannot be deleted completely now; called when a controller becomes active."""
        for topic in self._context.topics_to_be_deleted:
            for some in self._slices_of(topic):
                if not all(map(self._may_delete, some)):
                    self._halt(topic, "a replica is offline")
                await self._pause()

    def _halt(self, topic: str, reason: str) -> None:
        if topic not in self._context.topics_ineligible_for_deletion:
            logger.info("deletion of topic %s is suspended: %s", topic, reason)
            self._context.topics_ineligible_for_deletion.add(topic)
            self._on_progress()

    async def _is_deleted(self, topic: str) -> bool:
        """Whether the brokers of all its replicas have deleted them."""
        deleted = self._deleted.get(topic, set())
        for some in self._slices_of(topic):
            if not deleted.issuperset(some):
                return False
            await self._pause()
        return True

    def _slices_of(self, topic: str) -> Iterator[list[Replica]]:
        """The replicas to delete before the topic is gone, in order, in slices; a pause belongs after each.

        A partition without a state may never have had a leader, so its deletion waits for no dead broker: it may not exist. Live brokers
        have its logs if only the state was deleted.
        """
        context = self._context
        for some in slices(sorted(context.partitions_of(topic))):
            yield [
                Replica(partition, broker_id)
                for partition in some
                for broker_id in sorted(set(context.replicas(partition)))
                if broker_id in context.brokers or (self._waits_for_offline_replicas and partition in context.leaderships)
            ]

    async def _start(self, topics: list[str], batch: RequestBatch) -> None:
        logger.info("deleting topics %s", ", ".join(topics))
        for partitions in slices(partition for topic in topics for partition in self._context.partitions_of(topic)):
            batch.update_metadata(EVERY_BROKER, partitions)
            await self._pause()
        await batch.send()
        by_broker: dict[int, list[TopicPartition]] = {}
        begun: dict[str, set[Replica]] = {}
        for topic in topics:
            deleted = self._deleted.setdefault(topic, set())
            started: set[Replica] = set()
            for some in self._slices_of(topic):
                for replica in some:
                    if not self._may_delete(replica):
                        self._halt(topic, "not all of its replicas are online")
                    elif replica not in deleted:
                        started.add(replica)
                        by_broker.setdefault(replica.broker_id, []).append(replica.partition)
                await self._pause()
            if started:
                begun[topic] = started
        for broker_id, of_broker in by_broker.items():
            await self._stop(broker_id, of_broker, batch, delete=False)
            for partition in await self._states.remove_from_isr(broker_id, of_broker):
                begun.pop(partition.topic, None)
        await batch.send()
        # Only now: no replica of a topic whose states could not be written is deleted, and the topic is to be tried
        # again.
        self._started.update(begun)
        for broker_id, of_broker in by_broker.items():
            await self._stop(broker_id, (partition for partition in of_broker if partition.topic in begun), batch, delete=True)
        for topic in topics:
            if topic not in begun and await self._is_deleted(topic):  # no broker has to answer
                await self._try_to_finish(topic)

    def _may_delete(self, replica: Replica) -> bool:
        """Whether its broker can be asked to delete it, and to answer whether it did where that is waited for."""
        return not self._waits_for_offline_replicas or self._context.is_online(replica.broker_id, replica.partition)

    async def _stop(self, broker_id: int, partitions: Iterable[TopicPartition], batch: RequestBatch, *, delete: bool) -> None:
        for some in slices(partitions):
            for partition in some:
                batch.stop_replica((broker_id,), partition, delete=delete)
            await self._pause()

    async def _try_to_finish(self, topic: str) -> None:
        """`_finish`. A topic whose znodes the store does not remove is tried again later, and holds up no other one."""
        try:
            await self._finish(topic)
        except SessionExpired:
            raise
        except StoreError as error:
            logger.error("topic %s stays marked for deletion for now, because its znodes cannot be removed: %s", topic, error)
            self._states.on_refused()

    async def _finish(self, topic: str) -> None:
        """All replicas are deleted: delete the znodes, the request last, because the next controller would continue
        from it."""
        partitions = sorted(self._context.partitions_of(topic))
        paths: list[str] = []
        for path_of in (partition_state_path, partition_path):
            for some in slices(partitions):
                paths += map(path_of, some)
                await self._pause()
        paths += [partitions_path(topic), topic_path(topic), config_path("topics", topic)]
        await self._remove(paths)
        await self._remove([delete_topic_path(topic)])
        self._context.remove_topic(topic)
        self._started.pop(topic, None)
        self._deleted.pop(topic, None)
        logger.info("topic %s is deleted", topic)
        self._on_progress()

    async def _remove(self, paths: list[str]) -> None:
        deletes: list[Delete] = []
        for some in slices(paths):
            deletes += map(Delete, some)
            await self._pause()
        for path, outcome in zip(paths, await self._states.write(deletes), strict=True):
            if isinstance(outcome, NotEmpty):
                # Partitions that were added during the deletion, or nodes that a tool created.
                await self._remove_below(path)
            elif isinstance(outcome, StoreError) and not isinstance(outcome, NoNode):
                raise outcome

    async def _remove_below(self, path: str) -> None:
        for name in await self._store.children(path):
            below = f"{path}/{name}"
            await self._remove([below])
        await self._remove([path])
