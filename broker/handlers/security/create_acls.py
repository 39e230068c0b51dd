"""Handles CreateAcls (api 30), versions 0-3. Without an authorizer the result for each ACL is SECURITY_DISABLED. KIP-140, KIP-290."""

from ottla.broker.handlers.security.acl_codes import failure_code, refusal_of_change, refuse_unknown
from ottla.broker.network.request_channel import Completion
from ottla.broker.request.context import RequestContext
from ottla.broker.security.access import CLUSTER_NAME
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.schema.metadata_version import is_at_least
from ottla.controller.znodes.layout import can_name_a_node
from ottla.pauses import each, pause
from ottla.protocol.acls import (
    STORED_OPERATIONS,
    STORED_PATTERN_TYPES,
    STORED_PERMISSION_TYPES,
    STORED_RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

FIRST_VERSION_WITH_PREFIXES = "2.0-IV1"
"""The inter.broker.protocol.version from which all brokers of the cluster understand prefixed patterns."""


async def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse | Completion:
    """Store the ACLs; each succeeds or fails with the others of its pattern."""
    codes: set[int] = set()
    for asked in request.creations:
        await pause()
        codes.update((asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type))
    refused = refuse_unknown(codes, context)
    if refused is not None:
        return refused
    code, message = refusal_of_change(context)
    acls = context.broker.administration.acls
    if acls is None or code:
        results = await each(request.creations, lambda _: AclCreationResult(error_code=code, error_message=message))
        return CreateAclsResponse(results=results)
    has_prefixes = is_at_least(context.broker.config[INTER_BROKER_PROTOCOL_VERSION], FIRST_VERSION_WITH_PREFIXES)
    results = await each(request.creations, lambda asked: _refusal(asked, has_prefixes))
    valid = [number for number, result in enumerate(results) if not result.error_code]
    failures = await acls.create(await each(valid, lambda number: _binding(request.creations[number])))
    for number, failure in zip(valid, failures, strict=True):
        if failure is not None:
            results[number].error_code, results[number].error_message = failure_code(failure)
    return CreateAclsResponse(results=results)


def _refusal(asked: AclCreation, has_prefixes: bool) -> AclCreationResult:
    """INVALID_REQUEST for an ACL that cannot be, or else success."""
    message = ""
    if asked.resource_type == ResourceType.CLUSTER and asked.resource_name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not asked.resource_name:
        message = "Invalid empty resource name"
    elif (
        "/" in asked.resource_name
        or asked.resource_type not in STORED_RESOURCE_TYPES
        or asked.resource_pattern_type not in STORED_PATTERN_TYPES
        or asked.operation not in STORED_OPERATIONS
        or asked.permission_type not in STORED_PERMISSION_TYPES
        or (asked.resource_pattern_type == PatternType.PREFIXED and not has_prefixes)
    ):
        message = "Failed to create ACL"
    elif not can_name_a_node(asked.resource_name):
        message = "Invalid resource name, which no node of ZooKeeper can have"
    return AclCreationResult(error_code=ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE, error_message=message)


def _binding(asked: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType(asked.resource_type), asked.resource_name, PatternType(asked.resource_pattern_type)),
        AccessControlEntry(asked.principal, asked.host, Operation(asked.operation), PermissionType(asked.permission_type)),
    )
