"""Lists, creates and deletes ACLs. KIP-140, KIP-290."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Refused, check
from ottla.protocol.acls import (
    STORED_OPERATIONS,
    STORED_PATTERN_TYPES,
    STORED_PERMISSION_TYPES,
    STORED_RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

EVERY_ACL: Final = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, PermissionType.ANY)
_NO_AUTHORIZER: Final = (
    "the brokers have no authorizer; set authorizer.class.name=kafka.security.authorizer.AclAuthorizer and super.users in the properties "
    "of each, and restart them"
)


def acl_text(acl: AclBinding) -> str:
    """An ACL in one line."""
    pattern, entry = acl
    return (
        f"{entry.permission_type.name.lower()} {entry.principal} from {entry.host} to {entry.operation.name.lower()} "
        f"{pattern.resource_type.name.lower()} {pattern.name}{'*' if pattern.pattern_type is PatternType.PREFIXED else ''}"
    )


def list_acls(cluster: Cluster, selected: AclFilter = EVERY_ACL) -> list[AclBinding]:
    """The ACLs that a filter selects, sorted. Raises Refused; ClientError for an ACL of a kind that is unknown here."""
    request = DescribeAclsRequest(
        resource_type_filter=selected.resource_type,
        resource_name_filter=selected.name,
        pattern_type_filter=selected.pattern_type,
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=selected.operation,
        permission_type=selected.permission_type,
    )

    def attempt() -> list[AclBinding]:
        answer = cluster.ask_any(request, DescribeAclsResponse)
        _check(answer.error_code, answer.error_message)
        return sorted(
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
            for resource in answer.resources
            for acl in resource.acls
        )

    return cluster.until_done(attempt)


def create_acls(cluster: Cluster, acls: Sequence[AclBinding]) -> dict[AclBinding, ClientError | None]:
    """Create ACLs: for each the reason why it was not created, or None. An ACL that exists stays.

    Raises Refused without an authorizer.
    """
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            for pattern, entry in acls
        ]
    )

    def attempt() -> dict[AclBinding, ClientError | None]:
        results = cluster.ask(cluster.any_connection, request, CreateAclsResponse).results
        for each in results:
            if each.error_code == ErrorCode.SECURITY_DISABLED:
                _check(each.error_code, each.error_message)
        return {acl: _outcome(acl, each.error_code, each.error_message) for acl, each in zip(acls, results, strict=True)}

    return cluster.until_done(attempt)


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> dict[AclBinding, ClientError | None]:
    """Delete the ACLs that filters select: for each the reason why it was not deleted, or None. Raises Refused.

    An attempt whose answer is lost may have deleted some. They are known from a list of before.
    """
    filters = list(filters)
    selected = _selected(cluster, filters)
    attempts = 0
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission_type,
            )
            for each in filters
        ]
    )

    def attempt() -> dict[AclBinding, ClientError | None]:
        nonlocal attempts
        attempts += 1
        deleted: dict[AclBinding, ClientError | None] = {}
        for result in cluster.ask(cluster.any_connection, request, DeleteAclsResponse).filter_results:
            _check(result.error_code, result.error_message)
            for each in result.matching_acls:
                acl = _acl(each.resource_type, each.resource_name, each.pattern_type, each)
                deleted[acl] = _outcome(acl, each.error_code, each.error_message)
        return deleted

    outcomes = cluster.until_done(attempt)
    return outcomes if attempts == 1 else {**dict.fromkeys(selected), **outcomes}


def _selected(cluster: Cluster, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """The ACLs that filters select; none for a client that may delete ACLs, but not see them."""
    try:
        return sorted({acl for each in filters for acl in list_acls(cluster, each)})
    except Refused:
        return []


class _Entry(Protocol):
    """The fields that every description of an ACL has."""

    principal: str
    host: str
    operation: int
    permission_type: int


def _acl(resource_type: int, name: str, pattern_type: int, entry: _Entry) -> AclBinding:
    codes = (
        (resource_type, STORED_RESOURCE_TYPES, "resource type"),
        (pattern_type, STORED_PATTERN_TYPES, "pattern type"),
        (entry.operation, STORED_OPERATIONS, "operation"),
        (entry.permission_type, STORED_PERMISSION_TYPES, "permission type"),
    )
    for code, known, what in codes:
        if code not in known:
            raise ClientError(f"the broker has an ACL of {name} with the {what} {code}, which is unknown here")
    return AclBinding(
        ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type)),
        AccessControlEntry(entry.principal, entry.host, Operation(entry.operation), PermissionType(entry.permission_type)),
    )


def _check(code: int, message: str | None) -> None:
    """Raises Refused unless the code is NONE. Without an authorizer the error has the remedy."""
    check("the ACLs", code, _NO_AUTHORIZER if code == ErrorCode.SECURITY_DISABLED else message)


def _outcome(acl: AclBinding, code: int, message: str | None) -> ClientError | None:
    return None if code == ErrorCode.NONE else Refused(acl_text(acl), code, message)
