"""Measures what security costs: loads of `single` on a broker that guards, beside the same broker without the guard.

GUARDS is a table. Each guard is a fresh broker with its own settings, on which `prepare` sets rules that refuse no request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.loads import workloads
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.parts.single import prepare_fetches
from benchmarks.report.lines import Line, Value, rate_of
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

UNREACHED_QUOTAS = {"producer_byte_rate": 1e15, "consumer_byte_rate": 1e15, "request_percentage": 1e9}
"""Quotas of the default user that no client reaches."""
MANY_ACLS = 10_000
ACLS_OF_A_TOPIC = 4
_ACLS_AT_ONCE = 1000
_TOPIC, _LITERAL, _PREFIXED, _ALL, _READ, _ALLOW = 2, 3, 4, 2, 3, 3
AUTHORIZER = {
    **COMMON_CONFIG,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # the cluster has no ACL: the client may create those of topics
}


@dataclass(frozen=True, slots=True)
class Guard:
    """A setting of security. `most_cost` is how many times slower a load may be."""

    key: str
    title: str
    config: Mapping[str, str] = field(default_factory=lambda: COMMON_CONFIG)
    prepare: Callable[[Admin], None] = lambda _: None
    most_cost: float | None = None


def _set_quotas(admin: Admin) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key=key, value=value, remove=False) for key, value in UNREACHED_QUOTAS.items()],
    )
    answer = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    if answer.entries[0].error_code:
        raise BrokerRefusedError(f"AlterClientQuotas: error code {answer.entries[0].error_code}")


def _create_acls(admin: Admin) -> None:
    """Create MANY_ACLS, of which one allows the load what it does."""
    creations = [
        AclCreation(
            resource_type=_TOPIC,
            resource_name=f"other-{number}",
            resource_pattern_type=_LITERAL if number % 2 else _PREFIXED,
            principal=f"User:user-{user}",
            host="*",
            operation=_READ,
            permission_type=_ALLOW,
        )
        for number in range(MANY_ACLS // ACLS_OF_A_TOPIC)
        for user in range(ACLS_OF_A_TOPIC)
    ]
    creations[-1] = AclCreation(
        resource_type=_TOPIC,
        resource_name="*",
        resource_pattern_type=_LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=_ALL,
        permission_type=_ALLOW,
    )
    for some in range(0, MANY_ACLS, _ACLS_AT_ONCE):
        request = CreateAclsRequest(creations=creations[some : some + _ACLS_AT_ONCE])
        for result in admin.ask(ApiKey.CREATE_ACLS, request, CreateAclsResponse).results:
            if result.error_code:
                raise BrokerRefusedError(f"CreateAcls: error code {result.error_code}")


WITHOUT = Guard("open", "without security")
GUARDS: Sequence[Guard] = (
    WITHOUT,
    Guard("quotas", "quotas that no client reaches", prepare=_set_quotas, most_cost=1 / 0.97),
    Guard("acls", f"{MANY_ACLS:,} ACLs", AUTHORIZER, _create_acls, most_cost=1 / 0.95),
)
PRODUCE = next(load for load in workloads.PRODUCE if load.key == "produce-16k")
FETCH = next(load for load in workloads.FETCH if load.key == "fetch-64k")


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """One broker after the other, each bound to its core."""
    for guard in GUARDS:
        with running(kind, turn, directory, plan, config=guard.config) as bench:
            bench.on_topic("warm-up", workloads.PRODUCE_CONNECTIONS, partial(_warm_up, bench))
            bench.attempt(f"{guard.key}-rules", partial(_prepare, bench, guard))
            bench.on_topic(PRODUCE.key, workloads.PRODUCE_CONNECTIONS, partial(_produce, bench, guard))
            bench.on_topic("fetched", workloads.FETCH_CONNECTIONS, partial(_fetch, bench, guard))


def _warm_up(bench: Bench, topic: Topic) -> None:
    bench.warm_up(workloads.warm_up(topic, bench.plan.size.pace.warm_up_slice_s))


def _prepare(bench: Bench, guard: Guard) -> None:
    with Admin("127.0.0.1", bench.broker.port) as admin:
        guard.prepare(admin)


def _produce(bench: Bench, guard: Guard, topic: Topic) -> None:
    bench.measure(f"{guard.key}-{PRODUCE.key}", f"{PRODUCE.title}, {guard.title}", PRODUCE.load(topic, bench.plan.size.pace))


def _fetch(bench: Bench, guard: Guard, topic: Topic) -> None:
    prepare_fetches(bench, topic)
    bench.measure(f"{guard.key}-{FETCH.key}", f"{FETCH.title}, {guard.title}", FETCH.load(topic, bench.plan.size.pace))


def cost_of(key: str, without: str) -> Value:
    """How many times slower a load is than another one."""

    def value(turns: Sequence[Turn]) -> float | None:
        rate, rate_without = rate_of(key)(turns), rate_of(without)(turns)
        return rate_without / rate if rate and rate_without else None

    return value


def lines(_: Size) -> Sequence[Line]:
    found = []
    for guard in GUARDS:
        for load in (PRODUCE, FETCH):
            key = f"{guard.key}-{load.key}"
            found.append(Line(key, f"{load.title}, {guard.title}", "req/s", rate_of(key)))
            if guard is not WITHOUT:
                cost = cost_of(key, f"{WITHOUT.key}-{load.key}")
                title = f"{load.title}: slower by {guard.title}"
                found.append(Line(f"{key}-cost", title, "×", cost, 3, True, at_most=guard.most_cost, is_compared=False))
    return found


PART = Part(
    key="security",
    title="The cost of security",
    about="Loads of the part `single`, on a broker that is bound to one core. Every setting has a fresh broker. A cost is the rate without "
    "security, divided by the rate with the setting.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    is_repeated=True,
)
