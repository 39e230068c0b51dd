"""Runs the controller of a broker; one controller of the cluster is active. Kafka's KafkaController.

The active controller brings the cluster to the state in the metadata store: it elects leaders, sends requests to
brokers and deletes topics. Everything happens as an event of one queue; watches, responses and the public methods only
put events there. A controller that loses /controller, or finds another epoch there, resigns and drops its state.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial

from ottla.config.broker import BrokerConfig
from ottla.config.keys.zookeeper import ZOOKEEPER_SESSION_TIMEOUT_MS
from ottla.controller.admin.producer_ids import allocate_block
from ottla.controller.candidacy import Won, run_for_election
from ottla.controller.errors import (
    BrokerIdNotRegistered,
    ControllerError,
    ControllerMoved,
    NoNode,
    NotController,
    SessionExpired,
    StaleBrokerEpoch,
    StoreError,
)
from ottla.controller.events.broker_changes import BrokerChanges
from ottla.controller.events.broker_responses import BrokerResponses
from ottla.controller.events.failover import Failover
from ottla.controller.events.feature_updates import FeatureOutcome, FeatureUpdate, FeatureUpdates
from ottla.controller.events.isr_changes import AlterPartitionEvents, IsrChange, IsrResult
from ottla.controller.events.leader_elections import ElectionResult, LeaderElections
from ottla.controller.events.leader_rebalance import LeaderRebalance
from ottla.controller.events.reassignment import AlterError, Reassignments, Targets
from ottla.controller.events.refused_writes import RefusedWrites
from ottla.controller.events.topic_changes import TopicChanges
from ottla.controller.registration import IsListening, RandomBytes, never_listening, register_broker
from ottla.controller.state.channels import BrokerSenders, ChannelFactory, ControlRequest, ControlResponse
from ottla.controller.state.context import ControllerContext
from ottla.controller.state.core import ControllerCore, WhileLarge
from ottla.controller.state.event_queue import EventQueue, OnEventDone
from ottla.controller.store.metadata_store import Delete, Exists, Get, MetadataStore, data_and_stat
from ottla.controller.znodes.changes import ProducerIdBlock
from ottla.controller.znodes.layout import (
    CONTROLLER,
    BrokerRegistration,
    decode_controller,
)
from ottla.controller.znodes.pauses import clear_in_slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.senders import OnSent, Senders
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

NO_CONTROLLER = -1
SESSION_RETRY_SECONDS = 0.5
ELECTION_RETRY_SECONDS = 2.0
"""Pause before another attempt to find out or elect the controller after one has failed, seconds."""
SESSION_PATIENCE = 1.5
"""Session timeouts that a broker waits for the end of its session before a restart: ZooKeeper ends a session up to a
tick late."""


class Controller:
    """The controller of one broker, active or not."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        config: BrokerConfig,
        clock: Clock,
        random_bytes: RandomBytes,
        channel_to: ChannelFactory,
        inter_broker_listener: str,
        registration: Callable[[], BrokerRegistration],
        is_listening: IsListening = never_listening,
        while_large: WhileLarge = nullcontext,
        finalized: Callable[[], Mapping[str, int]] = dict,
        on_deletion_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """`registration` gives the registration of this broker, at startup and again after its session expired.
        `is_listening` distinguishes a live broker from one that died a moment ago when the id is taken.
        `while_large` is entered while very many topics are loaded. `finalized` returns the finalized levels of features,
        as this broker knows them. `on_deletion_progress` is called for every deletion of a topic that is finished, suspended or left to
        another controller."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.active_controller_id = NO_CONTROLLER
        self._store = store
        self._clock = clock
        self._registration = registration
        self._is_listening = is_listening
        self._registration_patience = config[ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000 * SESSION_PATIENCE
        self._queue = EventQueue(self._on_event_error, clock.monotonic)
        senders: BrokerSenders = Senders("controller", channel_to, clock.monotonic)
        self._core = ControllerCore(
            store,
            broker_id,
            config,
            self._queue,
            senders,
            inter_broker_listener,
            while_large,
            finalized,
            self._on_response,
            self._on_refused,
            on_deletion_progress,
        )
        self._reassignments = Reassignments(self._core)
        self._brokers = BrokerChanges(self._core, self._reassignments)
        self._responses = BrokerResponses(self._core, self._brokers)
        self._topics = TopicChanges(self._core, self._reassignments, random_bytes)
        self._elections = LeaderElections(self._core)
        self._rebalance = LeaderRebalance(self._core, self._elections)
        self._refused_writes = RefusedWrites(self._core, self._brokers, self._reassignments)
        self._isr_changes = AlterPartitionEvents(self._core, self._reassignments)
        self._feature_updates = FeatureUpdates(self._core)
        self._failover = Failover(self._core, self._brokers, self._topics, self._elections, self._reassignments)
        self._on_new_session: list[Callable[[], Awaitable[None]]] = []
        self._registered_session = 0
        """The store's session in which this broker registered and took part in an election."""
        self._election_retry: asyncio.TimerHandle | None = None
        store.on_session_expired(self._on_expired)

    @property
    def is_active(self) -> bool:
        """Whether this broker's controller is the active one."""
        return self._core.is_active

    @property
    def context(self) -> ControllerContext:
        """The state of the active controller; empty otherwise. Read only."""
        return self._core.context

    @property
    def event_queue_size(self) -> int:
        """Events that wait in the queue."""
        return len(self._queue)

    @property
    def current_event(self) -> str | None:
        """The event that is being handled."""
        return self._queue.current

    @property
    def request_queue_sizes(self) -> dict[int, int]:
        """Number of requests of the active controller that wait to be sent, by broker."""
        return self._core.senders.queue_sizes

    def measure(self, on_event: OnEventDone, on_sent: OnSent) -> None:
        """Set the callbacks of metrics: for every event, and for every request when it leaves its broker's queue."""
        self._queue.on_done = on_event
        self._core.senders.on_sent = on_sent

    @property
    def unclean_elections(self) -> int:
        """Number of unclean leader elections by this controller."""
        return self._core.elections.unclean_elections

    def on_new_session(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback` after each registration of the broker, so that it can set watches again that ended with an
        earlier session."""
        self._on_new_session.append(callback)

    # Lifecycle

    async def startup(self) -> int:
        """Register the broker, take part in the election, and return the broker epoch. Whether this controller is
        active is known afterwards.

        Raises BrokerIdInUse, StoreError.
        """
        self._queue.start()
        while True:
            try:
                return await self._queue.call("Startup", self._join)
            except (SessionExpired, NotController):  # NotController if the event was dropped while it waited
                if self._queue.is_closed:
                    raise
                logger.warning("the session ended while broker %d registered; it registers in a new one", self.broker_id)

    async def shutdown(self) -> None:
        """Stop; the ephemeral nodes end with the store's session, which the caller closes."""
        if self._election_retry is not None:
            self._election_retry.cancel()
        await self._queue.stop()
        await self._resign()

    async def _join(self) -> int:
        """Register in the current session, or in a new one, and take part in the election. Returns the broker epoch."""
        session = await self._store.open_session()
        if self._registered_session != session:
            self.broker_epoch = await register_broker(
                self._store, self.broker_id, self._registration(), self._registration_patience, self._is_listening
            )
            while True:
                try:
                    await self._elect()
                    break
                except ControllerMoved as error:
                    logger.info("broker %d: %s", self.broker_id, error)
                    await self._resign()
            self._registered_session = session
            for callback in self._on_new_session:
                await callback()
        return self.broker_epoch

    async def _elect(self) -> None:
        """Become controller if there is none; find out and watch which broker is in any case."""
        outcome = await run_for_election(self._store, self.broker_id, self._clock, self._controller_watch)
        if isinstance(outcome, Won):
            await self._become_active(outcome)
        else:
            self.active_controller_id = outcome

    async def _become_active(self, won: Won) -> None:
        context = self._core.context
        context.clear()
        context.epoch, context.epoch_version = won
        self._core.deletion.clear()
        self._core.is_active = True
        self.active_controller_id = self.broker_id
        logger.info("broker %d is controller now, epoch %d", self.broker_id, won.epoch)
        try:
            await self._failover.take_over()
        except (ControllerMoved, SessionExpired):
            raise
        except Exception:
            logger.error("broker %d cannot become controller; it resigns so that another broker is elected", self.broker_id)
            await self._step_down()
            raise
        self._rebalance.begin()

    async def _step_down(self) -> None:
        """Remove /controller if it still belongs to this controller, so that another broker is elected."""
        try:
            await self._core.states.write([Delete(CONTROLLER)])
        except (ControllerMoved, StoreError) as error:
            logger.warning("/controller was not removed: %s", error)
        await self._resign()

    async def _resign(self) -> None:
        if self._core.is_active:
            logger.info("broker %d is no longer controller (epoch %d)", self.broker_id, self._core.context.epoch)
        self._core.is_active = False
        self._rebalance.end()
        self._refused_writes.end()
        await self._core.senders.remove_all()
        dropped = self._core.context.clear()
        self._core.deletion.clear()
        await clear_in_slices(dropped)

    def _controller_watch(self, _: object) -> None:
        self._queue.put("ControllerChange", self._on_controller_change)

    async def _on_controller_change(self) -> None:
        """/controller was created, deleted or changed. An attempt that fails is repeated after a pause, as perhaps no event follows."""
        try:
            await self._follow_controller()
        except (ControllerMoved, SessionExpired):
            raise
        except Exception:
            if self._election_retry is None:
                self._election_retry = asyncio.get_running_loop().call_later(ELECTION_RETRY_SECONDS, self._follow_again)
            raise

    def _follow_again(self) -> None:
        self._election_retry = None
        self._controller_watch(None)

    async def _follow_controller(self) -> None:
        """Resign if another broker is controller, and take part in the election if there is none."""
        _, found = await self._store.pipeline([Exists(CONTROLLER, self._controller_watch), Get(CONTROLLER)])
        if isinstance(found, NoNode):
            self.active_controller_id = NO_CONTROLLER
        else:
            data, stat = data_and_stat(found)
            self.active_controller_id = decode_controller(CONTROLLER, data).broker_id
            if stat.ephemeral_owner == self._store.session_id:
                if not self._core.is_active and self._election_retry is None:
                    await self._elect()
                return
        if self._core.is_active:
            await self._resign()
        if self.active_controller_id == NO_CONTROLLER and self._election_retry is None:
            await self._elect()

    def _on_expired(self) -> None:
        """Stop deciding, writing and sending under the old epoch; events that wait were meant for it and are dropped."""
        self._core.is_active = False
        self._rebalance.end()
        self._refused_writes.end()
        self._core.senders.halt()
        self._queue.put_alone("Expire", self._on_session_expired)

    async def _on_session_expired(self) -> None:
        """All ephemeral nodes are gone: resign, register again, take part in the next election."""
        if self._registered_session == self._store.session_id != 0:
            return  # an attempt failed because the next session ended too; the event of that end made up for it
        self.active_controller_id = NO_CONTROLLER
        await self._resign()
        try:
            await self._join()
        except Exception as error:  # any: without another attempt the broker would never serve the cluster again
            fault = None if isinstance(error, StoreError | ControllerError | MalformedZNode) else error
            logger.error(
                "broker %d cannot register again after its session expired (%s); trying again", self.broker_id, error, exc_info=fault
            )
            retry = partial(self._queue.put, "Expire", self._on_session_expired)
            asyncio.get_running_loop().call_later(SESSION_RETRY_SECONDS, retry)

    def _on_response(self, broker_id: int, request: ControlRequest, response: ControlResponse) -> None:
        self._responses.on_response(broker_id, request, response)

    def _on_refused(self) -> None:
        self._refused_writes.on_refused()

    async def _on_event_error(self, error: Exception) -> None:
        if isinstance(error, ControllerMoved):
            logger.info("broker %d: %s", self.broker_id, error)
            await self._on_controller_change()
        elif isinstance(error, StoreError) and not isinstance(error, SessionExpired):
            logger.error("the controller could not carry out a change: %s", error)
            self._refused_writes.on_refused()
        elif not isinstance(error, ControllerError | StoreError):  # a fault, which the queue has logged: what it left out is due, too
            self._refused_writes.on_refused()

    # Operations for request handlers

    async def elect_leaders(self, partitions: Sequence[TopicPartition] | None, *, unclean: bool) -> dict[TopicPartition, ElectionResult]:
        """ElectLeaders; None means all partitions. Raises NotController."""

        async def elect() -> dict[TopicPartition, ElectionResult]:
            self._core.check_active()
            return await self._elections.elect(list(self.context.partitions) if partitions is None else partitions, unclean=unclean)

        return await self._queue.ask("ReplicaLeaderElection", elect)

    async def alter_isr(
        self, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, IsrResult]:
        """AlterPartition. Raises NotController, BrokerIdNotRegistered, StaleBrokerEpoch."""

        async def alter() -> dict[TopicPartition, IsrResult]:
            self._core.check_active()
            return await self._isr_changes.alter(broker_id, broker_epoch, changes)

        return await self._queue.ask("AlterPartition", alter)

    async def alter_reassignments(self, targets: Targets, *, may_change_factor: bool = True) -> dict[TopicPartition, AlterError | None]:
        """AlterPartitionReassignments: for each partition None, or the reason why its reassignment was not started or
        cancelled. Raises NotController."""

        async def alter() -> dict[TopicPartition, AlterError | None]:
            self._core.check_active()
            return await self._reassignments.alter(targets, may_change_factor=may_change_factor)

        return await self._queue.ask("ApiPartitionReassignment", alter)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool, all_or_none: bool) -> FeatureOutcome:
        """UpdateFeatures. Raises NotController, FeatureUpdateFailed, StoreError."""

        async def update() -> FeatureOutcome:
            self._core.check_active()
            return await self._feature_updates.update(updates, validate_only=validate_only, all_or_none=all_or_none)

        return await self._queue.ask("UpdateFeatures", update)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """ControlledShutdown: the partitions the broker still leads. Raises NotController, StaleBrokerEpoch,
        BrokerNotAvailable."""

        async def leave() -> list[TopicPartition]:
            self._core.check_active()
            return await self._brokers.controlled_shutdown(broker_id, broker_epoch)

        return await self._queue.ask("ControlledShutdown", leave)

    async def order_deletions(self, topics: Mapping[str, bytes]) -> list[str]:
        """DeleteTopics by id: request the deletion of the topics that have these ids, and return the names of the
        others.

        Only events of the active controller delete topics, so none of these names can come to mean another topic
        meanwhile. Raises NotController, StoreError.
        """

        async def order() -> list[str]:
            self._core.check_active()
            return await self._topics.order_deletions(topics)

        return await self._queue.ask("TopicDeletionById", order)

    async def allocate_producer_id_block(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """AllocateProducerIds. Raises NotController, BrokerIdNotRegistered, StaleBrokerEpoch."""

        async def allocate() -> ProducerIdBlock:
            self._core.check_active()
            broker = self.context.brokers.get(broker_id)
            if broker is None:
                raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
            if broker.epoch != broker_epoch:
                raise StaleBrokerEpoch(f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}")
            return await allocate_block(self._store, broker_id)

        return await self._queue.ask("AllocateProducerIds", allocate)

    async def enable_unclean_election(self, topic: str | None) -> None:
        """unclean.leader.election.enable was set for a topic, or as the default (None): partitions without a leader may
        get one."""

        async def elect() -> None:
            if self._core.is_active:
                batch = self._core.batch()
                offline = await self._core.elections.offline_partitions()
                await self._core.elections.elect_offline([each for each in offline if topic in (None, each.topic)], batch)
                await batch.send()

        with suppress(NotController):
            await self._queue.ask("UncleanLeaderElectionEnable" if topic is None else "TopicUncleanLeaderElectionEnable", elect)

    async def rebalance_leaders(self) -> None:
        """Elect preferred leaders now where the imbalance is too large, whatever the value of `auto.leader.rebalance.enable`."""

        async def rebalance() -> None:
            if self._core.is_active:
                await self._elections.rebalance()

        with suppress(NotController):
            await self._queue.ask("AutoPreferredReplicaLeaderElection", rebalance)

    async def delivered(self) -> None:
        """Wait until the events queued now are handled and the requests that follow from them have been answered."""

        async def nothing() -> None:
            return

        while True:
            try:
                await self._queue.call("Barrier", nothing)
                break
            except NotController:  # the session ended, and waiting events were dropped
                if self._queue.is_closed:
                    raise
        await self._core.senders.delivered()
