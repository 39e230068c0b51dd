"""Every body of a znode that Apache Kafka wrote is read, and written again to the same bytes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.security.acl_index import AclIndex
from ottla.controller.znodes import changes, security
from ottla.controller.znodes import layout as znodes
from ottla.controller.znodes.java_order import java_hash, properties_order, scala_map_order
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.acls import AccessControlEntry, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.topic_partition import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper"

Again = Callable[[str, bytes], bytes]


def _broker(path: str, data: bytes) -> bytes:
    return znodes.encode_broker(znodes.decode_broker(path, data))


def _topic(path: str, data: bytes) -> bytes:
    return znodes.encode_topic(znodes.decode_topic(path, data))


def _state(path: str, data: bytes) -> bytes:
    return znodes.encode_partition_state(znodes.decode_partition_state(path, data))


def _controller(path: str, data: bytes) -> bytes:
    return znodes.encode_controller(znodes.decode_controller(path, data))


def _producer_ids(_: str, data: bytes) -> bytes:
    block = changes.decode_producer_id_block(data)
    assert block is not None
    return changes.encode_producer_id_block(block)


def _feature(_: str, data: bytes) -> bytes:
    return znodes.encode_feature(znodes.decode_feature(data))


KINDS: list[tuple[str, Again]] = [
    (r"/brokers/ids/\d+", _broker),
    (r"/brokers/topics/[^/]+", _topic),
    (r"/brokers/topics/[^/]+/partitions/\d+/state", _state),
    (r"/controller", _controller),
    (r"/controller_epoch", lambda _, data: znodes.encode_controller_epoch(znodes.decode_controller_epoch(data))),
    (r"/cluster/id", lambda _, data: znodes.encode_cluster_id(znodes.decode_cluster_id(data))),
    (r"/feature", _feature),
    (r"/latest_producer_id_block", _producer_ids),
    (r"/config/changes/.*", lambda path, data: changes.encode_config_change(changes.decode_config_change(path, data))),
    (r"/config/.*", lambda path, data: changes.encode_config(changes.decode_config(path, data))),
    (r"/isr_change_notification/.*", lambda path, data: changes.encode_partitions(changes.decode_partitions(path, data))),
    (r"/admin/preferred_replica_election", lambda path, data: changes.encode_partitions(changes.decode_partitions(path, data))),
    (r"/admin/reassign_partitions", lambda path, data: changes.encode_reassignments(changes.decode_reassignments(path, data))),
    (r"/log_dir_event_notification/.*", lambda path, data: changes.encode_log_dir_event(changes.decode_log_dir_event(path, data))),
    (r"/kafka-acl/.*|/kafka-acl-extended/.*", lambda path, data: security.encode_acls(security.decode_acls(path, data))),
    (
        r"/kafka-acl-extended-changes/.*",
        lambda path, data: security.encode_extended_acl_change(*security.decode_extended_acl_change(path, data)),
    ),
    (r"/delegation_token/tokens/.*", lambda path, data: security.encode_token(security.decode_token(path, data))),
]

NOT_JSON = re.compile(r"/|/kafka-acl-changes/.*|/delegation_token/token_changes/.*|/consumers/.*")
"""Bare text that nobody has to take apart; offsets of ancient consumers."""


def recorded_bodies() -> dict[str, set[str]]:
    bodies: dict[str, set[str]] = {}
    for file in sorted(GOLDEN.glob("*.json")):
        for node in json.loads(file.read_text())["tree"]:
            if node["data"] is not None:
                bodies.setdefault(node["path"], set()).add(node["data"])
    for line in (GOLDEN / "writes.jsonl").read_text().splitlines():
        entry = json.loads(line)
        for operation in entry.get("ops", [entry]):
            if operation.get("data") is not None:
                bodies.setdefault(operation["path"], set()).add(operation["data"])
    return bodies


def test_every_recorded_body_is_written_again_to_the_same_bytes() -> None:
    count = 0
    # Epoch "0" is created and at once set to 1 within the recording; ephemeral and transient nodes are in writes.jsonl alone.
    for path, bodies in recorded_bodies().items():
        if NOT_JSON.fullmatch(path):
            continue
        again = next(again for pattern, again in KINDS if re.fullmatch(pattern, path))
        for body in bodies:
            assert again(path, body.encode()) == body.encode(), path
            count += 1
    assert count > 1000


def test_every_persistent_path_was_recorded() -> None:
    assert set(znodes.PERSISTENT_PATHS) <= {node["path"] for node in json.loads((GOLDEN / "01-fresh-one-broker.json").read_text())["tree"]}


@pytest.mark.parametrize(
    ("name", "sanitized"),
    [
        ("we ird/=ü", "we%20ird%2F%3D%C3%BC"),
        ("u1", "u1"),
        ("a*b~c+d", "a%2Ab%7Ec%2Bd"),
        ("CN=x,O=y", "CN%3Dx%2CO%3Dy"),
        ("a.b-c_d", "a.b-c_d"),
    ],
)
def test_names_of_users_and_clients_are_encoded_as_kafka_does(name: str, sanitized: str) -> None:
    assert znodes.sanitize(name) == sanitized
    assert znodes.desanitize(sanitized) == name


@pytest.mark.parametrize("data", [None, b""])
def test_an_entity_whose_node_has_no_data_has_no_configuration(data: bytes | None) -> None:
    assert changes.decode_config("/config/users/u1", data) == {}


def test_many_partitions_come_in_the_order_of_a_scala_hash_map() -> None:
    # As a real 3.9.1 wrote topics of 14 and 60 partitions.
    assert scala_map_order(map(str, range(14))) == ["11", "12", "13", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    of_sixty = "44 45 46 47 48 49 50 51 52 53 10 54 11 55 12 56 13 57 14 58 15 59 16 17 18 19 0 1 2 3 4 5 6 7 8 9"
    assert scala_map_order(map(str, range(60))) == [*of_sixty.split(), *map(str, range(20, 44))]


def test_configs_come_in_the_order_of_java_properties() -> None:
    # As a real 3.9.1 wrote a topic created with these overrides in this order.
    given = (
        "retention.ms segment.ms cleanup.policy segment.bytes min.cleanable.dirty.ratio index.interval.bytes flush.ms flush.messages "
        "max.message.bytes retention.bytes delete.retention.ms compression.type preallocate unclean.leader.election.enable"
    )
    assert properties_order(given.split()) == [
        "compression.type",
        "max.message.bytes",
        "preallocate",
        "min.cleanable.dirty.ratio",
        "index.interval.bytes",
        "unclean.leader.election.enable",
        "retention.bytes",
        "delete.retention.ms",
        "cleanup.policy",
        "flush.ms",
        "retention.ms",
        "segment.ms",
        "segment.bytes",
        "flush.messages",
    ]


def test_ipv6_and_listeners_without_plaintext_are_registered() -> None:
    registration = znodes.BrokerRegistration((znodes.Endpoint("SECURE", "SSL", "::1", 9093),), None, 5)
    data = znodes.encode_broker(registration)
    assert b'"endpoints":["SECURE://[::1]:9093"]' in data
    assert b'"port":-1,"host":null' in data
    assert znodes.decode_broker("/brokers/ids/0", data) == registration


def test_old_versions_are_read() -> None:
    old_broker = b'{"jmx_port":-1,"timestamp":"1","host":"h","version":1,"port":9092}'
    assert znodes.decode_broker("/brokers/ids/0", old_broker).endpoints == (znodes.Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)
    old_topic = znodes.decode_topic("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old_topic == znodes.TopicAssignment(None, {0: znodes.ReplicaAssignment((1,))})
    assert znodes.encode_topic(old_topic) == b'{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}'
    assert changes.decode_config_change("/c", b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"version":5,"endpoints":["x"],"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"rack":7,"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"jmx_port":"1","timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"jmx_port":4294967296,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:4294967296"],"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"listener_security_protocol_map":[],"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"listener_security_protocol_map":{"A":1},"jmx_port":1,"timestamp":"1"}',
        b'{"version":1,"host":7,"port":9,"jmx_port":1,"timestamp":"1"}',
        b'{"version":1,"host":"h","port":"9","jmx_port":1,"timestamp":"1"}',
        b'{"version":1,"host":"h","port":true,"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"jmx_port":1,"timestamp":1e999}',
        b'{"version":5,"endpoints":["A://h:9"],"rack":"\\ud800","jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":["A://h:9"],"rack":"%s","jmx_port":1,"timestamp":"1"}' % (b"r" * 40_000),
        b'{"version":5,"endpoints":["%s://h:9"],"jmx_port":1,"timestamp":"1"}' % (b"A" * 40_000),
        b'{"version":5,"endpoints":%s' % (b"[" * 200_000),
    ],
    ids=lambda data: repr(data)[:60],
)
def test_a_malformed_registration_is_named(data: bytes | None) -> None:
    with pytest.raises(MalformedZNode, match=r"^/brokers/ids/7: .*; repair or remove the node$"):
        znodes.decode_broker("/brokers/ids/7", data)


@pytest.mark.parametrize(
    "body",
    [
        '"partitions":{"0":["1"]}',
        '"partitions":{"0":"12"}',
        '"partitions":{"0":[1.0]}',
        '"partitions":{"0":[true]}',
        '"partitions":{"0":[2147483648]}',
        '"partitions":{"2147483648":[1]}',
        '"partitions":{"0":[1,2]},"adding_replicas":{"0":["2"]}',
        '"partitions":{"0":[1,2]},"removing_replicas":{"0":[null]}',
        '"partitions":{"0":[1,2]},"original_order":{"0":[[1]]}',
    ],
)
def test_an_assignment_that_no_request_can_carry_is_malformed(body: str) -> None:
    with pytest.raises(MalformedZNode, match=r"^/brokers/topics/t: .*; repair or remove the node$"):
        znodes.decode_topic("/brokers/topics/t", f'{{{body},"version":3}}'.encode())


@pytest.mark.parametrize(
    "field",
    ['"leader":"1"', '"isr":["1"]', '"leader_epoch":1.5', '"controller_epoch":2147483648', '"leader_recovery_state":2'],
)
def test_a_partition_state_that_no_request_can_carry_is_malformed(field: str) -> None:
    body = f'{{"leader":1,"isr":[1],"leader_epoch":0,"controller_epoch":1,"version":1,{field}}}'  # of two equal names the last one counts
    with pytest.raises(MalformedZNode, match="/brokers/topics/t/partitions/0/state"):
        znodes.decode_partition_state(znodes.partition_state_path(TopicPartition("t", 0)), body.encode())


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"features":7,"version":2,"status":1}',
        '{"features":[7],"version":2,"status":1}',
        '{"features":{"a":1},"version":2,"status":1}',
        '{"features":{"a":{"max_version_level":0}},"version":2,"status":1}',
        '{"features":{"a":{"max_version_level":32768}},"version":2,"status":1}',
        '{"features":{"a":{"min_version_level":1}},"version":2,"status":1}',
        '{"features":{},"version":3,"status":1}',
        '{"features":{},"version":1e999,"status":1}',
        '{"features":{},"version":[],"status":1}',
        '{"features":{},"version":2,"status":2}',
        '{"features":{},"version":2}',
    ],
)
def test_malformed_features_are_named(body: str) -> None:
    with pytest.raises(MalformedZNode, match="/feature: "):
        znodes.decode_feature(body.encode())


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b'{"features":{"a":{"max_version_level":3,"min_version_level":3}},"version":1,"status":1}'),
        (2, b'{"features":{"a":{"max_version_level":3}},"version":2,"status":1}'),
    ],
)
def test_finalized_features_are_written_as_apache_kafka_writes_them(version: int, body: bytes) -> None:
    node = znodes.FeatureNode({"a": 3}, version=version)
    assert znodes.encode_feature(node) == body
    assert znodes.decode_feature(body) == node


@pytest.mark.parametrize("data", [None, b"{}", b'{"leader":0}', b"\xff"])
def test_a_malformed_partition_state_is_named(data: bytes | None) -> None:
    path = znodes.partition_state_path(TopicPartition("t", 0))
    with pytest.raises(MalformedZNode, match="/brokers/topics/t/partitions/0/state"):
        znodes.decode_partition_state(path, data)


@pytest.mark.parametrize(
    "named", ['"topic":["t"],"partition":0', '"topic":"t","partition":"0"', '"topic":"t"', '"topic":"t","partition":true']
)
@pytest.mark.parametrize("decode", [changes.decode_partitions, changes.decode_reassignments])
def test_a_malformed_order_is_named_whatever_it_holds(decode: Callable[[str, bytes], object], named: str) -> None:
    with pytest.raises(MalformedZNode, match=r"^/admin/order: "):
        decode("/admin/order", f'{{"version":1,"partitions":[{{{named},"replicas":[1]}}]}}'.encode())


@pytest.mark.parametrize("replicas", ['["1"]', '"12"', "1", "[[1]]", "[true]", "[4294967296]"])
def test_a_reassignment_to_what_is_no_broker_is_malformed(replicas: str) -> None:
    with pytest.raises(MalformedZNode, match=r"^/admin/order: "):
        changes.decode_reassignments("/admin/order", f'{{"partitions":[{{"topic":"t","partition":0,"replicas":{replicas}}}]}}'.encode())


@pytest.mark.parametrize("text", ["User:" + "x" * 32_763, "User:a\ud800"])
def test_an_acl_that_no_answer_could_show_hides_no_other(text: str, caplog: pytest.LogCaptureFixture) -> None:
    good = security.AclEntry("User:a", "Deny", "*", "Read")
    found = [good, good._replace(principal=text), good._replace(host=text)]
    acls = [{"principal": each.principal, "permissionType": "Deny", "host": each.host, "operation": "Read"} for each in found]
    expected = [good, good._replace(principal="Unknown:?"), good._replace(host="?")]
    assert security.decode_acls("/kafka-acl/Topic/t", json.dumps({"version": 1, "acls": acls}).encode()) == expected
    assert "/kafka-acl/Topic/t: 2 ACLs match no client" in caplog.text


def test_a_resource_whose_only_acl_no_answer_could_show_has_an_acl_all_the_same() -> None:
    """`allow.everyone.if.no.acl.found` does not open it."""
    acls = [{"principal": "User:" + "x" * 40_000, "permissionType": "Allow", "host": "*", "operation": "Read"}]
    (found,) = security.decode_acls("/kafka-acl/Topic/t", json.dumps({"version": 1, "acls": acls}).encode())
    index = AclIndex()
    index.set(
        ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
        [AccessControlEntry(found.principal, found.host, Operation.READ, PermissionType.ALLOW)],
    )
    assert not index.decide("User:a", "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t", without_acls=True)


@pytest.mark.parametrize(
    "text", ["", "Aa", "polygenelubricants", "gr\u00fc\u00dfe", "\U0001f600", "\ud800", "x" * 256, "\uffff" * 257, "y" * 600]
)
def test_a_hash_is_that_of_java(text: str) -> None:
    expected, units = 0, text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        expected = (expected * 31 + int.from_bytes(units[at : at + 2])) % 2**32
    assert java_hash(text) == expected
    assert java_hash("polygenelubricants") == 2**31  # as Java says
