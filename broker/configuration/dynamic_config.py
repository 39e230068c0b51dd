"""Applies the configurations in the metadata store to this broker: those of topics, of this broker, and the cluster's
default.

Kafka's ZkConfigManager with its TopicConfigHandler and BrokerConfigHandler. `load` reads everything before the logs are
opened, `attach` applies changes to the logs and the controller from then on; `ottla.controller.admin.config_changes` reports
the changes.

A new session reads all configurations again, since notifications may be gone after a long disconnection. Owners of other entities
register with `on_reading_again`.

`refresh` reads a topic's configuration before this broker creates its logs. A LeaderAndIsr for a new topic may come
before the notification of its configuration, or after a topic of the same name was deleted. Notifications keep the
configurations of hosted topics up to date. There is none of a deletion: `forget` drops what deleted topics leave.

A malformed node of a topic does not end the start: `KEEPS_RECORDS` counts until it is repaired. That of this broker or of the cluster's
default ends it, because it may hold the security of listeners, or how long records are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Final

from ottla.broker.security.rereading import MalformedNodes, NotAllRead, Rereading
from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import key_of
from ottla.config.errors import ConfigValueError
from ottla.config.keys.replication import UNCLEAN_LEADER_ELECTION_ENABLE as BROKER_UNCLEAN_LEADER_ELECTION_ENABLE
from ottla.config.passwords import PasswordEncoder
from ottla.config.remote_storage import check_no_topic_is_tiered
from ottla.config.topic import BROKER_KEY_OF, CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS, UNCLEAN_LEADER_ELECTION_ENABLE, TopicConfig
from ottla.controller.admin.config_admin import ConfigAdmin, Malformed
from ottla.controller.admin.config_changes import ConfigChanges
from ottla.controller.controller import Controller
from ottla.controller.errors import StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import DEFAULT_ENTITY
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import begin
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage.disk.clock import Clock
from ottla.storage.disk.rounds import visit_all
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

TOPICS = "topics"
BROKERS = "brokers"

KEEPS_RECORDS: Final[Mapping[str, str]] = {CLEANUP_POLICY.name: "delete", RETENTION_MS.name: "-1", RETENTION_BYTES.name: "-1"}
"""The overrides of a topic whose own cannot be read. With the defaults, records that the topic is to keep would be deleted."""

TOPICS_AT_ONCE = 100
"""Topics that are read in one round trip: a broker that starts hosts thousands."""

_TOPIC_DEFAULTS = tuple(BROKER_KEY_OF.values())

EntityChanged = Callable[[str, dict[str, str]], None]
"""Sanitized entity name and all its overrides."""


class DynamicConfig:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        admin: ConfigAdmin,
        broker_id: int,
        clock: Clock,
        old_passwords: PasswordEncoder | None = None,
    ) -> None:
        """`old_passwords` is the encoder of `password.encoder.old.secret`."""
        self._old_passwords = old_passwords
        self._config = config
        self._admin = admin
        self._broker_name = str(broker_id)
        self._store = store
        self._changes = ConfigChanges(store, clock, self._on_change, self._begin_rereading)
        self._rereading = Rereading("configurations", lambda: self._changes.undisturbed(self._read_again))
        self._malformed = MalformedNodes("%s keeps its former configuration; a topic without one keeps all records")
        self._read_in_session = 0
        self._broker: dict[str, str] = {}
        self._cluster: dict[str, str] = {}
        self._without_effect: set[str] = set()
        self._topics: dict[str, dict[str, str]] = {}
        """The overrides of topics that have any."""
        self._topic_configs: dict[str, TopicConfig] = {}
        self._without_overrides = TopicConfig({}, config)
        self._log_manager: LogManager | None = None
        self._replica_manager: ReplicaManager | None = None
        self._controller: Controller | None = None
        self._entity_listeners: dict[str, list[EntityChanged]] = {}
        self._readers: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed_while_loading = False

    # Lifecycle

    async def load(self) -> None:
        """Apply the stored configurations, and listen for changes from now on. Raises StoreError, MalformedZNode for the
        configuration of this broker or the cluster's default, and ConfigError for a tiered topic on a broker without a remote store."""
        await self._changes.start()
        self._read_in_session = self._store.session_id
        if self._old_passwords is not None:
            await self._admin.encode_passwords_again(self._old_passwords)
        self._broker = await self._admin.read(BROKERS, self._broker_name)
        self._cluster = await self._admin.read(BROKERS, DEFAULT_ENTITY)
        self._update_broker(at_start=True)
        malformed: dict[str, MalformedZNode] = {}
        for topic, overrides in (await self._read_topics(malformed)).items():
            self._set_topic(topic, overrides)
        check_no_topic_is_tiered(self._config, self._topics.values())
        self._without_overrides = TopicConfig({}, self._config)
        try:
            self._malformed.report(malformed)
        except NotAllRead:
            await self._rereading.begin_later()

    def attach(self, log_manager: LogManager, replica_manager: ReplicaManager, controller: Controller) -> None:
        """Apply changes to these from now on."""
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._controller = controller
        self._config.on_change(self._on_topic_defaults, _TOPIC_DEFAULTS)
        self._config.on_change(self._on_unclean_election_default, [BROKER_UNCLEAN_LEADER_ELECTION_ENABLE])
        replica_manager.leadership_listeners.append(lambda partition: self.forget([partition.topic_partition.topic]))
        controller.on_new_session(self._on_new_session)
        if self._changed_while_loading:
            self._on_topic_defaults(frozenset())

    async def close(self) -> None:
        """Stop listening. May be called twice."""
        await self._changes.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._rereading.stop()

    async def catch_up(self) -> None:
        """Process all notifications up to now, so that this broker applies its own preceding change."""
        try:
            await self._changes.process()
        except StoreError as error:
            logger.warning("configuration changes cannot be read now (%s); they will be read with the next notification", error)

    async def undisturbed(self, read: Callable[[], Awaitable[None]]) -> None:
        """Await `read` while no change is reported, so that it may replace what was reported."""
        await self._changes.undisturbed(read)

    async def read_first(self, read: Callable[[], Awaitable[None]]) -> None:
        """The same for the first call of a `read` that `on_reading_again` has. Nodes that it leaves out are read later."""
        try:
            await self.undisturbed(read)
        except NotAllRead:
            await self._rereading.begin_later()

    def on_entity_change(self, entity_type: str, callback: EntityChanged) -> None:
        """Call `callback` when an entity of this type (`users`, `clients`, `ips`) was changed."""
        self._entity_listeners.setdefault(entity_type, []).append(callback)

    def on_reading_again(self, read: Callable[[], Awaitable[None]]) -> None:
        """Await `read` in each new session, while no change is reported. After a StoreError, MalformedZNode or NotAllRead it is
        repeated."""
        self._readers.append(read)

    # Topics

    def topic_config_of(self, topic: str) -> TopicConfig:
        """The last known effective configuration of a topic; the defaults for any other. Thread-safe."""
        overrides = self._topics.get(topic)
        if overrides is None:
            return self._without_overrides
        config = self._topic_configs.get(topic)
        if config is None:
            config = self._topic_configs[topic] = self._parsed(topic, overrides)
        return config

    async def overrides_of_topics(self, topics: Iterable[str]) -> dict[str, dict[str, str] | StoreError | MalformedZNode]:
        """The stored overrides of topics, which need not be hosted here, or why those of one cannot be read. Raises StoreError."""
        return await self._admin.read_each(TOPICS, topics)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Read the configurations of topics whose logs are about to be created. KEEPS_RECORDS stands for one that cannot be
        decoded.

        Raises StoreError.
        """
        for some in slices(topics, TOPICS_AT_ONCE):
            malformed: dict[str, MalformedZNode] = {}
            found = await self._admin.read_many(TOPICS, some, malformed)
            for topic in some:
                error = malformed.get(topic)
                if error is not None:
                    logger.error("topic %s keeps all records: %s", topic, error)
                self._set_topic(topic, found.get(topic, {}) if error is None else dict(KEEPS_RECORDS))

    def forget(self, topics: Iterable[str]) -> None:
        """Forget the overrides of those topics that were deleted: neither the metadata nor the replicas here have them.

        To be called for topics that leave the metadata. For those that leave the replicas it is called already.
        """
        replicas = self._replica_manager
        if replicas is None:
            return
        for topic in topics:
            if topic in self._topics and topic not in replicas.partitions and topic not in replicas.cluster.topics:
                self._set_topic(topic, {})

    def _set_topic(self, topic: str, overrides: dict[str, str]) -> None:
        self._topic_configs.pop(topic, None)
        if overrides:
            self._topics[topic] = overrides
        else:
            self._topics.pop(topic, None)

    def _parsed(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        usable = dict(overrides)
        while True:
            try:
                return TopicConfig(usable, self._config)
            except ConfigValueError as bad:
                # Another version or an operator wrote it: the topic is served with the other overrides.
                if bad.name in KEEPS_RECORDS and not usable.items() >= KEEPS_RECORDS.items():
                    logger.error(
                        "topic %s: %s; this override is ignored and all records are kept, correct it with kafka-configs.sh", topic, bad
                    )
                    usable |= KEEPS_RECORDS
                else:
                    logger.error("topic %s: %s; this override is ignored, correct it with kafka-configs.sh", topic, bad)
                    del usable[bad.name]

    # Changes

    def _on_change(self, entity_type: str, entity_name: str, overrides: dict[str, str]) -> None:
        # Opening all logs may take minutes; each uses the configuration known at that moment.
        self._changed_while_loading |= self._log_manager is None
        if entity_type == TOPICS:
            self._on_topic(entity_name, overrides)
        elif entity_type == BROKERS:
            if entity_name == DEFAULT_ENTITY:
                self._cluster = overrides
            elif entity_name == self._broker_name:
                self._broker = overrides
            else:
                return
            self._update_broker()
        for callback in self._entity_listeners.get(entity_type, ()):
            callback(entity_name, overrides)

    def _on_topic(self, topic: str, overrides: dict[str, str]) -> None:
        self._set_topic(topic, overrides)
        self._put_in_force(topic)
        if overrides.get(UNCLEAN_LEADER_ELECTION_ENABLE.name, "").strip().lower() == "true":
            self._enable_unclean_election(topic)

    async def _on_new_session(self) -> None:
        await self._changes.on_new_session()
        if self._read_in_session != self._store.session_id:
            # Not here: the controller waits for this call, and there may be many topics.
            self._begin_rereading()

    def _begin_rereading(self) -> None:
        self._in_task(self._rereading.begin(), "configurations-again")

    async def _read_again(self) -> None:
        """Apply what is stored, and differs from what this broker knows. Raises StoreError, NotAllRead."""
        session = self._store.session_id
        malformed: dict[str, MalformedZNode] = {}
        broker = await self._read_broker(self._broker_name, self._broker, malformed)
        cluster = await self._read_broker(DEFAULT_ENTITY, self._cluster, malformed)
        topics = await self._read_topics(malformed)
        self._changed_while_loading |= self._log_manager is None
        if (broker, cluster) != (self._broker, self._cluster):
            self._broker, self._cluster = broker, cluster
            self._update_broker()
        for topic in self._topics.keys() | topics.keys():
            overrides = topics.get(topic, {})
            if overrides != self._topics.get(topic, {}):
                logger.info("configuration of %s/%s changed while there was no session", TOPICS, topic)
                self._on_topic(topic, overrides)
        all_read = True
        for read in self._readers:
            try:
                await read()
            except NotAllRead:
                all_read = False
        self._read_in_session = session
        self._malformed.report(malformed)
        if not all_read:
            raise NotAllRead

    async def _read_broker(self, name: str, former: dict[str, str], malformed: Malformed) -> dict[str, str]:
        """The stored configuration of a broker or of all; the former one if the node is malformed."""
        try:
            return await self._admin.read(BROKERS, name)
        except MalformedZNode as error:
            malformed[f"{BROKERS}/{name}"] = error
            return former

    async def _read_topics(self, malformed: Malformed) -> dict[str, dict[str, str]]:
        """The stored overrides of all topics. Those of a malformed node are the former ones, or KEEPS_RECORDS."""
        of_topics: dict[str, MalformedZNode] = {}
        found = await self._admin.read_all(TOPICS, of_topics)
        for topic, error in of_topics.items():
            malformed[f"{TOPICS}/{topic}"] = error
            found[topic] = self._topics.get(topic) or dict(KEEPS_RECORDS)
        return found

    def _update_broker(self, *, at_start: bool = False) -> None:
        self._name_without_effect()
        self._config.update_dynamic(self._admin.decoded(self._broker), self._admin.decoded(self._cluster), at_start=at_start)

    def _name_without_effect(self) -> None:
        """Log each stored setting once that Apache Kafka acts on and this broker does not."""
        names = {name for name in (*self._broker, *self._cluster) if (key := key_of(name)) is not None and not key.effective}
        new = sorted(names - self._without_effect)
        self._without_effect = names
        if new:
            logger.warning("the dynamic configuration has settings without effect in this server: %s", ", ".join(new))

    def _on_topic_defaults(self, _: frozenset[str]) -> None:
        """A broker key that is the default of a topic key changed: the configuration of every topic may have changed."""
        self._without_overrides = TopicConfig({}, self._config)
        self._topic_configs.clear()
        self._put_in_force(None)

    def _put_in_force(self, topic: str | None) -> None:
        """Apply the configuration to the logs of one topic, or of all, with pauses."""
        logs, replicas = self._log_manager, self._replica_manager
        if logs is None or replicas is None:
            return

        def put(log: PartitionLog) -> None:
            name = log.topic_partition.topic
            if topic in (None, name) and not log.is_closed:
                logs.update_config(log, self.topic_config_of(name))
                replicas.on_config_change(log)

        begin(visit_all("topic-config", logs.all_logs(), put))

    def _on_unclean_election_default(self, _: frozenset[str]) -> None:
        if self._config[BROKER_UNCLEAN_LEADER_ELECTION_ENABLE]:
            self._enable_unclean_election(None)

    def _enable_unclean_election(self, topic: str | None) -> None:
        if self._controller is None:
            return
        self._in_task(self._controller.enable_unclean_election(topic), "unclean-election")

    def _in_task(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
