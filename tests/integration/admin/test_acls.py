"""A broker with the AclAuthorizer: clients create, list and delete ACLs, and ACLs decide at once what clients may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.acls import AccessControlEntry, AclBinding, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.acl_requests import (
    ALL,
    ALLOW,
    ANONYMOUS,
    ANY,
    AUTHORIZER,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    create,
    creation,
    delete,
    described,
)
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, authorizer_class_name=AUTHORIZER, super_users=ANONYMOUS) as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def test_acls_are_created_listed_and_deleted(client: WireClient) -> None:
    assert described(client) == []
    made = [creation(), creation(operation=ALL, permission_type=DENY), creation(name="pre-", pattern=PREFIXED), creation(GROUP, "g")]
    assert create(client, *made) == [(0, "")] * 4
    of_t = (TOPIC, "t", LITERAL, [("User:alice", "*", READ, ALLOW), ("User:alice", "*", ALL, DENY)])
    of_prefix = (TOPIC, "pre-", PREFIXED, [("User:alice", "*", READ, ALLOW)])
    of_group = (GROUP, "g", LITERAL, [("User:alice", "*", READ, ALLOW)])
    assert described(client) == [of_t, of_prefix, of_group]
    assert described(client, resource_type_filter=TOPIC, resource_name_filter="pre-1", pattern_type_filter=MATCH) == [of_prefix]
    assert described(client, permission_type=DENY) == [(TOPIC, "t", LITERAL, [("User:alice", "*", ALL, DENY)])]
    assert described(client, principal_filter="User:bob") == described(client, host_filter="h") == []
    assert described(client, 0, pattern_type_filter=LITERAL) == [
        of_t,
        of_group,
    ]  # the version has no prefixed patterns, and filters literal ones
    named = {"resource_type_filter": TOPIC, "resource_name_filter": "t", "pattern_type_filter": LITERAL, "operation": READ}
    assert delete(client, named, {"resource_type_filter": TOPIC}, named) == [
        [(0, TOPIC, "t", LITERAL, "User:alice", READ)],
        [(0, TOPIC, "t", LITERAL, "User:alice", ALL), (0, TOPIC, "pre-", PREFIXED, "User:alice", READ)],
        [],
    ]
    assert described(client) == [of_group]


def test_acls_outlive_the_broker(tmp_path: Path) -> None:
    config = {"authorizer_class_name": AUTHORIZER, "super_users": ANONYMOUS}
    with a_broker_in_process(tmp_path, **config) as running, a_wire_client(running.port) as client:
        create(client, creation())
    with a_broker_in_process(tmp_path, **config) as running, a_wire_client(running.port) as client:
        assert described(client) == [(TOPIC, "t", LITERAL, [("User:alice", "*", READ, ALLOW)])]


def test_an_acl_that_cannot_be_fails_alone(client: WireClient) -> None:
    refused = (ErrorCode.INVALID_REQUEST, "Failed to create ACL")
    assert create(
        client,
        creation(CLUSTER, "wrong"),
        creation(name=""),
        creation(name="a/b"),
        creation(99),
        creation(ANY),
        creation(pattern=MATCH),
        creation(pattern=99),
        creation(operation=ANY),
        creation(operation=99),
        creation(permission_type=ANY),
        creation(name="."),
        creation(GROUP, ".."),
        creation(name="a\x01b"),
        creation(GROUP, "g", principal="alice"),
        creation(CLUSTER, "kafka-cluster"),
    ) == [
        (ErrorCode.INVALID_REQUEST, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (ErrorCode.INVALID_REQUEST, "Invalid empty resource name"),
        *[refused] * 8,
        *[(ErrorCode.INVALID_REQUEST, "Invalid resource name, which no node of ZooKeeper can have")] * 3,
        (ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (0, ""),
    ]
    assert [resource[:3] for resource in described(client)] == [(CLUSTER, "kafka-cluster", LITERAL)]


def test_prefixed_acls_need_a_cluster_that_understands_them(tmp_path: Path) -> None:
    config = {"authorizer_class_name": AUTHORIZER, "super_users": ANONYMOUS, "inter_broker_protocol_version": "1.1"}
    with a_broker_in_process(tmp_path, **config) as running, a_wire_client(running.port) as client:
        refused = (ErrorCode.INVALID_REQUEST, "Failed to create ACL")
        assert create(client, creation(pattern=PREFIXED), creation()) == [refused, (0, "")]


def topic_code(client: WireClient, name: str) -> int:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = client.ask(asked, 9).topics
    code: int = topic.error_code
    return code


def test_acls_decide_at_once(broker: InProcessBroker, client: WireClient) -> None:
    created = client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=9000), 5)
    assert created.topics[0].error_code == 0
    authorizer: Any = broker.services.authorizer
    authorizer._super_users = frozenset()
    authorizer._decisions.clear()
    assert topic_code(client, "t") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create(client, creation()) == [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)]
    acls = broker.services.administration.acls
    assert acls is not None

    def grant(*bindings: Any) -> None:
        assert broker.run(acls.create, bindings) == [None] * len(bindings)

    allow = AccessControlEntry(ANONYMOUS, "127.0.0.1", Operation.DESCRIBE, PermissionType.ALLOW)
    grant(AclBinding(ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED), allow))
    assert topic_code(client, "t") == 0
    deny = allow._replace(permission_type=PermissionType.DENY)
    grant(AclBinding(ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL), deny))
    assert topic_code(client, "t") == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_without_acls_everyone_may_do_everything_if_configured_so(tmp_path: Path) -> None:
    config = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    with a_broker_in_process(tmp_path, **config) as running, a_wire_client(running.port) as client:
        assert create(client, creation(CLUSTER, "kafka-cluster")) == [(0, "")]
        assert create(client, creation()) == [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)]
