"""Names every path of Kafka's znode tree, and encodes the znodes of brokers, topics, partitions and the controller.

Encoders give the bytes that Apache Kafka 3.9 writes, including the order of keys; decoders read what Apache Kafka
wrote. `docs/formats.md` shows each body. Configs and notifications are in `changes`, ACLs and delegation tokens in
`security`. Decoders raise MalformedZNode.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from ottla.config.zookeeper_connect import NOT_IN_PATHS
from ottla.controller.znodes.java_order import scala_map_order
from ottla.controller.znodes.znode_json import MalformedZNode, decode_object, encode_json
from ottla.protocol.schema.wire import MAX_STRING_BYTES
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import from_text, to_text

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""The paths that every broker creates at startup if they are missing, in this order."""

SECURE_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    "/delegation_token",
    FEATURE,
)
"""The roots of all that brokers write, without the ACLs; `zookeeper.set.acl` protects them."""

NO_LEADER = -1
LEADER_DURING_DELETE = -2
INITIAL_LEADER_EPOCH = 0
EPOCH_DURING_DELETE = -2
RECOVERED = 0
RECOVERING = 1
"""leader_recovery_state of a partition after an unclean leader election."""

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1

DEFAULT_ENTITY = "<default>"

FIRST_BROKER_VERSION_WITH_RACK = 3
FIRST_BROKER_VERSION_WITH_PROTOCOLS = 4
FIRST_BROKER_VERSION_WITH_FEATURES = 5
LOWEST_SUPPORTED, HIGHEST_SUPPORTED = "min_version", "max_version"


# Paths


def broker_id_path(broker_id: int) -> str:
    """The ephemeral registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Parent of the topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """Parent of the partition's state."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """Leader, ISR and epochs of the partition; the version of this node is the partition epoch."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def delete_topic_path(topic: str) -> str:
    """The request to delete the topic."""
    return f"{DELETE_TOPICS}/{topic}"


def config_type_path(entity_type: str) -> str:
    """Parent of the configs of all entities of one type: topics, brokers, clients, users, ips."""
    return f"/config/{entity_type}"


def config_path(entity_type: str, entity_name: str) -> str:
    """The configs of one entity. `entity_name` is already sanitized and may be `<default>`."""
    return f"/config/{entity_type}/{entity_name}"


def sanitize(name: str) -> str:
    """A user or client id in the form for a path: URL-encoded as by Kafka's Sanitizer. Half of a surrogate pair becomes `?`, as in Java."""
    return quote_plus(name, safe="", errors="replace").replace("+", "%20").replace("*", "%2A").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The inverse of sanitize."""
    return unquote_plus(name)


def can_name_a_node(name: str) -> bool:
    """Whether a node can have this name: ZooKeeper reads `.` and `..` as steps of a path, and allows some characters in no path."""
    return name not in {"", ".", ".."} and "/" not in name and NOT_IN_PATHS.search(name) is None


def sequence_number(name: str) -> int:
    """The number ZooKeeper appended to a sequential node's name or path."""
    return int(name[-10:])


# Bodies


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    security_protocol: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """`LISTENER://host:port`, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class BrokerRegistration(NamedTuple):
    """The body of /brokers/ids/N."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] = {}
    """The features that the broker supports: by name, the lowest and the highest level."""
    version: int = 5
    """Version of the body: 4 has no features, 2 has neither a rack nor security protocols. Older releases read no later
    version."""

    def supports(self, feature: str, level: int) -> bool:
        """Whether the broker may be a member of a cluster that has finalized this level."""
        levels = self.features.get(feature, {})
        return levels.get(LOWEST_SUPPORTED, 1) <= level <= levels.get(HIGHEST_SUPPORTED, 0)


class ReplicaAssignment(NamedTuple):
    """The brokers that host a partition. During a reassignment `replicas` is the union of new and old replicas, the new
    ones first."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    original_order: tuple[int, ...] = ()
    """The replicas before the reassignment, if the other three fields do not determine their order. Not in Apache
    Kafka."""

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        """The replicas after the reassignment is cancelled."""
        derived = tuple(r for r in self.replicas if r not in self.adding_replicas)
        return self.original_order if sorted(self.original_order) == sorted(derived) else derived

    def reassigned_to(self, target: Sequence[int]) -> "ReplicaAssignment":
        """The assignment while the replicas move to `target`; it is not reassigning if no replica has to move."""
        origin = self.origin_replicas
        replicas = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(r for r in replicas if r not in origin)
        removing = tuple(r for r in replicas if r not in target)
        derived = tuple(r for r in replicas if r not in adding)
        is_lost = bool(adding or removing) and derived != origin
        return ReplicaAssignment(replicas, adding, removing, origin if is_lost else ())

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)


class TopicAssignment(NamedTuple):
    """The body of /brokers/topics/T."""

    topic_id: bytes | None
    """None for a topic that was created before 2.8."""
    partitions: Mapping[int, ReplicaAssignment]


class PartitionState(NamedTuple):
    """The body of /brokers/topics/T/partitions/P/state."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    leader_recovery_state: int = RECOVERED


class ControllerNode(NamedTuple):
    """The body of /controller."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1


_ENDPOINT = re.compile(r"([^:/]*)://\[?([0-9a-zA-Z._:%-]*?)\]?:(-?[0-9]+)")


def encode_broker(registration: BrokerRegistration) -> bytes:
    """Writes `registration.version`. `host` and `port` are those of the first PLAINTEXT endpoint, for clients before
    0.9."""
    plain = next((e for e in registration.endpoints if e.security_protocol == "PLAINTEXT"), None)
    version = registration.version
    body: dict[str, Any] = {"features": registration.features} if version >= FIRST_BROKER_VERSION_WITH_FEATURES else {}
    if version >= FIRST_BROKER_VERSION_WITH_PROTOCOLS:
        body["listener_security_protocol_map"] = {e.listener: e.security_protocol for e in registration.endpoints}
    body["endpoints"] = [e.url for e in registration.endpoints]
    if registration.rack is not None and version >= FIRST_BROKER_VERSION_WITH_RACK:
        body["rack"] = registration.rack
    body |= {
        "jmx_port": registration.jmx_port,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": version,
        "timestamp": str(registration.timestamp_ms),
    }
    return encode_json(body)


def decode_broker(path: str, data: bytes | None) -> BrokerRegistration:
    """Versions 1 to 5."""
    body = decode_object(path, data)
    try:
        protocols = body.get("listener_security_protocol_map", {})
        if body["version"] == 1:
            endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", _text(body["host"]), int32(body["port"]))]
        else:
            endpoints = [_endpoint(path, url, protocols) for url in body["endpoints"]]
        rack = None if body.get("rack") is None else _text(body["rack"])
        return BrokerRegistration(
            tuple(endpoints), rack, int(body["timestamp"]), int32(body["jmx_port"]), _supported(body.get("features", {}))
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedZNode(path, f"not a broker registration: {error!r}") from error


def _supported(features: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {name: {each: int32(level) for each, level in levels.items()} for name, levels in features.items()}


def _endpoint(path: str, url: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(url)
    if match is None:
        raise MalformedZNode(path, f"{url!r} is not an endpoint")
    listener, host, port = match.groups()
    return Endpoint(_text(listener), _text(protocols.get(listener, listener)), _text(host), int32(int(port)))


def encode_topic(topic: TopicAssignment) -> bytes:
    """Version 3, even without a topic id."""
    by_name = {str(partition): assignment for partition, assignment in topic.partitions.items()}
    names = scala_map_order(by_name)
    adding = scala_map_order(name for name, assignment in by_name.items() if assignment.adding_replicas)
    removing = scala_map_order(name for name, assignment in by_name.items() if assignment.removing_replicas)
    body: dict[str, Any] = {"partitions": {name: by_name[name].replicas for name in names}}
    if topic.topic_id is not None:
        body["topic_id"] = to_text(topic.topic_id)
    body |= {
        "adding_replicas": {name: by_name[name].adding_replicas for name in adding},
        "removing_replicas": {name: by_name[name].removing_replicas for name in removing},
        "version": 3,
    }
    ordered = scala_map_order(name for name, assignment in by_name.items() if assignment.original_order)
    if ordered:
        body["original_order"] = {name: by_name[name].original_order for name in ordered}  # Apache Kafka skips unknown keys
    return encode_json(body)


def decode_topic(path: str, data: bytes | None) -> TopicAssignment:
    """Versions 1 to 3."""
    body = decode_object(path, data)
    try:
        adding = body.get("adding_replicas") or {}
        removing = body.get("removing_replicas") or {}
        ordered = body.get("original_order") or {}
        partitions = {
            int(name): ReplicaAssignment(
                int32s(replicas),
                int32s(adding[name]) if name in adding else (),
                int32s(removing[name]) if name in removing else (),
                int32s(ordered[name]) if name in ordered else (),
            )
            for name, replicas in body.get("partitions", {}).items()
        }
        int32s(partitions)
        topic_id = body.get("topic_id")
        return TopicAssignment(None if topic_id is None else from_text(topic_id), partitions)
    except (TypeError, ValueError, AttributeError) as error:
        raise MalformedZNode(path, f"not a topic assignment: {error!r}") from error


def encode_partition_state(state: PartitionState) -> bytes:
    """Version 1. The recovery state is omitted while it is RECOVERED."""
    body: dict[str, Any] = {"controller_epoch": state.controller_epoch, "leader": state.leader, "version": 1}
    if state.leader_recovery_state != RECOVERED:
        body["leader_recovery_state"] = state.leader_recovery_state
    body |= {"leader_epoch": state.leader_epoch, "isr": state.isr}
    return encode_json(body)


def decode_partition_state(path: str, data: bytes | None) -> PartitionState:
    """See PartitionState."""
    body = decode_object(path, data)
    try:
        recovery_state = int32(body.get("leader_recovery_state", RECOVERED))
        if recovery_state not in (RECOVERED, RECOVERING):
            raise TypeError(f"{recovery_state} is no recovery state")
        return PartitionState(
            int32(body["leader"]), int32s(body["isr"]), int32(body["leader_epoch"]), int32(body["controller_epoch"]), recovery_state
        )
    except (KeyError, TypeError) as error:
        raise MalformedZNode(path, f"not a partition state: {error!r}") from error


def int32s(found: Any) -> tuple[int, ...]:
    """Numbers that the controller's requests can carry. Raises TypeError."""
    for each in found:
        if type(each) is not int or not INT32_MIN <= each <= INT32_MAX:  # a boolean is an int, too
            raise TypeError(f"{each!r} is no number of 32 bits")
    return tuple(found)


def int32(found: Any) -> int:
    """One number, as `int32s`. Raises TypeError."""
    return int32s((found,))[0]


def _text(found: Any) -> str:
    """A string that the controller's requests can carry. Raises TypeError, ValueError."""
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no string")
    if len(found.encode()) > MAX_STRING_BYTES:  # a lone surrogate has no encoding
        raise ValueError(f"a string has more than {MAX_STRING_BYTES} bytes")
    return found


def encode_controller(node: ControllerNode) -> bytes:
    """Version 2."""
    return encode_json(
        {"version": 2, "brokerid": node.broker_id, "timestamp": str(node.timestamp_ms), "kraftControllerEpoch": node.kraft_controller_epoch}
    )


def decode_controller(path: str, data: bytes | None) -> ControllerNode:
    """Versions 1 and 2."""
    body = decode_object(path, data)
    try:
        return ControllerNode(int32(body["brokerid"]), int(body["timestamp"]), body.get("kraftControllerEpoch", -1))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise MalformedZNode(path, f"not a controller: {error!r}") from error


def encode_controller_epoch(epoch: int) -> bytes:
    """A bare number."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    """A bare number."""
    try:
        return int(data or b"")
    except ValueError as error:
        raise MalformedZNode(CONTROLLER_EPOCH, "not a number") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    """Version 1; in this body the version is a string."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The id."""
    cluster_id = decode_object(CLUSTER_ID, data).get("id")
    if not isinstance(cluster_id, str):
        raise MalformedZNode(CLUSTER_ID, "no id")
    return cluster_id


class FeatureNode(NamedTuple):
    """The body of /feature."""

    features: Mapping[str, int]
    """The finalized levels, each at least 1."""
    is_enabled: bool = True
    """Whether features are versioned at all, as since 2.7."""
    version: int = 2
    """Version of the body: 1 before 3.3. Version 1 also has the lowest finalized level, which is the same."""


_LOWEST_LEVEL, _HIGHEST_LEVEL = "min_version_level", "max_version_level"
MAX_LEVEL: Final = 2**15 - 1


def encode_feature(node: FeatureNode) -> bytes:
    """See FeatureNode."""
    keys = (_HIGHEST_LEVEL, _LOWEST_LEVEL) if node.version == 1 else (_HIGHEST_LEVEL,)
    levels = {name: dict.fromkeys(keys, level) for name, level in node.features.items()}
    return encode_json({"features": levels, "version": node.version, "status": int(node.is_enabled)})


def decode_feature(data: bytes | None) -> FeatureNode:
    """Versions 1 and 2."""
    body = decode_object(FEATURE, data)
    try:
        version = int32(body["version"])
        if version not in (1, 2):
            raise ValueError(f"version {version}")
        return FeatureNode({name: _level(levels) for name, levels in body["features"].items()}, _is_enabled(body["status"]), version)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedZNode(FEATURE, f"not the finalized features: {error!r}") from error


def _level(levels: Mapping[str, Any]) -> int:
    level = int32(levels[_HIGHEST_LEVEL])
    if not 1 <= level <= MAX_LEVEL:
        raise ValueError(f"level {level}")
    return level


def _is_enabled(status: Any) -> bool:
    if int32(status) not in (0, 1):
        raise ValueError(f"status {status}")
    return bool(status)
