"""Reads the codes and filters in ACL requests, and decides which requests are refused as a whole.

Apache Kafka cannot read a request with the code UNKNOWN, and closes the connection.
"""

from collections.abc import Container
from typing import Protocol

from ottla.broker.network.request_channel import CLOSE, Completion
from ottla.broker.request.context import RequestContext
from ottla.controller.errors import RequestTooLong
from ottla.coordination.error_map import api_error
from ottla.protocol.acls import AclFilter, Operation, ResourceType
from ottla.protocol.errors import ErrorCode

UNKNOWN = 0


class FilterFields(Protocol):
    """The fields of a filter in DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def refuse_unknown(codes: Container[int], context: RequestContext) -> Completion | None:
    """CLOSE when one of the codes (types of resource, pattern and permission, operations) is UNKNOWN."""
    if UNKNOWN not in codes:
        return None
    context.offend("an ACL request with unknown elements")
    return CLOSE


def refusal_of_change(context: RequestContext) -> tuple[ErrorCode, str]:
    """Code and message if the sender may change no ACLs, or if there is no authorizer; otherwise NONE."""
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
    if context.broker.administration.acls is None:
        return ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    return ErrorCode.NONE, ""


def filter_of(fields: FilterFields) -> AclFilter:
    """The filter that a request has."""
    return AclFilter(
        fields.resource_type_filter,
        fields.resource_name_filter,
        fields.pattern_type_filter,
        fields.principal_filter,
        fields.host_filter,
        fields.operation,
        fields.permission_type,
    )


def failure_code(failure: Exception | None) -> tuple[ErrorCode, str | None]:
    """Code and message of an ACL that was not changed, or NONE. Apache Kafka gives no details of such a failure."""
    if isinstance(failure, RequestTooLong):
        return api_error(failure)
    return ErrorCode.NONE if failure is None else ErrorCode.UNKNOWN_SERVER_ERROR, None
