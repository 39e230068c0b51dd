"""Handles AlterUserScramCredentials (api 51), version 0. KIP-554: stores or deletes SCRAM credentials of users.

Only the active controller's broker does so; any other broker answers NOT_CONTROLLER.
"""

from itertools import chain

from ottla.broker.request.context import RequestContext
from ottla.controller.admin.scram_credentials import Deletion, Upsertion, alter_scram_credentials
from ottla.pauses import each, how_often, in_order
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Make all changes of a user, or none."""
    if not context.broker.cluster.controller.is_active:
        return await _refused(request, ErrorCode.NOT_CONTROLLER)
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        return await _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    deletions = context.scratch(await each(request.deletions, lambda it: Deletion(it.name, it.mechanism)))
    made = await each(
        request.upsertions, lambda it: Upsertion(it.name, it.mechanism, it.iterations, bytes(it.salt), bytes(it.salted_password))
    )
    upsertions = context.scratch(made)
    outcomes = context.scratch(list(await alter_scram_credentials(context.broker.administration.config_admin, deletions, upsertions)))
    return AlterUserScramCredentialsResponse(
        results=await each(outcomes, lambda it: AlterUserScramCredentialsResult(user=it[0], error_code=it[1][0], error_message=it[1][1]))
    )


async def _refused(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    users = await how_often(chain((it.name for it in request.deletions), (it.name for it in request.upsertions)))
    results = await each(
        (await in_order(users)), lambda user: AlterUserScramCredentialsResult(user=user, error_code=code, error_message=None)
    )
    return AlterUserScramCredentialsResponse(results=results)
