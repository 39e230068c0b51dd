"""Implements `ottla groups`: lists, describes and deletes groups, and shows, resets and deletes their offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

import click

from ottla.cli.doctor.kinds import reasons
from ottla.cli.options import cluster_command, command_group, fail, json_option, report_outcomes, topic_partitions
from ottla.cli.output import print_json, print_table, say
from ottla.cli.times import parse_span, parse_time
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.connection import Address
    from ottla.client.group_admin import DescribedGroup, Member
    from ottla.client.group_offsets.kinds import OffsetRequests, Position
    from ottla.protocol.topic_partition import TopicPartition

_INACTIVE = ("Empty", "Dead")
_STATES = click.Choice(
    ["Empty", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"], case_sensitive=False
)
_TYPES = click.Choice(["Classic", "Consumer", "Share"], case_sensitive=False)


@command_group
def groups() -> None:
    """List, describe and delete groups, and change their offsets."""


@groups.command("list")
@click.option("--state", "states", multiple=True, type=_STATES, help="Only groups in this state; may be repeated.")
@click.option("--type", "types", multiple=True, type=_TYPES, help="Only groups of this type; may be repeated.")
@json_option
@cluster_command
def list_groups(cluster: Cluster, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> None:
    """List groups with their states and types."""
    from ottla.client.group_admin import reachable_groups

    found, errors = reachable_groups(cluster, states, types)
    if as_json:
        print_json([group._asdict() for group in found])
    else:
        print_table(("group", "protocol", "state", "type", "coordinator"), found, empty="no groups")
    fail(map(str, errors.values()))


@groups.command()
@click.argument("names", nargs=-1)
@json_option
@cluster_command
def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Describe groups (all without NAMES): type, state, epoch, members, assignments, lag.

    The exit status is 1 if a coordinator or a leader did not answer, or a group does not exist; the others are shown.
    """
    from ottla.client.group_admin import describe_group, reachable_groups
    from ottla.client.group_offsets.kinds import requests_of
    from ottla.client.reachable import of_coordinators

    errors: list[str] = []
    coordinators: dict[str, int] = {}
    if not names:
        listed, silent = reachable_groups(cluster)
        coordinators = {each.group: each.coordinator for each in listed}
        errors += map(str, silent.values())

    def coordinator_of(name: str) -> int | Address:
        return coordinators[name] if name in coordinators else cluster.coordinator(name)

    def described(name: str) -> tuple[DescribedGroup, Mapping[TopicPartition, Position]]:
        group = describe_group(cluster, name)
        return group, requests_of(group.type).read(cluster, name)

    shown = []
    for name, outcome in of_coordinators("group", names or coordinators, coordinator_of, described):
        if isinstance(outcome, ClientError):
            errors.append(str(outcome))
            continue
        group, offsets = outcome
        if group.state == "Dead" and not offsets:
            errors.append(f"there is no group {name}")
            continue
        owners = group.owners()
        ends, missing = _ends(cluster, sorted({*offsets, *owners}))
        errors += reasons(missing)
        if as_json:
            shown.append(_group_json(group, offsets, owners, ends))
        else:
            _print_group(group, offsets, owners, ends)
    if as_json:
        print_json(shown)
    fail(dict.fromkeys(errors))


def _ends(cluster: Cluster, partitions: list[TopicPartition]) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, ClientError]]:
    """The end offset of each partition, None for a deleted one; and the errors of those whose leader does not answer."""
    from ottla.client.errors import Refused
    from ottla.client.offsets import LATEST, reachable_offsets

    wanted: dict[TopicPartition, int] = {}
    for topic in sorted({partition.topic for partition in partitions}):
        try:
            known = set(cluster.partitions(topic))
        except Refused as error:
            say(f"ottla: {error}")
            continue
        wanted |= {name: LATEST for name in partitions if name.topic == topic and name.partition in known}
    found, errors = reachable_offsets(cluster, wanted)
    return {name: found.get(name) for name in partitions}, errors


def _print_group(
    group: DescribedGroup,
    offsets: Mapping[TopicPartition, Position],
    owners: Mapping[TopicPartition, list[Member]],
    ends: Mapping[TopicPartition, int | None],
) -> None:
    title = f"{group.group}  state {group.state}  type {group.type}  coordinator {group.coordinator}  members {len(group.members)}"
    if group.epoch is not None:
        title += f"  epoch {group.epoch}"
    if group.assignor:
        title += f"  assignor {group.assignor}"
    rows: list[list[object]] = []
    for name, end in ends.items():
        at = offsets.get(name)
        cells = [name.topic, name.partition, at and at.offset, end, at and at.behind(end)]
        rows += [[*cells, member.member_id, member.client_id, member.host] for member in owners.get(name, ())]
        if name not in owners:
            rows.append([*cells, None, None, None])
    idle = [member for member in group.members if not member.partitions]
    rows += [[None, None, None, None, None, member.member_id, member.client_id, member.host] for member in idle]
    print_table(("topic", "partition", "offset", "end", "lag", "member", "client", "host"), rows, title=title)


def _group_json(
    group: DescribedGroup,
    offsets: Mapping[TopicPartition, Position],
    owners: Mapping[TopicPartition, list[Member]],
    ends: Mapping[TopicPartition, int | None],
) -> dict[str, object]:
    return {
        **{field: getattr(group, field) for field in ("group", "state", "type", "protocol_type", "epoch", "assignor", "coordinator")},
        "members": [{**member._asdict(), "partitions": [name._asdict() for name in member.partitions]} for member in group.members],
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "offset": at and at.offset,
                "end": end,
                "lag": at and at.behind(end),
                "members": [member.member_id for member in owners.get(name, ())],
            }
            for name, end in ends.items()
            for at in (offsets.get(name),)
        ],
    }


@groups.command()
@click.argument("name")
@json_option
@cluster_command
def offsets(cluster: Cluster, name: str, as_json: bool) -> None:
    """Show a group's committed offsets; the start offsets of a share group, with the lag."""
    requests = _requests_for(cluster, name)
    found = sorted(requests.read(cluster, name).items())
    if as_json:
        print_json([{**partition._asdict(), **offset._asdict()} for partition, offset in found])
        return
    print_table(("topic", "partition", *requests.fields), [[*partition, *offset] for partition, offset in found])


@groups.command()
@click.argument("name")
@json_option
@cluster_command
def records(cluster: Cluster, name: str, as_json: bool) -> None:
    """Show the records of a share group that are in flight, with their stored states and deliveries. Locks are not stored."""
    from ottla.cli.shares.stored_records import stored_records

    found = stored_records(cluster, name)
    if as_json:
        each = [{**where._asdict(), **at._asdict(), "records": [run._asdict() for run in at.records]} for where, at in found.items()]
        print_json(each)
        return
    rows = [[*where, *run] for where, at in found.items() for run in at.records]
    print_table(("topic", "partition", "first", "last", "state", "deliveries"), rows)


def _requests_for(cluster: Cluster, name: str) -> OffsetRequests:
    from ottla.client.group_admin import describe_group
    from ottla.client.group_offsets.kinds import requests_of

    return requests_of(describe_group(cluster, name).type)


@groups.command("reset-offsets")
@click.argument("name")
@click.option("--topic", "names", multiple=True, metavar="TOPIC[:PARTITIONS]", help="Only of this topic; may be repeated.")
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="To the beginning.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To the current offsets; to the end for partitions without one.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--shift-by", type=int, help="By this many records, backwards if negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at that time: 2024-05-01T12:00:00.000, UTC by default.")
@click.option("--by-duration", metavar="SPAN", help="To the first record since then: P1DT12H, 36h.")
@click.option("--from-file", type=click.File(), help="To the offsets in a CSV file: topic,partition,offset.")
@click.option("--execute", is_flag=True, help="Reset the offsets. By default they are only shown.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets, which is the default.")
@click.option("--export", is_flag=True, help="Print CSV for --from-file.")
@json_option
@cluster_command
def reset_offsets(
    cluster: Cluster,
    name: str,
    names: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: IO[str] | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_json: bool,
) -> None:
    """Reset a group's offsets. The group must have no members."""
    from ottla.cli.offset_reset import planned_offsets, read_plan
    from ottla.client.group_admin import describe_group
    from ottla.client.group_offsets.kinds import known, requests_of

    modes = [to_earliest, to_latest, to_current, to_offset is not None, shift_by is not None, to_datetime, by_duration, from_file]
    if sum(map(bool, modes)) != 1:
        raise click.UsageError(
            "Give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration and "
            "--from-file."
        )
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    if from_file is None and bool(names) == all_topics:
        raise click.UsageError("Give either --topic or --all-topics.")
    from_plan = None if from_file is None else read_plan(from_file, name)
    moment = _moment(to_datetime, by_duration)
    group = describe_group(cluster, name)
    requests = requests_of(group.type)
    if to_current and not requests.may_stay:
        raise ClientError(f"--to-current makes no sense for share group {name}: its position is not one offset; use --to-offset")
    positions = requests.read(cluster, name)
    committed = known(positions)
    if from_plan is not None:
        partitions = list(from_plan)
    else:
        partitions = topic_partitions(cluster, names) if names else sorted(positions)
    if not partitions:
        raise ClientError(f"group {name} has no offsets; name the topics with --topic")
    plan = planned_offsets(
        cluster,
        partitions,
        committed,
        remark=say,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_time_ms=moment,
        from_file=from_plan,
        seconds=cluster.timeout_seconds,
    )
    if execute:
        if plan.missing:
            fail([*reasons(plan.missing), "no offset was reset; wait for the leaders, or name other partitions with --topic"])
        _check_inactive(group)
        requests.move(cluster, name, plan.offsets)
    _print_plan(plan.offsets, committed, as_json=as_json, export=export)
    if not execute and not dry_run:
        say("nothing was changed; --execute resets the offsets")
    fail(reasons(plan.missing))


def _check_inactive(group: DescribedGroup) -> None:
    if group.state not in _INACTIVE:
        raise ClientError(
            f"the offsets of group {group.group} can only be reset while it has no members; it is {group.state}. Stop its consumers"
        )


def _print_plan(offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int], *, as_json: bool, export: bool) -> None:
    if as_json:
        print_json([{**where._asdict(), "before": committed.get(where), "offset": offset} for where, offset in offsets.items()])
    elif export:
        for where, offset in offsets.items():
            print(f"{where.topic},{where.partition},{offset}")
    else:
        rows = [[*where, committed.get(where), offset] for where, offset in offsets.items()]
        print_table(("topic", "partition", "before", "offset"), rows)


@groups.command("delete-offsets")
@click.argument("name")
@click.option(
    "--topic", "names", multiple=True, required=True, metavar="TOPIC[:PARTITIONS]", help="Offsets of this topic; may be repeated."
)
@json_option
@cluster_command
def delete_offsets(cluster: Cluster, name: str, names: tuple[str, ...], as_json: bool) -> None:
    """Delete a group's offsets of topics that no member subscribes to; those of a share group, of whole topics, while it has no members."""
    outcomes = _requests_for(cluster, name).delete(cluster, name, topic_partitions(cluster, names))
    report_outcomes(((str(partition), error) for partition, error in outcomes.items()), "offset deleted", as_json=as_json)


@groups.command()
@click.argument("names", nargs=-1, required=True)
@json_option
@cluster_command
def delete(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    from ottla.client.group_admin import delete_groups

    report_outcomes(delete_groups(cluster, names).items(), "deleted", as_json=as_json)


def _moment(to_datetime: str | None, by_duration: str | None) -> int | None:
    now_ms = int(time.time() * 1000)
    try:
        if to_datetime is not None:
            return parse_time(to_datetime, now_ms)
        return None if by_duration is None else max(now_ms - parse_span(by_duration), 0)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
