"""Handles DescribeUserScramCredentials (api 50), version 0. KIP-554: lists mechanisms and iterations of users in the metadata store."""

from collections.abc import Mapping

from ottla.broker.request.context import RequestContext
from ottla.controller.znodes.layout import desanitize, sanitize
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.error_map import cut
from ottla.pauses import each, how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


async def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all users with credentials, sorted by name."""
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # One result for each user, without the name, as from Apache Kafka.
        results = await each(request.users or (), lambda _: _refused("", code, None))
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)
    admin = context.broker.administration.config_admin
    malformed: dict[str, MalformedZNode] = {}
    if not request.users:
        found = {desanitize(name): config for name, config in (await admin.read_all("users", malformed)).items()}
        unread = {desanitize(name) for name in malformed}
        results = []
        for user in sorted(found.keys() | unread):
            await pause()
            if user in unread:
                results.append(_refused(user, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message))
            elif found[user].keys() & MECHANISMS.keys():
                results.append(_described(user, found[user]))
        return DescribeUserScramCredentialsResponse(results=results)
    times = context.scratch(await how_often(user.name for user in request.users))
    names = await each((user for user, count in times.items() if user and count == 1), sanitize)
    stored = await admin.read_many("users", names, malformed)
    results = []
    for user, count in times.items():
        await pause()
        if not user:
            results.append(_refused(user, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"))
        elif count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            results.append(_refused(user, ErrorCode.DUPLICATE_RESOURCE, cut(message)))
        elif sanitize(user) in malformed:
            results.append(_refused(user, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message))
        else:
            config = stored.get(sanitize(user), {})
            if config.keys() & MECHANISMS.keys():
                results.append(_described(user, config))
            else:
                message = f"Attempt to describe a user credential that does not exist: {user}"
                results.append(_refused(user, ErrorCode.RESOURCE_NOT_FOUND, cut(message)))
    return DescribeUserScramCredentialsResponse(results=results)


def _described(user: str, config: Mapping[str, str]) -> DescribeUserScramCredentialsResult:
    try:
        infos = [
            CredentialInfo(mechanism=number, iterations=_iterations(config[name])) for name, number in MECHANISMS.items() if name in config
        ]
    except (KeyError, ValueError):
        # Not logged, since the value is a secret. The user's name in the answer shows an operator which credential to set again.
        return _refused(user, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR.message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


def _iterations(credential: str) -> int:
    """The number at the end of `salt=...,stored_key=...,server_key=...,iterations=4096`."""
    return int(dict(part.split("=", 1) for part in credential.split(","))["iterations"])


def _refused(user: str, code: ErrorCode, message: str | None) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
