"""Handles DescribeClientQuotas (api 48), versions 0-1. KIP-546: lists the stored quotas of users, client ids and addresses (KIP-612)."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from ottla.broker.request.context import RequestContext
from ottla.controller.admin.client_quotas import CLIENT_ID, IP, USER
from ottla.controller.admin.config_admin import ConfigAdmin, Malformed
from ottla.controller.errors import ControllerError, InvalidAdminRequest
from ottla.controller.znodes.layout import DEFAULT_ENTITY, can_name_a_node, desanitize, sanitize
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.error_map import api_error, cut
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

logger = logging.getLogger(__name__)

KINDS = frozenset({USER, CLIENT_ID, IP})
EXACT, DEFAULT, ANY = 0, 1, 2
CLIENT_QUOTAS = ("request_percentage", "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")
"""In the order of Apache Kafka's answers."""
IP_QUOTAS = ("connection_creation_rate",)

Entity = dict[str, str | None]
"""Name by type of entity; None is the default of that type."""


async def handle_describe_client_quotas(request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
    """List the entities that match every component; with `strict`, only entities without further parts."""
    if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return DescribeClientQuotasResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None)
    if not all(await each(request.components, _is_meaningful)):
        return DescribeClientQuotasResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=None, entries=None)
    try:
        components = _components(request.components)
    except ControllerError as error:
        code, message = api_error(error)
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    if components is None:
        kind = next(component.entity_type for component in request.components if component.entity_type not in KINDS)
        message = f"Custom entity type '{kind}' not supported"
        return DescribeClientQuotasResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=cut(message), entries=None)
    entries = []
    admin = context.broker.administration.config_admin
    for entity, quotas in await _stored(admin, components, strict=request.strict):
        await pause()
        if quotas and _matches(entity, components, strict=request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                    values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


def _is_meaningful(component: ComponentData) -> bool:
    """Whether the match type and the match fit together. Otherwise Apache Kafka fails, before any other check."""
    return component.match is not None if component.match_type == EXACT else component.match_type in (DEFAULT, ANY)


def _components(asked: Iterable[ComponentData]) -> dict[str, ComponentData] | None:
    """The components by type; None when a type is unknown. Raises InvalidAdminRequest."""
    components: dict[str, ComponentData] = {}
    for component in asked:
        kind = component.entity_type
        if not kind:
            raise InvalidAdminRequest("Unexpected empty filter component entity type")
        if kind not in KINDS:
            return None
        if kind in components:
            raise InvalidAdminRequest(f"Duplicate {kind.removesuffix('-id')} filter component entity type")
        components[kind] = component
    if IP in components and len(components) > 1:
        raise InvalidAdminRequest(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."
        )
    return components


async def _stored(admin: ConfigAdmin, components: Mapping[str, ComponentData], *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    """The entities that may match, with their quotas, without those whose node is malformed. There may be many users, of which a
    component with a name selects one."""

    def may_match(*kinds: str) -> bool:
        return components.keys() <= {*kinds} and (not strict or len(components) == len(kinds))

    users, clients = _nodes(components.get(USER)), _nodes(components.get(CLIENT_ID))
    malformed: dict[str, MalformedZNode] = {}
    found: list[tuple[Entity, dict[str, float]]] = []
    if may_match(IP):
        for name, config in (await admin.read_all("ips", malformed)).items():
            await pause()
            found.append(({IP: _name(name)}, _quotas(config, IP_QUOTAS)))
    if may_match(USER):
        for name, config in (await _read(admin, "users", users, malformed)).items():
            await pause()
            found.append(({USER: _name(name)}, _quotas(config, CLIENT_QUOTAS)))
    if may_match(CLIENT_ID):
        for name, config in (await _read(admin, "clients", clients, malformed)).items():
            await pause()
            found.append(({CLIENT_ID: _name(name)}, _quotas(config, CLIENT_QUOTAS)))
    if may_match(USER, CLIENT_ID):
        for name, config in (await _read_pairs(admin, users, clients, malformed)).items():
            await pause()
            user, _, client = name.split("/")
            found.append(({USER: _name(user), CLIENT_ID: _name(client)}, _quotas(config, CLIENT_QUOTAS)))
    for error in malformed.values():
        logger.error("quotas are not listed: %s", error)
    return found


def _nodes(component: ComponentData | None) -> list[str] | None:
    """The nodes of the users or client ids that a component selects; None for all."""
    if component is None or component.match_type == ANY:
        return None
    if component.match_type == DEFAULT or component.match is None:
        return [DEFAULT_ENTITY]
    name = sanitize(component.match)
    return [name] if can_name_a_node(name) else []


async def _read(admin: ConfigAdmin, entity_type: str, nodes: Sequence[str] | None, malformed: Malformed) -> dict[str, dict[str, str]]:
    return await admin.read_all(entity_type, malformed) if nodes is None else await admin.read_many(entity_type, nodes, malformed)


async def _read_pairs(
    admin: ConfigAdmin, users: Sequence[str] | None, clients: Sequence[str] | None, malformed: Malformed
) -> dict[str, dict[str, str]]:
    if users is None or clients is None:
        return await admin.read_user_clients(users, malformed)
    return await admin.read_many("users", [f"{user}/clients/{client}" for user in users for client in clients], malformed)


def _name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else desanitize(node)


def _quotas(config: Mapping[str, str], keys: Iterable[str]) -> dict[str, float]:
    return {key: float(config[key]) for key in keys if key in config}


def _matches(entity: Entity, components: Mapping[str, ComponentData], *, strict: bool) -> bool:
    for kind, component in components.items():
        if kind not in entity:
            return False
        name = entity[kind]
        if (component.match_type == EXACT and name != component.match) or (component.match_type == DEFAULT and name is not None):
            return False
    return not strict or entity.keys() == components.keys()
