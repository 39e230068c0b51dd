"""Implements `ottla acls`: lists, adds and removes ACLs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import cluster_command, command_group, json_option, report_outcomes
from ottla.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.protocol.acls import AclBinding, AclFilter

_CLUSTER = "kafka-cluster"
_NAMED = {
    "topic": "this topic",
    "group": "this group",
    "transactional_id": "this transactional id",
    "delegation_token": "this delegation token",
    "user": "this user, as the owner of delegation tokens",
}
_OPERATIONS = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs", "alter-configs"),
    *("idempotent-write", "create-tokens", "describe-tokens"),
)
_operation_option = click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(_OPERATIONS, case_sensitive=False),
    help="May be repeated.",
)
_host_option = click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="From this address; may be repeated.")


def _resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that name resources."""
    command = click.option("--cluster", "of_cluster", is_flag=True, help="The cluster.")(command)
    for name, what in reversed(_NAMED.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, multiple=True, metavar="NAME", help=f"{what.capitalize()}; may be repeated.")(command)
    return command


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that select ACLs; without any of them, all are selected."""
    for option in (
        click.option("--permission", type=click.Choice(("allow", "deny")), help="Only those that allow, or that deny."),
        _host_option,
        _operation_option,
        click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Of this principal; may be repeated."),
        click.option(
            "--pattern-type",
            type=click.Choice(("any", "match", "literal", "prefixed")),
            default="any",
            show_default=True,
            help="With match: all ACLs that apply to the named resources, also by a prefix or by *.",
        ),
    ):
        command = option(command)
    return _resource_options(command)


@command_group
def acls() -> None:
    """List, add and remove ACLs. The broker needs an authorizer."""


@acls.command("list")
@_filter_options
@json_option
@cluster_command
def list_acls(cluster: Cluster, as_json: bool, **options: Any) -> None:
    """Show ACLs: all, or those that the options select."""
    from ottla.client.acl_admin import list_acls as listed

    found = sorted({acl for each in _filters(options) for acl in listed(cluster, each)})
    if as_json:
        print_json([_json(acl) for acl in found])
        return
    rows = [
        [
            _text(acl.pattern.resource_type),
            acl.pattern.name,
            _text(acl.pattern.pattern_type),
            acl.entry.principal,
            acl.entry.host,
            _text(acl.entry.operation),
            _text(acl.entry.permission_type),
        ]
        for acl in found
    ]
    print_table(("resource", "name", "pattern", "principal", "host", "operation", "permission"), rows, empty="no ACLs")


@acls.command()
@click.argument("principals", nargs=-1, required=True, metavar="TYPE:NAME...")
@_resource_options
@click.option("--prefixed", is_flag=True, help="The names are prefixes.")
@_operation_option
@click.option("--producer", is_flag=True, help="All that a producer needs: of topics, and of transactional ids if given.")
@click.option("--consumer", is_flag=True, help="All that a consumer needs: of topics and groups.")
@_host_option
@click.option("--deny", is_flag=True, help="Deny the operations. A Deny takes precedence over every Allow.")
@json_option
@cluster_command
def add(cluster: Cluster, principals: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Allow operations to principals, as in `ottla acls add User:alice --operation read --topic orders`.

    User:* stands for all users, and * for all names. An existing ACL is left unchanged.
    """
    from ottla.client.acl_admin import acl_text, create_acls

    wanted = _wanted(principals, options)
    outcomes = create_acls(cluster, wanted)
    if as_json:
        print_json([_json(acl) for acl, error in outcomes.items() if error is None])
        outcomes = {acl: error for acl, error in outcomes.items() if error is not None}
    report_outcomes(((acl_text(acl), error) for acl, error in outcomes.items()), "added")


@acls.command()
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Remove all ACLs, if no other option selects some.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
@cluster_command
def remove(cluster: Cluster, everything: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Remove the ACLs that the options select, and show them."""
    from ottla.client.acl_admin import EVERY_ACL, acl_text, delete_acls
    from ottla.client.acl_admin import list_acls as listed
    from ottla.client.errors import ClientError

    filters = _filters(options)
    if (filters == [EVERY_ACL]) is not everything:
        raise click.UsageError("Say which ACLs: by a resource, a principal, an operation, a host or a permission, or --all of them.")
    outcomes: Mapping[AclBinding, ClientError | None]
    if dry_run:
        outcomes = dict.fromkeys(sorted({acl for each in filters for acl in listed(cluster, each)}))
    else:
        outcomes = delete_acls(cluster, filters)
    if as_json:
        print_json([_json(acl) for acl, error in outcomes.items() if error is None])
        outcomes = {acl: error for acl, error in outcomes.items() if error is not None}
    elif not outcomes:
        say("no ACL is selected")
    report_outcomes(((acl_text(acl), error) for acl, error in outcomes.items()), "would be removed" if dry_run else "removed")


def _json(acl: AclBinding) -> dict[str, str]:
    pattern, entry = acl
    return {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission_type": entry.permission_type.name,
    }


def _text(member: Any) -> str:
    return str(member.name).lower().replace("_", "-")


def _resources(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The named resources, each as the name of its type and its own."""
    named = [(kind.upper(), name) for kind in _NAMED for name in options[kind]]
    return [*named, ("CLUSTER", _CLUSTER)] if options["of_cluster"] else named


def _filters(options: Mapping[str, Any]) -> list[AclFilter]:
    """A filter for each combination of what the options name."""
    from ottla.protocol.acls import AclFilter, Operation, PatternType, PermissionType, ResourceType

    permission = PermissionType.ANY if options["permission"] is None else PermissionType[options["permission"].upper()]
    operations = [Operation[each.upper().replace("-", "_")] for each in options["operations"]] or [Operation.ANY]
    pattern_type = PatternType[options["pattern_type"].upper()]
    resources: list[tuple[ResourceType, str | None]] = [(ResourceType[kind], name) for kind, name in _resources(options)]
    return [
        AclFilter(kind, name, pattern_type, principal, host, operation, permission)
        for kind, name in resources or [(ResourceType.ANY, None)]
        for principal in options["principals"] or (None,)
        for host in options["hosts"] or (None,)
        for operation in operations
    ]


def _wanted(principals: tuple[str, ...], options: Mapping[str, Any]) -> list[AclBinding]:
    """The ACLs to add. Raises UsageError."""
    from ottla.broker.security.principals import Principal
    from ottla.protocol.acls import AccessControlEntry, AclBinding, PatternType, PermissionType, ResourcePattern, ResourceType

    for principal in principals:
        try:
            Principal.parse(principal)
        except ValueError:
            raise click.UsageError(f"{principal!r} is not a principal; write User:{principal}.") from None
    named = _resources(options)
    if not named:
        raise click.UsageError("On which resource? Give --topic, --group, --cluster, --transactional-id, --delegation-token or --user.")
    if options["prefixed"] and options["of_cluster"]:
        raise click.UsageError("--prefixed and --cluster exclude each other.")
    pattern_type = PatternType.PREFIXED if options["prefixed"] else PatternType.LITERAL
    permission = PermissionType.DENY if options["deny"] else PermissionType.ALLOW
    return [
        AclBinding(ResourcePattern(ResourceType[kind], name, pattern_type), AccessControlEntry(principal, host, operation, permission))
        for kind, name in named
        for operation in _operations_on(kind, options)
        for principal in principals
        for host in options["hosts"] or ("*",)
    ]


_PRODUCER = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"), "CLUSTER": ("IDEMPOTENT_WRITE",)}
_CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
"""The operations that `kafka-acls.sh` adds for a producer and for a consumer, by resource type."""


def _operations_on(kind: str, options: Mapping[str, Any]) -> list[Any]:
    from ottla.protocol.acls import Operation

    names = [each.upper().replace("-", "_") for each in options["operations"]]
    for role, operations in ("producer", _PRODUCER), ("consumer", _CONSUMER):
        if options[role]:
            names += operations.get(kind, ())
    if not names:
        raise click.UsageError(f"Which operations on the {kind.lower().replace('_', ' ')}? Give --operation, --producer or --consumer.")
    return [Operation[name] for name in dict.fromkeys(names)]
