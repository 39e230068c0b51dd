"""Bundles the state that the events of one controller share: store, context, writers, senders and the event queue."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.schema.metadata_version import is_at_least
from ottla.controller.errors import NotController, SessionExpired
from ottla.controller.state.channels import BrokerSenders, ControlRequest, ControlResponse
from ottla.controller.state.context import ControllerContext
from ottla.controller.state.deletion import TopicDeletion
from ottla.controller.state.event_queue import EventQueue
from ottla.controller.state.partition_elections import PartitionElections
from ottla.controller.state.partition_states import FIRST_WITH_ALTER_PARTITION, PartitionStates
from ottla.controller.state.request_batch import EVERY_BROKER, RequestBatch
from ottla.controller.store.metadata_store import MetadataStore, Watch, WatchedEvent
from ottla.controller.znodes.topic_ids import frees_names
from ottla.pauses import pause

WhileLarge = Callable[[], AbstractContextManager[None]]
LARGE = 500
"""Partitions of an event or request above which the garbage collector is paused; for fewer the pause costs more than it
saves."""

OnResponse = Callable[[int, ControlRequest, ControlResponse], None]


@dataclass(frozen=True, slots=True)
class EventWatch:
    """A watch that queues an event of the controller.

    Watches of one event are equal, so a path that is read again before its watch fires has one watch of the event. With
    one for each read, the end of a broker would queue as many events, and each of them would watch all other brokers again.
    """

    core: "ControllerCore"
    name: str
    event: Callable[[], Awaitable[None]]

    def __call__(self, _: WatchedEvent) -> None:
        self.core.put(self.name, self.event)


class ControllerCore:
    """The shared parts. Owned by `Controller`, passed to the modules of its events."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        config: BrokerConfig,
        queue: EventQueue,
        senders: BrokerSenders,
        inter_broker_listener: str,
        while_large: WhileLarge,
        finalized: Callable[[], Mapping[str, int]],
        on_response: OnResponse,
        on_refused: Callable[[], None],
        on_deletion_progress: Callable[[], None],
    ) -> None:
        """`finalized` returns the finalized levels of features, as this broker knows them. `on_response` is called for every answer of a
        broker. For the other callbacks see `PartitionStates` and `TopicDeletion`."""
        self.store = store
        self.broker_id = broker_id
        self.config = config
        self.finalized = finalized
        self.while_large = while_large
        """Entered while many long-lived objects are added to the context."""
        self.queue = queue
        self.senders = senders
        self.is_active = False
        self.context = ControllerContext()
        asks_controller = is_at_least(config[INTER_BROKER_PROTOCOL_VERSION], FIRST_WITH_ALTER_PARTITION)
        self.states = PartitionStates(store, self.context, self.pause, on_refused, leaders_write=not asks_controller)
        self.elections = PartitionElections(store, self.context, self.states, config, self.pause)
        self.deletion = TopicDeletion(
            store, self.context, self.states, self.pause, on_deletion_progress, waits_for_offline_replicas=not frees_names(config)
        )
        self._inter_broker_listener = inter_broker_listener
        self.on_response = on_response

    def while_many(self, partitions: int) -> AbstractContextManager[None]:
        """The context for work that makes objects for this number of partitions."""
        return self.while_large() if partitions >= LARGE else nullcontext()

    def batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(self.broker_id, self.context, self.senders, self._inter_broker_listener, self.on_response, self.pause)

    async def pause(self) -> None:
        """Yield to work other than events, for events that visit very many elements.

        No other event runs meanwhile, so the context does not change. The session may end, which ends the event too.
        Raises SessionExpired.
        """
        await pause()
        if not self.is_active:
            raise SessionExpired("")

    def watch(self, name: str, event: Callable[[], Awaitable[None]]) -> Watch:
        """A watch that queues `event`; watches of equal events are equal."""
        return EventWatch(self, name, event)

    def put(self, name: str, event: Callable[[], Awaitable[None]]) -> None:
        """Queue `event`; it is skipped unless this controller is still active under the same epoch when its turn comes."""
        epoch = self.context.epoch

        async def if_active() -> None:
            if self.is_active and self.context.epoch == epoch:
                await event()

        self.queue.put(name, if_active)

    def check_active(self) -> None:
        """Raises NotController."""
        if not self.is_active:
            raise NotController("This is not the correct controller for this cluster.")

    async def send_metadata_to_all(self) -> None:
        """Send the set of live brokers to every broker."""
        batch = self.batch()
        batch.update_metadata(EVERY_BROKER, ())
        await batch.send()
