"""Handles events about brokers: start, end, restart, changed endpoints, controlled shutdown, failed log directories."""

import logging
from collections.abc import Iterable

from ottla.controller.errors import BrokerNotAvailable, NoNode, StaleBrokerEpoch
from ottla.controller.events.reassignment import Reassignments
from ottla.controller.state.context import LiveBroker, Replica
from ottla.controller.state.core import ControllerCore
from ottla.controller.state.request_batch import EVERY_BROKER
from ottla.controller.store.metadata_store import Children, Delete, Get, data_and_stat, names
from ottla.controller.znodes.changes import decode_log_dir_event
from ottla.controller.znodes.layout import BROKER_IDS, INT32_MAX, LOG_DIR_EVENT_NOTIFICATION, broker_id_path, decode_broker
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class BrokerChanges:
    """Reactions of the active controller to changes of brokers."""

    def __init__(self, core: ControllerCore, reassignments: Reassignments) -> None:
        self._core = core
        self._context = core.context
        self._reassignments = reassignments
        self._unreadable: dict[int, str] = {}
        """Brokers whose registration is malformed or does not support the finalized features, with what was logged of it."""

    async def read_brokers(self, ids: Iterable[str]) -> dict[int, LiveBroker]:
        """The registrations of these ids, with a watch on each; brokers that went meanwhile are omitted.

        A malformed registration, or one without a finalized feature, is that of a broker that is not alive. If a malformed one was readable
        before, and is still the same node, what was read then counts.
        """
        wanted = [int(each) for each in ids if each.isascii() and each.isdigit() and int(each) <= INT32_MAX]
        requests = [Get(broker_id_path(each), self._core.watch("BrokerModifications", self.on_broker_modification)) for each in wanted]
        brokers = {}
        for broker_id, outcome in zip(wanted, await self._core.store.pipeline(requests), strict=True):
            if isinstance(outcome, NoNode):
                continue
            data, stat = data_and_stat(outcome)
            try:
                registration = decode_broker(broker_id_path(broker_id), data)
            except MalformedZNode as error:
                known = self._context.brokers.get(broker_id)
                if known is not None and known.epoch == stat.czxid:
                    brokers[broker_id] = known
                self._report_unreadable(broker_id, error, is_known=broker_id in brokers)
                continue
            lacking = [f"{name}={level}" for name, level in self._core.finalized().items() if not registration.supports(name, level)]
            if lacking:
                self._report(broker_id, f"broker {broker_id} counts as not alive, because it does not support {', '.join(sorted(lacking))}")
                continue
            self._unreadable.pop(broker_id, None)
            brokers[broker_id] = LiveBroker(broker_id, registration, stat.czxid)
        return brokers

    def _report_unreadable(self, broker_id: int, error: MalformedZNode, *, is_known: bool) -> None:
        effect = "keeps its former registration" if is_known else "counts as not alive until it registers again; restart it"
        self._report(broker_id, f"broker {broker_id} {effect}: {error}")

    def _report(self, broker_id: int, line: str) -> None:
        """Log once for each reason: registrations are read again whenever another broker changes."""
        if self._unreadable.get(broker_id) != line:
            self._unreadable[broker_id] = line
            logger.error("%s", line)

    async def on_broker_change(self) -> None:
        """Children of /brokers/ids were created or deleted."""
        watch = self._core.watch("BrokerChange", self.on_broker_change)
        (outcome,) = await self._core.store.pipeline([Children(BROKER_IDS, watch)])
        ids = names(outcome)
        current = await self.read_brokers(ids)
        self._unreadable = {broker_id: line for broker_id, line in self._unreadable.items() if str(broker_id) in ids}
        known = self._context.brokers
        new = {broker_id: broker for broker_id, broker in current.items() if broker_id not in known}
        bounced = {
            broker_id: current[broker_id]
            for broker_id in current.keys() & known.keys()
            if current[broker_id].epoch > known[broker_id].epoch
        }
        dead = known.keys() - current.keys()
        if new or bounced or dead:
            logger.info("brokers: new %s, gone %s, restarted %s, alive %s", sorted(new), sorted(dead), sorted(bounced), sorted(current))
        for broker_id in dead | bounced.keys():
            await self._core.senders.remove(broker_id)
        for broker in (*new.values(), *bounced.values()):
            self._core.senders.add(broker.broker_id, broker)
        if new:
            known.update(new)
            await self._on_brokers_up(set(new))
        if bounced:
            for broker_id in bounced:
                del known[broker_id]
            await self._on_brokers_down(set(bounced))
            known.update(bounced)
            await self._on_brokers_up(set(bounced))
        if dead:
            for broker_id in dead:
                del known[broker_id]
            await self._on_brokers_down(set(dead))

    async def on_broker_modification(self) -> None:
        """The endpoints of a registration changed, or a malformed registration was repaired."""
        if self._unreadable.keys() - self._context.brokers.keys():
            await self.on_broker_change()
        current = await self.read_brokers(str(broker_id) for broker_id in self._context.brokers)
        changed = False
        for broker_id, broker in current.items():
            if broker.epoch == self._context.brokers[broker_id].epoch and broker != self._context.brokers[broker_id]:
                moved = broker.registration.endpoints != self._context.brokers[broker_id].registration.endpoints
                self._context.brokers[broker_id] = broker
                changed = True
                if moved:
                    await self._core.senders.renew(broker.broker_id, broker)
        if changed:
            await self._core.send_metadata_to_all()

    async def _on_brokers_up(self, brokers: set[int]) -> None:
        context = self._context
        context.offline_replicas = {replica for replica in context.offline_replicas if replica.broker_id not in brokers}
        batch = self._core.batch()
        batch.update_metadata(EVERY_BROKER, ())
        with self._core.while_many(len(context.leaderships)):
            for some in slices(context.leaderships):
                batch.update_metadata(brokers, some)
                await self._core.pause()
            await batch.send()
        await self._core.elections.send_states(context.placements(brokers), batch)
        await batch.send()
        await self._core.deletion.retry(brokers)  # before the first write, which may be refused: only this event does it
        await self._core.elections.elect_where_needed(batch)
        await batch.send()
        await self._reassignments.resume(brokers)
        await self._core.deletion.resume(batch)
        await batch.send()

    async def _on_brokers_down(self, brokers: set[int]) -> None:
        context = self._context
        context.offline_replicas = {replica for replica in context.offline_replicas if replica.broker_id not in brokers}
        context.shutting_down -= brokers
        await self.on_replicas_offline(context.replicas_on(brokers))

    async def on_replicas_offline(self, replicas: Iterable[Replica]) -> None:
        """Replicas went offline: elect new leaders where they led, and remove them from the ISRs where they followed."""
        context = self._context
        batch = self._core.batch()
        elected = await self._core.elections.elect_where_needed(batch)
        await batch.send()
        remaining: list[Replica] = []
        deleting: list[Replica] = []
        for some in slices(replicas):
            for replica in some:
                (deleting if context.is_being_deleted(replica.partition.topic) else remaining).append(replica)
            await self._core.pause()
        await self._core.elections.take_offline(remaining, batch)
        await batch.send()
        await self._core.deletion.on_replicas_offline(deleting)
        await self._core.deletion.resume(batch)
        await batch.send()
        if not remaining and not elected:
            await self._core.send_metadata_to_all()

    async def on_log_dir_event(self) -> None:
        """Brokers reported failed log directories: send each LeaderAndIsr for all its replicas; the answers show which
        are offline."""
        watch = self._core.watch("LogDirEventNotification", self.on_log_dir_event)
        (outcome,) = await self._core.store.pipeline([Children(LOG_DIR_EVENT_NOTIFICATION, watch)])
        paths = [f"{LOG_DIR_EVENT_NOTIFICATION}/{name}" for name in names(outcome)]
        if not paths:
            return
        brokers = set()
        for path, found in zip(paths, await self._core.store.pipeline([Get(path) for path in paths]), strict=True):
            if isinstance(found, NoNode):
                continue
            try:
                brokers.add(decode_log_dir_event(path, data_and_stat(found)[0]))
            except MalformedZNode as error:  # deleted with the others, which would wait behind it
                logger.error("a report of a failed log directory is ignored: %s", error)
        batch = self._core.batch()
        is_begun = self._core.deletion.is_begun  # without replicas that are being deleted: the broker would host them again
        placements = (
            (partition, [each for each in found if not is_begun(Replica(partition, each))])
            for partition, found in self._context.placements(brokers)
        )
        await self._core.elections.send_states(placements, batch)
        await batch.send()
        await self._core.states.write_or_raise([Delete(path) for path in paths], ignoring=(NoNode,))

    async def on_storage_errors(self, broker_id: int, failed: set[TopicPartition], served: set[TopicPartition]) -> None:
        """A broker answered LeaderAndIsr: some replicas are in failed directories, others are not, or no longer."""
        offline = self._context.offline_replicas
        offline -= {Replica(partition, broker_id) for partition in served}
        new = {Replica(partition, broker_id) for partition in failed} - offline
        offline |= new
        if new:
            logger.warning("%d replicas on broker %d are offline: their log directory failed there", len(new), broker_id)
            await self.on_replicas_offline(sorted(new))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move the leaderships of a broker that asks to shut down; returns the partitions it still leads.

        Raises StaleBrokerEpoch, BrokerNotAvailable.
        """
        context = self._context
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise BrokerNotAvailable(f"Broker id {broker_id} does not exist.")
        if broker_epoch != -1 and broker_epoch < broker.epoch:
            raise StaleBrokerEpoch(
                f"Received controlled shutdown request from an old broker epoch {broker_epoch} for broker {broker_id}. "
                f"Current broker epoch is {broker.epoch}."
            )
        context.shutting_down.add(broker_id)
        led: list[TopicPartition] = []
        followed: list[Replica] = []
        for some in slices(context.replicas_on({broker_id})):
            for replica in some:
                partition = replica.partition
                leadership = context.leaderships.get(partition)
                if leadership is None or len(context.replicas(partition)) == 1 or context.is_being_deleted(partition.topic):
                    continue
                if leadership.state.leader == broker_id:
                    led.append(partition)
                else:
                    followed.append(replica)
            await self._core.pause()
        batch = self._core.batch()
        await self._core.elections.elect_for_shutdown(led, batch)
        await batch.send()
        for some in slices(followed):  # before the states are written, so that it stops to fetch at once; take_offline sends it again
            for replica in some:
                batch.stop_replica((broker_id,), replica.partition, delete=False)
            await self._core.pause()
        await batch.send()
        await self._core.elections.take_offline(followed, batch)
        await batch.send()
        left = ((partition, context.leaderships.get(partition)) for partition in led)  # a state may have become unreadable meanwhile
        return [partition for partition, leadership in left if leadership is not None and leadership.state.leader == broker_id]
