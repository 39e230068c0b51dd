"""Encodes and decodes the znodes of the AclAuthorizer and of delegation tokens, in Apache Kafka's bytes.

Literal resources are under /kafka-acl/TYPE/NAME, prefixed ones under /kafka-acl-extended/prefixed/TYPE/NAME. Changes
are announced in two more trees; the older one names literal resources as bare text.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.znodes.znode_json import MalformedZNode, decode_object, encode_json
from ottla.protocol.schema.wire import MAX_STRING_BYTES

logger = logging.getLogger(__name__)

ACL = "/kafka-acl"
PREFIXED_ACL = "/kafka-acl-extended/prefixed"
ACL_CHANGES = "/kafka-acl-changes"
ACL_CHANGE_PREFIX = "/kafka-acl-changes/acl_changes_"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
EXTENDED_ACL_CHANGE_PREFIX = "/kafka-acl-extended-changes/acl_changes_"
SCRAM_SECRET = "/ottla_scram_secret"
"""Has a random text, the secret of the cluster by which brokers answer for users that do not exist."""
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "/delegation_token/token_changes/token_change_"
UNKNOWN_PRINCIPAL = "Unknown:?"
UNKNOWN_HOST = "?"
"""These match no client."""


class AclEntry(NamedTuple):
    """One ACL of a resource, with the names that Kafka writes: `User:alice`, `Allow`, `IdempotentWrite`."""

    principal: str
    permission_type: str
    host: str
    operation: str


class DelegationToken(NamedTuple):
    """The body of a token's node; principals are URL-encoded (`User%3Aalice`)."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


def encode_acls(entries: Sequence[AclEntry]) -> bytes:
    """The ACLs of one resource."""
    acls = [
        {"principal": each.principal, "permissionType": each.permission_type, "host": each.host, "operation": each.operation}
        for each in entries
    ]
    return encode_json({"acls": acls, "version": 1})


def decode_acls(path: str, data: bytes | None) -> list[AclEntry]:
    """The inverse of encode_acls, but for texts that no answer could show: UNKNOWN_PRINCIPAL and UNKNOWN_HOST replace them.

    Such an ACL matches no client, but it stays. A resource without any could be open to everyone.
    """
    try:
        entries = [
            AclEntry(acl["principal"], acl["permissionType"], acl["host"], acl["operation"]) for acl in decode_object(path, data)["acls"]
        ]
    except (KeyError, TypeError) as error:
        raise MalformedZNode(path, f"not a list of ACLs: {error!r}") from error
    if not all(isinstance(value, str) for entry in entries for value in entry):
        raise MalformedZNode(path, "not a list of ACLs: their values are texts")
    found = [
        entry._replace(
            principal=entry.principal if _can_be_answered(entry.principal) else UNKNOWN_PRINCIPAL,
            host=entry.host if _can_be_answered(entry.host) else UNKNOWN_HOST,
        )
        for entry in entries
    ]
    if found != entries:
        changed = sum(one != other for one, other in zip(entries, found, strict=True))
        logger.error("%s: %d ACLs match no client, because none can have their principal or host", path, changed)
    return found


def _can_be_answered(text: str) -> bool:
    """Whether the text is a string of the protocol. One with half of a surrogate pair is none."""
    try:
        return len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def encode_acl_change(resource_type: str, name: str) -> bytes:
    """The notification that the ACLs of a literal resource changed."""
    return f"{resource_type}:{name}".encode()


def decode_acl_change(path: str, data: bytes | None) -> tuple[str, str]:
    """Type and name of the resource."""
    try:
        resource_type, colon, name = (data or b"").decode().partition(":")
    except UnicodeDecodeError as error:
        raise MalformedZNode(path, "not UTF-8") from error
    if not colon:
        raise MalformedZNode(path, "not of the form TYPE:name")
    return resource_type, name


def encode_extended_acl_change(resource_type: str, name: str, pattern_type: str) -> bytes:
    """The notification that the ACLs of a resource changed whose pattern type is not literal."""
    return encode_json({"version": 1, "resourceType": resource_type, "name": name, "patternType": pattern_type})


def decode_extended_acl_change(path: str, data: bytes | None) -> tuple[str, str, str]:
    """Type, name and pattern type of the resource."""
    body = decode_object(path, data)
    try:
        return body["resourceType"], body["name"], body["patternType"]
    except KeyError as error:
        raise MalformedZNode(path, f"{error} is missing") from error


def encode_token(token: DelegationToken) -> bytes:
    """Version 3."""
    return encode_json(
        {
            "issueTimestamp": token.issue_timestamp_ms,
            "renewers": token.renewers,
            "tokenRequester": token.requester,
            "tokenId": token.token_id,
            "owner": token.owner,
            "expiryTimestamp": token.expiry_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "version": 3,
        }
    )


def decode_token(path: str, data: bytes | None) -> DelegationToken:
    """Versions 1 to 3; before version 3 the owner is the requester."""
    body = decode_object(path, data)
    try:
        token = DelegationToken(
            body["tokenId"],
            body["owner"],
            body.get("tokenRequester", body["owner"]),
            tuple(body["renewers"]),
            body["issueTimestamp"],
            body["expiryTimestamp"],
            body["maxTimestamp"],
        )
    except (KeyError, TypeError) as error:
        raise MalformedZNode(path, f"not a delegation token: {error!r}") from error
    texts = (token.token_id, token.owner, token.requester, *token.renewers)
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    if not all(isinstance(each, str) for each in texts) or not all(type(each) is int for each in times):
        raise MalformedZNode(path, "not a delegation token: names are texts, times are numbers")
    return token
