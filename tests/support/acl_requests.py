"""Creates, lists and deletes ACLs over one connection, so that the broker that answers is known."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.support.wire_client import WireClient

ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 1, 2, 3, 4, 5
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, DESCRIBE = 2, 3, 8
DENY, ALLOW = 2, 3
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
EVERYTHING: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


def creation(resource_type: int = TOPIC, name: str = "t", pattern: int = LITERAL, **fields: Any) -> AclCreation:
    values = {"principal": "User:alice", "host": "*", "operation": READ, "permission_type": ALLOW} | fields
    return AclCreation(resource_type=resource_type, resource_name=name, resource_pattern_type=pattern, **values)


def create(client: WireClient, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    answer = client.ask(CreateAclsRequest(creations=list(creations)), version)
    return [(result.error_code, result.error_message) for result in answer.results]


def described(client: WireClient, version: int = 3, **fields: Any) -> list[tuple[int, str, int, list[tuple[str, str, int, int]]]]:
    values = EVERYTHING | fields
    answer = client.ask(DescribeAclsRequest(**values), version)
    assert (answer.error_code, answer.error_message) == (0, "")
    return [
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls],
        )
        for each in answer.resources
    ]


def delete(client: WireClient, *filters: dict[str, Any]) -> list[list[tuple[int, int, str, int, str, int]]]:
    answer = client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**(EVERYTHING | each)) for each in filters]), 3)
    assert [(each.error_code, each.error_message) for each in answer.filter_results] == [(0, None)] * len(filters)
    return [
        [
            (acl.error_code, acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.operation)
            for acl in each.matching_acls
        ]
        for each in answer.filter_results
    ]
