"""Checks the inputs of a start: the settings, the log directories, the metadata store and the broker id.

`ottla.broker.server` calls `refuse_unsupported` first. It calls the other checks when the directories are locked and the store has a
session, before it writes to the directories. So a mistake of the operator ends the start with one line, and leaves nothing to clean up: the
ZooKeeper or the path of another cluster, an id that is in use, a directory that was moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.broker.metadata_store import check_zookeeper_login, zookeeper_login_settings
from ottla.broker.security.acl_authorizer import parse_super_users
from ottla.broker.security.principals import Principal
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.authorizer_zookeeper import AuthorizerReading
from ottla.config.keys.general import ALTER_CONFIG_POLICY_CLASS_NAME, BROKER_ID, CREATE_TOPIC_POLICY_CLASS_NAME
from ottla.config.keys.metrics import CLIENT_QUOTA_CALLBACK_CLASS
from ottla.config.keys.security import AUTHORIZER_CLASS_NAME, SUPER_USERS
from ottla.config.keys.zookeeper import ZOOKEEPER_SESSION_TIMEOUT_MS
from ottla.config.listeners import EndPoint, check_principal_builder
from ottla.config.remote_storage import check_remote_storage
from ottla.config.schema.key import Reading
from ottla.controller.controller import SESSION_PATIENCE
from ottla.controller.errors import SAME_IDENTITY, NoAuth, NoNode
from ottla.controller.registration import IsListening, check_id_is_free, startup_paths, stored_cluster_id
from ottla.controller.store.metadata_store import Children, MetadataStore, names
from ottla.controller.znodes.layout import BROKER_IDS, CLUSTER_ID, CONSUMERS, SECURE_ROOTS, config_path
from ottla.controller.znodes.security import ACL, ACL_CHANGES, EXTENDED_ACL_CHANGES, PREFIXED_ACL, TOKENS
from ottla.storage.disk.meta_properties import META_PROPERTIES, check_meta_properties
from ottla.storage.disk.start_errors import InconsistentClusterId
from ottla.storage.manager.log_directories import LogDirectory

_NO_CLUSTER = "missing: no cluster has used this metadata store yet"
_LOCAL = "127.0.0.1"
_NAMED = 3
"""Znodes of another identity that an error names; the others are counted."""
_CLASSES_OF_JAVA = {
    CLIENT_QUOTA_CALLBACK_CLASS: "set quotas of users and client ids",
    CREATE_TOPIC_POLICY_CLASS_NAME: "restrict by ACLs who may create topics",
    ALTER_CONFIG_POLICY_CLASS_NAME: "restrict by ACLs who may change configurations",
}
"""Keys whose class would restrict clients, and what an operator can do instead."""
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The only value of authorizer.class.name that is supported."""


class Unsupported(Exception):
    """A setting requires a feature that this broker does not have; the text is one line for the operator."""


def refuse_unsupported(config: BrokerConfig) -> None:
    """Refuse settings that restrict clients and are not implemented. A broker that ignored them would allow what they forbid.

    Raises Unsupported, ConfigError; StoreUnavailable for a login at ZooKeeper that cannot work.
    """
    if config[AUTHORIZER_CLASS_NAME] not in ("", ACL_AUTHORIZER):
        raise Unsupported(f"authorizer.class.name={config[AUTHORIZER_CLASS_NAME]}: the only authorizer of this server is {ACL_AUTHORIZER}")
    for key, instead in _CLASSES_OF_JAVA.items():
        if config[key]:
            raise Unsupported(f"{key.name}={config[key]}: classes of Java cannot be loaded here; remove it, and {instead}")
    super_users(config)
    check_remote_storage(config)
    for endpoint in config.listeners.listeners:
        check_principal_builder(config.current, endpoint.listener_name)
    if not config.standalone:
        check_zookeeper_login(config)
    of_authorizer = AuthorizerReading(config)
    if config[AUTHORIZER_CLASS_NAME] and of_authorizer.differs:
        check_zookeeper_login(of_authorizer)


def super_users(config: BrokerConfig) -> frozenset[Principal]:
    """The principals that may do everything. Raises Unsupported for one that is not `Type:name`."""
    try:
        return parse_super_users(config[SUPER_USERS])
    except ValueError as error:
        raise Unsupported(f"super.users={config[SUPER_USERS]}: {error}") from None


async def check_belongings(config: BrokerConfig, store: MetadataStore, directories: Sequence[LogDirectory]) -> None:
    """Check that the directories belong to the store's cluster and, where both ids are known, to this broker.

    Raises InconsistentClusterId, InconsistentBrokerId.
    """
    stored = await stored_cluster_id(store)
    broker_id = config[BROKER_ID]
    for directory in directories:
        found = directory.meta_properties
        if found is None:
            continue
        if stored is None and found.cluster_id is not None:
            raise InconsistentClusterId(f"{directory.path}/{META_PROPERTIES}", _NO_CLUSTER, found.cluster_id)
        if found.broker_id is not None:
            mine = broker_id if broker_id >= 0 else found.broker_id
            check_meta_properties(directory.path, found, stored or "", mine)


async def check_znodes(config: Reading, store: MetadataStore) -> None:
    """Check that ZooKeeper lets this broker change the nodes of the cluster's brokers, also the registrations of running ones.

    Raises NoAuth. Without the check the broker would start, and the first change that another one has to continue would fail.
    """
    (found,) = await store.pipeline([Children(BROKER_IDS)])
    registered = [] if isinstance(found, NoNode) else [f"{BROKER_IDS}/{name}" for name in names(found)]
    await _check_rights(config, store, [*SECURE_ROOTS, *startup_paths(), CLUSTER_ID, TOKENS, *registered])


async def check_acl_znodes(config: Reading, store: MetadataStore) -> None:
    """Check that ZooKeeper lets this broker change ACLs. `config` has the keys of the authorizer's connection. Raises NoAuth."""
    await _check_rights(config, store, (ACL, ACL_CHANGES, PREFIXED_ACL, EXTENDED_ACL_CHANGES))


async def _check_rights(config: Reading, store: MetadataStore, paths: Iterable[str]) -> None:
    forbidden = await store.forbidden([path for path in dict.fromkeys(paths) if path != CONSUMERS])
    if forbidden:
        more = f" and {len(forbidden) - _NAMED} more" if len(forbidden) > _NAMED else ""
        raise NoAuth(
            zookeeper_login_settings(config),
            f"ZooKeeper does not let this broker change {', '.join(forbidden[:_NAMED])}{more}, which belong to another identity: "
            f"{SAME_IDENTITY}",
        )


async def check_configuration_may_differ(store: MetadataStore, broker_id: int | None, problem: ConfigError) -> None:
    """Raise the problem of the static configuration, unless this broker has a dynamic one, which may solve it."""
    if broker_id is None or await store.exists(config_path("brokers", str(broker_id))) is None:
        raise problem


async def check_broker_id(
    broker_id: int, config: BrokerConfig, store: MetadataStore, directories: Sequence[LogDirectory], is_listening: IsListening
) -> None:
    """Check that no other broker uses this id. Raises BrokerIdInUse.

    With unused directories, this waits until a registration of the id expires: marking the directories with it could be wrong. A broker
    with its own directories continues at once, and reads its logs meanwhile.
    """
    is_new = all(directory.meta_properties is None for directory in directories)
    patience_s = config[ZOOKEEPER_SESSION_TIMEOUT_MS] / 1000 * SESSION_PATIENCE if is_new else 0.0
    listeners = config.listeners
    await check_id_is_free(store, broker_id, _addresses(listeners.advertised), _addresses(listeners.listeners), is_listening, patience_s)


def _addresses(endpoints: Sequence[EndPoint]) -> list[tuple[str, int]]:
    """The addresses with a known port. The kernel has yet to choose the others, so no process can listen there."""
    return [(endpoint.host or _LOCAL, endpoint.port) for endpoint in endpoints if endpoint.port]
