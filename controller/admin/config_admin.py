"""Reads and changes the configurations of topics, brokers and quota entities, with the error texts of Kafka's
ZkAdminManager.

A change writes the new overrides to the entity's node, then a notification under /config/changes, from which every
broker learns of it (`config_changes`). Works on any broker. Called by the request handlers.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import key_of
from ottla.config.dynamic import is_password
from ottla.config.errors import ConfigError, TopicConfigError
from ottla.config.passwords import PasswordEncoder, UndecodablePassword
from ottla.config.schema.key import Key
from ottla.config.schema.types import ConfigKind, java_int
from ottla.config.topic import TOPIC_KEYS, validate_topic_overrides
from ottla.controller.errors import (
    BadVersion,
    InvalidAdminRequest,
    InvalidTopicConfig,
    InvalidTopicName,
    NodeExists,
    NoNode,
    StoreError,
    UnknownTopicOrPartition,
)
from ottla.controller.store.metadata_store import (
    Check,
    Children,
    Create,
    Exists,
    Get,
    MetadataStore,
    Multi,
    Request,
    SetData,
    Stat,
    data_and_stat,
    names,
    parent_of,
)
from ottla.controller.znodes.changes import decode_config, encode_config, encode_config_change
from ottla.controller.znodes.layout import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    CONTROLLER,
    DEFAULT_ENTITY,
    config_path,
    config_type_path,
    desanitize,
    topic_path,
)
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.topic_names import validate_topic_name
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.schema.wire import MAX_STRING_BYTES

logger = logging.getLogger(__name__)

MAX_CONFIG_BYTES = 1_000_000
"""Longest configuration of an entity, bytes; ZooKeeper refuses a node of 1 MiB, and closes the connection on which it comes."""
_ENTITIES_AT_ONCE = 100


class OpType(IntEnum):
    """The kind of an incremental change to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOp(NamedTuple):
    """One incremental change. `value` is None for DELETE only."""

    name: str
    value: str | None
    op: OpType


Change = Callable[[dict[str, str]], dict[str, str]]
Malformed = MutableMapping[str, MalformedZNode]
"""Why the node of an entity cannot be read, by the entity's name."""


class ConfigAdmin:
    """Administration of configurations."""

    def __init__(self, store: MetadataStore, broker_id: int, config: BrokerConfig, passwords: PasswordEncoder | None = None) -> None:
        """`passwords` encrypts the passwords in dynamic configurations; without it none can be stored."""
        self.passwords = passwords
        self._store = store
        self._broker_id = broker_id
        self._config = config

    # Reading

    async def read(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """The overrides of one entity; empty when it has no node. `entity_name` is sanitized, or `<default>`."""
        path = config_path(entity_type, entity_name)
        (outcome,) = await self._store.pipeline([Get(path)])
        return {} if isinstance(outcome, NoNode) else decode_config(path, data_and_stat(outcome)[0])

    async def read_each(self, entity_type: str, entities: Iterable[str]) -> dict[str, dict[str, str] | StoreError | MalformedZNode]:
        """The overrides of these entities by name, in one round trip: empty for those that have no node, or the error of one."""
        paths = {entity: config_path(entity_type, entity) for entity in entities}
        outcomes = await self._store.pipeline([Get(path) for path in paths.values()]) if paths else []
        found: dict[str, dict[str, str] | StoreError | MalformedZNode] = {}
        for (entity, path), outcome in zip(paths.items(), outcomes, strict=True):
            try:
                found[entity] = {} if isinstance(outcome, NoNode) else decode_config(path, data_and_stat(outcome)[0])
            except (StoreError, MalformedZNode) as error:
                found[entity] = error.with_traceback(None)
        return found

    async def read_all(self, entity_type: str, malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
        """The overrides of all entities of a type, by name. `malformed`: see `read_many`."""
        return await self.read_many(entity_type, await self._store.children(config_type_path(entity_type)), malformed)

    async def read_user_clients(self, users: Sequence[str] | None = None, malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
        """The overrides of the pairs of user and client id, as `user/clients/client`; of all users, or of these. `malformed`: see
        `read_many`."""
        if users is None:
            users = await self._store.children(config_type_path("users"))
        pairs = []
        for some in slices(users, _ENTITIES_AT_ONCE):
            outcomes = await self._store.pipeline([Children(f"{config_path('users', user)}/clients") for user in some])
            for user, outcome in zip(some, outcomes, strict=True):
                if not isinstance(outcome, NoNode):
                    pairs += [f"{user}/clients/{client}" for client in names(outcome)]
        return await self.read_many("users", pairs, malformed)

    async def read_many(self, entity_type: str, entities: Sequence[str], malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
        """The overrides of these entities by name, without those that have no node; reads a number of them per round
        trip. Entities with a malformed node are left out and added to `malformed`; without it MalformedZNode is raised.
        Entities whose name no answer could carry are left out, too."""
        found = {}
        for first in range(0, len(entities), _ENTITIES_AT_ONCE):
            some = filter(_can_be_answered, entities[first : first + _ENTITIES_AT_ONCE])
            paths = {entity: config_path(entity_type, entity) for entity in some}
            outcomes = await self._store.pipeline([Get(path) for path in paths.values()])
            for (entity, path), outcome in zip(paths.items(), outcomes, strict=True):
                if isinstance(outcome, NoNode):
                    continue
                try:
                    found[entity] = decode_config(path, data_and_stat(outcome)[0])
                except MalformedZNode as error:
                    if malformed is None:
                        raise
                    malformed[entity] = error
        return found

    # Topics

    async def set_topic_configs(self, topic: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """AlterConfigs: replace all overrides. Raises UnknownTopicOrPartition, InvalidTopicConfig, InvalidAdminRequest."""
        await self._change_topic(topic, lambda _: dict(configs), validate_only=validate_only)

    async def alter_topic_configs(self, topic: str, ops: Sequence[ConfigOp], *, validate_only: bool = False) -> None:
        """IncrementalAlterConfigs. Raises UnknownTopicOrPartition, InvalidTopicConfig, InvalidAdminRequest."""
        await self._change_topic(topic, lambda current: apply_ops(ops, current, TOPIC_KEYS.get), validate_only=validate_only)

    async def _change_topic(self, topic: str, change: Change, *, validate_only: bool) -> None:
        check_topic_named(topic)
        try:
            validate_topic_name(topic)
        except InvalidTopicName:
            raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.") from None

        def checked(current: dict[str, str]) -> dict[str, str]:
            resource = f"ConfigResource(type=TOPIC, name='{topic}')"
            existing = dict(current)
            overrides = change(current)
            try:
                validate_topic_overrides(overrides, self._config, existing)
            except TopicConfigError as error:
                raise InvalidTopicConfig(str(error)) from error
            except ConfigError as error:
                raise InvalidTopicConfig(f"Invalid config value for resource {resource}: {error.client_message}") from error
            return overrides

        await self._change("topics", topic, checked, validate_only=validate_only, needs=topic_path(topic))

    # Brokers

    async def set_broker_configs(self, resource_name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """AlterConfigs of this broker, or with an empty name of the cluster's default. Raises InvalidAdminRequest,
        InvalidTopicConfig."""
        await self._change_broker(resource_name, lambda _: dict(configs), validate_only=validate_only)

    async def alter_broker_configs(self, resource_name: str, ops: Sequence[ConfigOp], *, validate_only: bool = False) -> None:
        """IncrementalAlterConfigs of this broker, or with an empty name of the cluster's default. Raises as set_broker_configs."""
        await self._change_broker(resource_name, lambda current: apply_ops(ops, current, key_of), validate_only=validate_only)

    async def _change_broker(self, resource_name: str, change: Change, *, validate_only: bool) -> None:
        per_broker = resource_name != ""
        self.check_broker_name(resource_name)

        def checked(current: dict[str, str]) -> dict[str, str]:
            known = self.decoded(current)
            overrides = change(known)
            try:
                self._config.validate_dynamic(overrides, per_broker=per_broker)
            except ConfigError as error:
                raise InvalidAdminRequest(error.client_message) from error
            for name in [name for name in overrides if is_password(name)]:
                if self.passwords is None:
                    raise InvalidTopicConfig(
                        f"Invalid config value for resource ConfigResource(type=BROKER, name='{resource_name}'): "
                        "Password encoder secret not configured"
                    )
                if validate_only:  # nothing is stored, and encryption takes milliseconds for each password
                    continue
                is_new = overrides[name] != known.get(name)
                overrides[name] = self.passwords.encode(overrides[name]) if is_new else current[name]
            return overrides

        entity = str(int(resource_name)) if per_broker else DEFAULT_ENTITY
        await self._change("brokers", entity, checked, validate_only=validate_only)

    def decoded(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """`overrides` with decrypted passwords. Passwords that cannot be decrypted are omitted, each with a line in the
        log."""
        found = dict(overrides)
        for name, stored in overrides.items():
            if is_password(name):
                try:
                    if self.passwords is None:
                        raise UndecodablePassword
                    found[name] = self.passwords.decode(stored)
                except UndecodablePassword:
                    why = "is not set" if self.passwords is None else "is not the one that it was encrypted with"
                    logger.error("dynamic password config %s could not be decoded, ignoring: password.encoder.secret %s", name, why)
                    del found[name]
        return found

    async def encode_passwords_again(self, old: PasswordEncoder) -> None:
        """Encrypt the passwords of this broker with the current secret, if they were encrypted with the former one."""

        def again(current: dict[str, str]) -> dict[str, str]:
            assert self.passwords is not None
            for name in [name for name in current if is_password(name)]:
                with suppress(UndecodablePassword):  # already encrypted with the new secret
                    current[name] = self.passwords.encode(old.decode(current[name]))
            return current

        if self.passwords is not None and any(map(is_password, await self.read("brokers", str(self._broker_id)))):
            await self._change("brokers", str(self._broker_id), again, validate_only=False)

    def check_broker_name(self, resource_name: str) -> None:
        """Raises InvalidAdminRequest unless this is the id of this broker, or empty for all brokers."""
        if not resource_name:
            return
        try:
            broker_id = java_int(resource_name)
        except ValueError:
            raise InvalidAdminRequest(f"Node id must be an integer, but it is: {resource_name}") from None
        if broker_id != self._broker_id:
            raise InvalidAdminRequest(f"Unexpected broker id, expected {self._broker_id}, but received {resource_name}")

    # Any entity

    async def alter_entity_config(self, entity_type: str, entity_name: str, change: Change, *, validate_only: bool = False) -> None:
        """Set the overrides to `change` of the current ones. An exception of `change` is passed on, and then nothing is
        changed."""
        overrides = change(await self.read(entity_type, entity_name))
        if validate_only:
            return
        if overrides or not await self._clean(entity_type, entity_name, change):
            await self._change(entity_type, entity_name, change, validate_only=False)
        else:
            await self._notify(entity_type, entity_name)

    async def _change(self, entity_type: str, entity_name: str, change: Change, *, validate_only: bool, needs: str | None = None) -> None:
        """Read, change and write one entity; repeated if another client wrote in between. Raises StoreError."""
        path = config_path(entity_type, entity_name)
        while True:
            controller, found, needed = await self._store.pipeline([Exists(CONTROLLER), Get(path), Exists(needs or path)])
            if needs is not None and needed is None:
                raise UnknownTopicOrPartition(f"The topic '{entity_name}' does not exist.")
            data, stat = (None, None) if isinstance(found, NoNode) else data_and_stat(found)
            overrides = change(decode_config(path, data))
            encoded = encode_checked(overrides)
            if validate_only:
                return
            if stat is None:
                await self._store.ensure_path(parent_of(path))
            write = Create(path, encoded) if stat is None else SetData(path, encoded, stat.version)
            # Fails if another broker became controller meanwhile: it may keep configurations elsewhere, as during
            # Kafka's migration to KRaft.
            fence = (Check(CONTROLLER, controller.version),) if isinstance(controller, Stat) and stat is not None else ()
            request: Request = Multi((*fence, write)) if fence else write
            (outcome,) = await self._store.pipeline([request])
            if not isinstance(outcome, StoreError):
                break
            if not isinstance(outcome, BadVersion | NodeExists | NoNode):
                raise outcome
            if stat is None and isinstance(outcome, NoNode) and await self._store.exists(parent_of(path)) is None:
                raise outcome  # the parent cannot be made
        logger.info("new configuration of %s/%s: %s", entity_type, entity_name, _loggable(entity_type, overrides))
        await self._notify(entity_type, entity_name)

    async def _notify(self, entity_type: str, entity_name: str) -> None:
        await self._store.ensure_path(CONFIG_CHANGES)
        await self._store.create(CONFIG_CHANGE_PREFIX, encode_config_change(f"{entity_type}/{entity_name}"), sequential=True)

    async def _clean(self, entity_type: str, entity_name: str, change: Change) -> bool:
        """Delete the node of an entity that has no overrides after `change`, and its ancestors that have no other children.

        Returns False if the node itself has children, or another client has written it meanwhile.
        """
        path = own = config_path(entity_type, entity_name)
        (outcome,) = await self._store.pipeline([Children(path)])
        if isinstance(outcome, NoNode):
            return True
        if names(outcome):
            return False
        while path != config_type_path(entity_type):
            try:
                data, stat = await self._store.get(path)
                overrides = decode_config(path, data)
                if change(overrides) if path == own else overrides:
                    return path != own
                await self._store.delete(path, stat.version)
            except StoreError as error:  # it has children, or another client was quicker
                return path != own or isinstance(error, NoNode)
            path = parent_of(path)
        return True


def encode_checked(overrides: Mapping[str, str]) -> bytes:
    """The node of a configuration. Raises InvalidAdminRequest if it is too long for ZooKeeper."""
    encoded = encode_config(overrides)
    if len(encoded) > MAX_CONFIG_BYTES:
        raise InvalidAdminRequest(f"The configuration has {len(encoded)} bytes, which is more than the largest of {MAX_CONFIG_BYTES}.")
    return encoded


def check_topic_named(topic: str) -> None:
    """Raises InvalidAdminRequest for an empty name, which for brokers means all of them."""
    if not topic:
        raise InvalidAdminRequest("Default topic resources are not allowed.")


def check_is_list(op: ConfigOp, declared: Key[Any]) -> None:
    """Raises InvalidTopicConfig for an APPEND or SUBTRACT of a key that is not a list."""
    if declared.type.kind is not ConfigKind.LIST:
        raise InvalidTopicConfig(f"Config value {op.op.name.lower()} is not allowed for config key: {op.name}")


def apply_ops(ops: Sequence[ConfigOp], current: Mapping[str, str], key: Callable[[str], Key[Any] | None]) -> dict[str, str]:
    """`current` with the incremental changes applied. Raises InvalidTopicConfig for an APPEND or SUBTRACT of a key that
    is not a list."""
    overrides = dict(current)
    for change in ops:
        name, value, op = change
        if op is OpType.DELETE:
            overrides.pop(name, None)
        elif op is OpType.SET:
            overrides[name] = value or ""
        else:
            declared = key(name)
            if declared is None:
                raise InvalidTopicConfig(f"Unknown config name: {name}")
            check_is_list(change, declared)
            old = overrides.get(name, declared.render(declared.default)) or ""
            given = (value or "").split(",")
            if op is OpType.APPEND:
                values = old.split(",") if old else []
                present = set(values)
                overrides[name] = ",".join([*values, *(each for each in given if each not in present)])
            else:
                overrides[name] = ",".join(_without(old.split(","), given))
    return overrides


def _without(values: list[str], removed: Sequence[str]) -> list[str]:
    """As Scala's List.diff: each of `removed` removes one occurrence."""
    left = Counter(removed)
    rest = []
    for each in values:
        if left[each]:
            left[each] -= 1
        else:
            rest.append(each)
    return rest


def _loggable(entity_type: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides without secrets. An unknown key of a broker may be one: that of a plugin, or the misspelt name of another."""

    def is_secret(name: str) -> bool:
        return name.startswith("SCRAM-") or (entity_type == "brokers" and (key_of(name) is None or is_password(name)))

    return {name: "[hidden]" if is_secret(name) else value for name, value in overrides.items()}


def _can_be_answered(entity: str) -> bool:
    """Whether the entity's names fit into strings of the protocol. No client can have a longer name, so another program stored it."""
    if len(entity) <= MAX_STRING_BYTES or all(len(desanitize(part).encode()) <= MAX_STRING_BYTES for part in entity.split("/")):
        return True
    logger.error("the configuration of %.80s... is ignored: a name has more than %d bytes; delete its node", entity, MAX_STRING_BYTES)
    return False
