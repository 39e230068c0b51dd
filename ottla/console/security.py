"""Shows and changes ACLs, users and quotas for the console."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from starlette.datastructures import QueryParams

from ottla.broker.security.principals import Principal
from ottla.client.acl_admin import acl_text, create_acls, delete_acls, list_acls
from ottla.client.cluster import Cluster
from ottla.client.errors import Refused
from ottla.client.quota_admin import CLIENT_ID, IP, USER, alter_quotas, describe_quotas, name_of
from ottla.client.user_admin import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, alter_users, list_users, new_credential
from ottla.console.parameters import BadParameter, Body
from ottla.console.topic_changes import Path
from ottla.console.views import View
from ottla.protocol.acls import (
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

_ACL_FIELDS: Final = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission_type")
_FILTERS: Final = frozenset({"ANY", "UNKNOWN"})
_KINDS: Final = (USER, CLIENT_ID, IP)
_MOST_PASSWORD_CHARACTERS: Final = 1024

Kind = TypeVar("Kind", bound=IntEnum)


def acls(cluster: Cluster, query: QueryParams) -> View:
    """The ACLs, all or those that the parameters select. Raises BadParameter, ClientError."""
    selected = AclFilter(
        _kind(ResourceType, query.get("resource_type") or "ANY", "resource_type"),
        query.get("name") or None,
        _kind(PatternType, query.get("pattern_type") or "ANY", "pattern_type"),
        query.get("principal") or None,
        query.get("host") or None,
        _kind(Operation, query.get("operation") or "ANY", "operation"),
        _kind(PermissionType, query.get("permission_type") or "ANY", "permission_type"),
    )
    return {"acls": [_acl_view(each) for each in list_acls(cluster, selected)]}


def add_acl(cluster: Cluster, _: Path, body: Body) -> View:
    """Add one ACL; one that exists stays. Raises BadParameter, ClientError."""
    acl = _acl(body)
    error = create_acls(cluster, [acl])[acl]
    if error is not None:
        raise error
    return _acl_view(acl)


def remove_acl(cluster: Cluster, _: Path, body: Body) -> View:
    """Remove one ACL, given as it is listed. Raises BadParameter, ClientError."""
    (pattern, entry) = acl = _acl(body)
    exactly = AclFilter(
        pattern.resource_type, pattern.name, pattern.pattern_type, entry.principal, entry.host, entry.operation, entry.permission_type
    )
    outcomes = delete_acls(cluster, [exactly])
    if not outcomes:
        raise Refused(acl_text(acl), ErrorCode.RESOURCE_NOT_FOUND, "there is no such ACL")
    error = next(filter(None, outcomes.values()), None)
    if error is not None:
        raise error
    return _acl_view(acl)


def _acl(body: Body) -> AclBinding:
    body.takes(*_ACL_FIELDS)
    principal = body.text("principal")
    try:
        Principal.parse(principal)
    except ValueError:
        raise BadParameter("principal is not TYPE:NAME; write User:alice") from None
    kinds = (
        _kind(ResourceType, body.text("resource_type"), "resource_type"),
        _kind(PatternType, body.optional_text("pattern_type") or "LITERAL", "pattern_type"),
        _kind(Operation, body.text("operation"), "operation"),
        _kind(PermissionType, body.optional_text("permission_type") or "ALLOW", "permission_type"),
    )
    resource, pattern, operation, permission = kinds
    for kind in kinds:
        if kind.name in _FILTERS or kind is PatternType.MATCH:
            raise BadParameter(f"{kind.name} is for filters, not for an ACL")
    return AclBinding(
        ResourcePattern(resource, body.text("name"), pattern),
        AccessControlEntry(principal, body.optional_text("host") or "*", operation, permission),
    )


def _acl_view(acl: AclBinding) -> View:
    (pattern, entry) = acl
    values = (pattern.resource_type.name, pattern.name, pattern.pattern_type.name)
    return dict(zip(_ACL_FIELDS, (*values, entry.principal, entry.host, entry.operation.name, entry.permission_type.name), strict=True))


def _kind(kinds: type[Kind], text: str, name: str) -> Kind:
    try:
        return kinds[text.upper().replace("-", "_")]
    except KeyError:
        raise BadParameter(f"{name} is one of {', '.join(each.name for each in kinds)}") from None


def users(cluster: Cluster) -> View:
    """The credentials of all users. Raises ClientError."""
    return {"users": [each._asdict() for each in list_users(cluster)]}


def set_user(cluster: Cluster, path: Path, body: Body) -> View:
    """Add a user, or give another password to one. The broker gets salted hashes. Raises BadParameter, ClientError."""
    body.takes("password", "mechanisms", "iterations")
    password = body.text("password")
    if not 0 < len(password) <= _MOST_PASSWORD_CHARACTERS:
        raise BadParameter(f"the password has 1 to {_MOST_PASSWORD_CHARACTERS} characters")
    iterations = body.integer("iterations") if body.has("iterations") else MIN_ITERATIONS
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise BadParameter(f"iterations is a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    mechanisms = _mechanisms(body)
    stored = [new_credential(path["name"], each, password, iterations) for each in mechanisms]
    _raise(alter_users(cluster, stored)[path["name"]])
    return {"user": path["name"], "mechanisms": mechanisms}


def delete_user(cluster: Cluster, path: Path, body: Body) -> View:
    """Remove the credentials of a user, whose name is repeated. Raises BadParameter, ClientError."""
    body.takes("confirm", "mechanisms")
    name = path["name"]
    body.confirmed(name)
    chosen = _mechanisms(body)
    deleted = [each.mechanism for each in list_users(cluster, [name]) if each.mechanism in chosen]
    if not deleted:
        raise Refused(f"user {name}", ErrorCode.RESOURCE_NOT_FOUND, f"it has no credential of {', '.join(chosen)}")
    _raise(alter_users(cluster, [], [(name, MECHANISMS[each]) for each in deleted])[name])
    return {"user": name, "mechanisms": deleted}


def _mechanisms(body: Body) -> list[str]:
    found = list(dict.fromkeys(body.texts("mechanisms"))) or list(MECHANISMS)
    if not set(found) <= set(MECHANISMS):
        raise BadParameter(f"mechanisms are among {', '.join(MECHANISMS)}")
    return found


def quotas(cluster: Cluster) -> View:
    """The quotas of all users, client ids and addresses; the name null is the default. Raises ClientError."""
    return {"quotas": [{"entity": each.entity, "values": each.values} for each in describe_quotas(cluster, {})]}


def change_quotas(cluster: Cluster, _: Path, body: Body) -> View:
    """Set and remove quotas of one entity, all or none. Raises BadParameter, ClientError."""
    body.takes("entity", "set", "remove")
    entity = body.optional_text_by_name("entity")
    if not entity or not set(entity) <= set(_KINDS):
        raise BadParameter(f"entity has the names of one or two of {', '.join(_KINDS)}; null is the default")
    changes: dict[str, float | None] = {**body.amount_by_name("set"), **dict.fromkeys(body.texts("remove"))}
    if not changes:
        raise BadParameter("nothing to change: give set or remove")
    alter_quotas(cluster, entity, changes)
    return {"entity": entity, "name": name_of(entity), "changed": list(changes)}


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
