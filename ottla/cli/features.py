"""Implements `ottla features`: lists the features of a cluster, and raises and lowers their levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.options import cluster_command, command_group, json_option, report_outcomes
from ottla.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

_MAX_LEVEL: Final = 2**15 - 1

_dry_run_option = click.option(
    "--dry-run", "--validate-only", "dry_run", is_flag=True, help="Let the controller judge the change, and change nothing."
)


@command_group
def features() -> None:
    """List, raise and lower the features of a cluster."""


@features.command(name="list")
@json_option
@cluster_command
def list_(cluster: Cluster, as_json: bool) -> None:
    """List features with their finalized and supported levels."""
    from ottla.client.feature_admin import describe_features

    found, epoch = describe_features(cluster)
    if as_json:
        print_json({"epoch": epoch, "features": [each._asdict() for each in found]})
        return
    print_table(
        ("feature", "finalized", "lowest", "highest"),
        [(each.name, each.finalized or None, each.lowest, each.highest) for each in found],
        empty="no features",
    )


@features.command()
@click.argument("wanted", nargs=-1, metavar="[FEATURE[=LEVEL]]...")
@_dry_run_option
@json_option
@cluster_command
def upgrade(cluster: Cluster, wanted: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Raise features, all without FEATURE, to a level, the highest without LEVEL.

    No broker of Apache Kafka 3.9 can be a member of the cluster afterwards.
    """
    from ottla.client.feature_admin import UPGRADE, describe_features, update_features

    known = {each.name: each for each in describe_features(cluster)[0]}
    named = _levels(wanted)
    levels = {name: known[name].highest if level is None and name in known else level or 1 for name, level in named.items()}
    if not wanted:
        levels = {name: each.highest for name, each in known.items() if each.finalized < each.highest}
        if not levels:
            say("every feature has its highest level")
    outcomes = update_features(cluster, levels, UPGRADE, validate_only=dry_run) if levels else {}
    verb = "can be raised" if dry_run else "raised"
    report_outcomes(outcomes.items(), {name: f"{verb} to {level}" for name, level in levels.items()}, as_json=as_json)


@features.command()
@click.argument("wanted", nargs=-1, metavar="[FEATURE[=LEVEL]]...")
@_dry_run_option
@json_option
@cluster_command
def downgrade(cluster: Cluster, wanted: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Lower features, all without FEATURE, to a level; without LEVEL they are removed.

    A feature is refused while groups with members need it. Clients that use a removed feature get errors.
    """
    from ottla.client.feature_admin import SAFE_DOWNGRADE, check_no_group_needs, describe_features, update_features

    levels = {name: level or 0 for name, level in _levels(wanted).items()}
    if not wanted:
        levels = {each.name: 0 for each in describe_features(cluster)[0] if each.finalized}
        if not levels:
            say("no feature is finalized")
    check_no_group_needs(cluster, levels)
    outcomes = update_features(cluster, levels, SAFE_DOWNGRADE, validate_only=dry_run) if levels else {}
    verb = "can be " if dry_run else ""
    done = {name: f"{verb}lowered to {level}" if level else f"{verb}removed" for name, level in levels.items()}
    report_outcomes(outcomes.items(), done, as_json=as_json)


def _levels(wanted: tuple[str, ...]) -> Mapping[str, int | None]:
    """The levels by feature; None where none is given. Raises UsageError."""
    found: dict[str, int | None] = {}
    for each in wanted:
        name, sign, level = each.partition("=")
        if not name or name in found or (sign and not (level.isascii() and level.isdecimal() and int(level) <= _MAX_LEVEL)):
            raise click.UsageError(f"{each!r} is not FEATURE or FEATURE=LEVEL, or names a feature twice.")
        found[name] = int(level) if sign else None
    return found
