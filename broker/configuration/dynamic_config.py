"""Follows the configurations in the metadata store: those of topics, of this broker, and the cluster's default.

Kafka's ZkConfigManager with its BrokerConfigHandler. `load` reads everything before the logs are opened;
`ottla.controller.admin.config_changes` reports the changes. `topic_config_changes` applies those of topics to the logs, the
replicas and the controller, which are made later.

A new session reads all configurations again, since notifications may be gone after a long disconnection. Owners of other entities
register with `on_reading_again`.

`refresh` reads a topic's configuration before this broker creates its logs. A LeaderAndIsr for a new topic may come
before the notification of its configuration, or after a topic of the same name was deleted. Notifications keep the
configurations of hosted topics up to date.

A malformed node of a topic does not end the start: `KEEPS_RECORDS` counts until it is repaired. That of this broker or of the cluster's
default ends it, because it may hold the security of listeners, or how long records are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from ottla.broker.security.rereading import MalformedNodes, NotAllRead, Rereading
from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import key_of
from ottla.config.errors import ConfigValueError
from ottla.config.passwords import PasswordEncoder
from ottla.config.remote_storage import check_no_topic_is_tiered
from ottla.config.topic import BROKER_KEY_OF, CLEANUP_POLICY, RETENTION_BYTES, RETENTION_MS, TopicConfig
from ottla.controller.admin.config_admin import ConfigAdmin, Malformed
from ottla.controller.admin.config_changes import ConfigChanges
from ottla.controller.errors import StoreError
from ottla.controller.store.metadata_store import MetadataStore
from ottla.controller.znodes.layout import DEFAULT_ENTITY
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

TOPICS = "topics"
BROKERS = "brokers"

KEEPS_RECORDS: Final[Mapping[str, str]] = {CLEANUP_POLICY.name: "delete", RETENTION_MS.name: "-1", RETENTION_BYTES.name: "-1"}
"""The overrides of a topic whose own cannot be read. With the defaults, records that the topic is to keep would be deleted."""

TOPICS_AT_ONCE = 100
"""Topics that are read in one round trip: a broker that starts hosts thousands."""

TOPIC_DEFAULTS: Final = tuple(BROKER_KEY_OF.values())
"""The keys of the broker that are the defaults of topics."""

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
        self._entity_listeners: dict[str, list[EntityChanged]] = {}
        self._readers: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_changed = False
        """Whether a stored configuration has changed since `load`."""
        config.on_change(self._on_topic_defaults, TOPIC_DEFAULTS)

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
        """Call `callback` when an entity of this type (`topics`, `users`, `clients`, `ips`) was changed."""
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

        A failed reading is repeated later, since no notification may follow: a topic would have the defaults, and lose records that it is
        to keep. Raises StoreError.
        """
        try:
            # The controller may know a topic from another server of ZooKeeper, while that of this broker does not have it yet.
            await self._store.catch_up()
            is_complete = await self._refresh(topics)
        except StoreError:
            self._begin_rereading()
            raise
        if not is_complete:
            self._begin_rereading()

    async def _refresh(self, topics: Iterable[str]) -> bool:
        """Whether all configurations could be decoded. Raises StoreError."""
        is_complete = True
        for some in slices(topics, TOPICS_AT_ONCE):
            malformed: dict[str, MalformedZNode] = {}
            found = await self._admin.read_many(TOPICS, some, malformed)
            for topic in some:
                error = malformed.get(topic)
                if error is not None:
                    is_complete = False
                    logger.error("topic %s keeps all records: %s", topic, error)
                self._set_topic(topic, found.get(topic, {}) if error is None else dict(KEEPS_RECORDS))
        return is_complete

    def forget(self, topic: str) -> None:
        """Forget the overrides of a topic that was deleted."""
        if topic in self._topics:
            self._set_topic(topic, {})

    def parse_again(self) -> None:
        """Forget what was parsed: a thread that opens logs may have parsed a configuration just before its change."""
        self._without_overrides = TopicConfig({}, self._config)
        self._topic_configs.clear()

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
        self.has_changed = True
        if entity_type == TOPICS:
            self._set_topic(entity_name, overrides)
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

    async def on_new_session(self) -> None:
        """Follow the changes in the present session, and read all configurations again."""
        await self._changes.on_new_session()
        if self._read_in_session != self._store.session_id:
            # Not here: the controller waits for this call, and there may be many topics.
            self._begin_rereading()

    def _begin_rereading(self) -> None:
        task = asyncio.get_running_loop().create_task(self._rereading.begin(), name="configurations-again")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_again(self) -> None:
        """Apply what is stored, and differs from what this broker knows. Raises StoreError, NotAllRead."""
        session = self._store.session_id
        malformed: dict[str, MalformedZNode] = {}
        broker = await self._read_broker(self._broker_name, self._broker, malformed)
        cluster = await self._read_broker(DEFAULT_ENTITY, self._cluster, malformed)
        topics = await self._read_topics(malformed)
        self.has_changed = True
        if (broker, cluster) != (self._broker, self._cluster):
            self._broker, self._cluster = broker, cluster
            self._update_broker()
        for topic in self._topics.keys() | topics.keys():
            overrides = topics.get(topic, {})
            if overrides != self._topics.get(topic, {}):
                logger.info("configuration of %s/%s changed while there was no session", TOPICS, topic)
                self._on_change(TOPICS, topic, overrides)
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
        self.parse_again()
