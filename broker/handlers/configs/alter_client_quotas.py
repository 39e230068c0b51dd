"""Handles AlterClientQuotas (api 49), versions 0-1. KIP-546: sets quotas of users, client ids and addresses (KIP-612).

All quotas are stored, and take effect on every broker at once.
"""

from collections.abc import Mapping

from ottla.broker.handlers.configs.config_resources import REFUSALS, refusal
from ottla.broker.network.host_names import address_of, resolve
from ottla.broker.request.context import RequestContext
from ottla.controller.admin.client_quotas import CLIENT_ID, QuotaOp, alter_client_quotas
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)


async def handle_alter_client_quotas(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    """Change one entity after the other. An entity that is named twice is changed twice, and answered once, with the second result."""
    if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused = AlterClientQuotasResponse()
        for entry in request.entries:
            await pause()
            named: dict[str, str | None] = {part.entity_type: part.entity_name for part in entry.entity}
            refused.entries.append(await _entry(named, code, code.message))
        return refused
    answers: dict[frozenset[tuple[str, str | None]], AlterClientQuotasResponseEntryData] = {}
    for entry in request.entries:
        await pause()
        entity: dict[str, str | None] = {}
        for part in entry.entity:
            entity[part.entity_type] = part.entity_name
            await pause()
        ops = await each(entry.ops, lambda op: QuotaOp(op.key, None if op.remove else op.value))
        code, message = ErrorCode.NONE, None
        try:
            await alter_client_quotas(
                context.broker.administration.config_admin,
                entity,
                ops,
                can_resolve,
                validate_only=request.validate_only,
            )
        except REFUSALS as error:
            code, message = refusal(error)
        answers[frozenset(entity.items())] = await _entry(entity, code, message)
    await context.broker.administration.dynamic_config.catch_up()
    return AlterClientQuotasResponse(entries=list(answers.values()))


async def _entry(entity: Mapping[str, str | None], code: ErrorCode, message: str | None) -> AlterClientQuotasResponseEntryData:
    client_id = [(CLIENT_ID, entity[CLIENT_ID])] if CLIENT_ID in entity else []
    answer = AlterClientQuotasResponseEntryData(error_code=code, error_message=message)
    for kind, name in (*client_id, *entity.items()):
        if kind != CLIENT_ID or not answer.entity:
            answer.entity.append(AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name))
        await pause()
    return answer


async def can_resolve(host: str) -> bool:
    """Whether the host is an address, or a name that resolves to one. An address with an interface is none: no socket shows it."""
    if "%" in host:
        return False
    if address_of(host) is not None:
        return True
    try:
        await resolve(host)
    except (OSError, UnicodeError):
        return False
    return True
