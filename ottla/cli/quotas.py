"""Implements `ottla quotas`: lists, sets and removes quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.configs import meaning_told
from ottla.cli.options import amounts, cluster_command, command_group, json_option, report_outcomes
from ottla.cli.output import print_json, print_table

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

_DEFAULT = "<default>"
_KINDS = ("user", "client-id", "ip")


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that name an entity: for each type its name, or its default."""
    for kind in reversed(_KINDS):
        name = kind.replace("-", "_")
        command = click.option(f"--default-{kind}", f"default_{name}", is_flag=True, help=f"Every {kind} without a quota of its own.")(
            command
        )
        command = click.option(f"--{kind}", name, metavar="NAME", help=f"This {kind}.")(command)
    return command


@command_group
def quotas() -> None:
    """List, set and remove quotas of clients.

    producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of one second of a handler) and
    controller_mutation_rate (partitions created and deleted per second) limit users, client ids, and pairs of both on
    each broker. connection_creation_rate limits the connections per second of an address.
    """


@quotas.command(name="list")
@entity_options
@click.option("--strict", is_flag=True, help="Only quotas of exactly this entity, not those of pairs that contain it.")
@json_option
@cluster_command
def list_(cluster: Cluster, strict: bool, as_json: bool, **names: Any) -> None:
    """List quotas: all, or those of the named users, client ids and addresses."""
    from ottla.client.quota_admin import describe_quotas

    found = describe_quotas(cluster, _entity(names), strict=strict)
    if as_json:
        print_json([{"entity": each.entity, "quotas": each.values} for each in found])
        return
    rows = [[*(_shown(each.entity, kind) for kind in _KINDS), key, f"{value:.15g}"] for each in found for key, value in each.values.items()]
    print_table((*_KINDS, "quota", "value"), rows, empty="no quotas")


@quotas.command(name="set")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@entity_options
@click.option("--dry-run", "--validate-only", "validate_only", is_flag=True, help="Only check whether they can be set.")
@json_option
@cluster_command
def set_(cluster: Cluster, values: tuple[str, ...], validate_only: bool, as_json: bool, **names: Any) -> None:
    """Set quotas of an entity, all of them or none."""
    _alter(cluster, names, dict(amounts(values, "quota")), validate_only=validate_only, as_json=as_json)


@quotas.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@entity_options
@click.option("--dry-run", "--validate-only", "validate_only", is_flag=True, help="Only check whether they can be removed.")
@json_option
@cluster_command
def remove(cluster: Cluster, keys: tuple[str, ...], validate_only: bool, as_json: bool, **names: Any) -> None:
    """Remove quotas of an entity. A less specific quota may limit its clients then."""
    _alter(cluster, names, dict.fromkeys(keys), validate_only=validate_only, as_json=as_json)


def _alter(cluster: Cluster, names: dict[str, Any], changes: dict[str, float | None], *, validate_only: bool, as_json: bool) -> None:
    from ottla.client.quota_admin import alter_quotas, name_of

    entity = _entity(names)
    if not entity:
        raise click.UsageError("Whose quotas? Give --user, --client-id or --ip, or the default of one.")
    with meaning_told("quota", changes):
        alter_quotas(cluster, entity, changes, validate_only=validate_only)
    report_outcomes([(name_of(entity), None)], "could be changed" if validate_only else "changed", as_json=as_json)


def _entity(names: dict[str, Any]) -> dict[str, str | None]:
    """The named entity. Raises UsageError."""
    entity: dict[str, str | None] = {}
    for kind in _KINDS:
        option = kind.replace("-", "_")
        name, is_default = names[option], names[f"default_{option}"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --default-{kind} exclude each other.")
        if name is not None or is_default:
            entity[kind] = name
    return entity


def _shown(entity: dict[str, str | None], kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return _DEFAULT if name is None else name
