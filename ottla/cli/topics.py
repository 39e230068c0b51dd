"""Implements `ottla topics`: lists, describes, creates, alters and deletes topics, shows offsets, deletes records;
`reassign` and `elect` are subcommands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli.doctor.kinds import reasons
from ottla.cli.options import (
    check_brokers,
    cluster_command,
    command_group,
    fail,
    is_number,
    json_option,
    key_values,
    replica_assignment,
    report_outcomes,
    topic_names,
    topic_partitions,
)
from ottla.cli.output import counted, print_json, print_table
from ottla.cli.partitions.elect import elect
from ottla.cli.partitions.reassign import reassign
from ottla.cli.times import parse_time
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.protocol.messages.metadata import MetadataResponseTopic


names_argument = click.argument("names", nargs=-1)


@command_group
def topics() -> None:
    """List, describe, create, alter and delete topics."""


topics.add_command(reassign)
topics.add_command(elect)


@topics.command("list")
@names_argument
@click.option("--internal", is_flag=True, help="Internal topics, too.")
@json_option
@cluster_command
def list_topics(cluster: Cluster, names: tuple[str, ...], internal: bool, as_json: bool) -> None:
    """List topics (all without NAMES) with their partitions and replication factor. NAMES may be patterns like 'app-*'."""
    from ottla.client.topic_admin import all_topics

    wanted = set(topic_names(cluster, names))
    found = [topic for topic in all_topics(cluster) if (topic.name in wanted if names else internal or not topic.is_internal)]
    missing = wanted - {topic.name for topic in found}
    if as_json:
        print_json([_topic_json(topic) for topic in found])
    else:
        rows = [
            [topic.name, len(topic.partitions), max((len(part.replica_nodes) for part in topic.partitions), default=0)] for topic in found
        ]
        print_table(("topic", "partitions", "replicas"), rows, empty="no topics")
    fail(f"there is no topic {name}" for name in sorted(missing))


@topics.command()
@names_argument
@click.option("--under-replicated", is_flag=True, help="Only partitions with fewer in-sync replicas than replicas.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@json_option
@cluster_command
def describe(cluster: Cluster, names: tuple[str, ...], under_replicated: bool, unavailable: bool, as_json: bool) -> None:
    """Describe topics (all without NAMES): leaders, replicas, configurations.

    The exit status is 1 if a configuration may not be seen; the topic is shown without it.
    """
    from ottla.client.topic_admin import all_topics
    from ottla.protocol.uuid import ZERO_UUID, to_text

    found = [cluster.topic(name) for name in topic_names(cluster, names)] if names else all_topics(cluster)
    shown = []
    errors: list[str] = []
    for topic in found:
        name = topic.name or ""
        configs = _changed_configs(cluster, name, errors)
        topic.partitions = [
            part
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            if (not under_replicated or len(part.isr_nodes) < len(part.replica_nodes)) and (not unavailable or part.leader_id < 0)
        ]
        if (under_replicated or unavailable) and not topic.partitions:
            continue
        if as_json:
            shown.append({**_topic_json(topic), "configs": configs})
            continue
        title = f"{name}{'' if topic.topic_id == ZERO_UUID else f'  id {to_text(topic.topic_id)}'}"
        if configs:
            title += "  " + " ".join(f"{key}={value}" for key, value in sorted(configs.items()))
        rows = [
            [part.partition_index, part.leader_id if part.leader_id >= 0 else "none", part.leader_epoch, part.replica_nodes, part.isr_nodes,
             part.offline_replicas]
            for part in topic.partitions
        ]  # fmt: skip
        print_table(("partition", "leader", "epoch", "replicas", "isr", "offline"), rows, title=title)
    if as_json:
        print_json(shown)
    fail(errors)


def _changed_configs(cluster: Cluster, name: str, errors: list[str]) -> dict[str, str | None] | None:
    """The keys of a topic that were set, with their values. None, and another error, if this client may not see them."""
    from ottla.client.config_admin import DYNAMIC, ConfigResourceType, describe_configs
    from ottla.client.errors import Refused
    from ottla.protocol.errors import ErrorCode

    try:
        described = describe_configs(cluster, ConfigResourceType.TOPIC, name)
    except Refused as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        errors.append(f"the configuration of {error}")
        return None
    return {config.name: config.value for config in described if config.config_source in DYNAMIC}


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("-p", "--partitions", type=int, default=-1, help="Number of partitions; by default the broker's default.")
@click.option("-r", "--replication-factor", "--replicas", type=int, default=-1, help="By default the broker's default.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic configuration; may be repeated.")
@click.option("--replica-assignment", "assignment", metavar="0:1,1:2", help="The replicas of each partition, instead of the two counts.")
@click.option("--if-not-exists", is_flag=True, help="An existing topic is not an error.")
@click.option("--dry-run", "--validate-only", "validate_only", is_flag=True, help="Only check whether it can be created.")
@json_option
@cluster_command
def create(
    cluster: Cluster,
    names: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    configs: tuple[str, ...],
    assignment: str | None,
    if_not_exists: bool,
    validate_only: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    from ottla.cli.configs import meant
    from ottla.client.errors import Refused
    from ottla.client.topic_admin import NewTopic, create_topics
    from ottla.protocol.errors import ErrorCode

    if assignment and (partitions != -1 or replication_factor != -1):
        raise click.UsageError("--replica-assignment determines the numbers of partitions and replicas; omit the counts.")
    replicas = replica_assignment(assignment) if assignment else []
    check_brokers(cluster, replicas)
    wanted = [NewTopic(name, partitions, replication_factor, key_values(configs, "--config"), replicas) for name in names]
    outcomes = create_topics(cluster, wanted, validate_only=validate_only)
    for error in outcomes.values():
        if isinstance(error, Refused) and error.code is ErrorCode.INVALID_CONFIG:
            error.add(meant("topic", key_values(configs, "--config")))
    done = dict.fromkeys(outcomes, "could be created" if validate_only else "created")
    if if_not_exists:
        for name, error in outcomes.items():
            if isinstance(error, Refused) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                outcomes[name], done[name] = None, "exists already"
    report_outcomes(outcomes.items(), done, as_json=as_json)


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="A missing topic is not an error.")
@click.option("--force", is_flag=True, help="Also internal topics, with the offsets of all groups or the state of all transactions.")
@json_option
@cluster_command
def delete(cluster: Cluster, names: tuple[str, ...], if_exists: bool, force: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    from ottla.client.errors import Refused
    from ottla.client.topic_admin import all_topics, delete_topics
    from ottla.protocol.errors import ErrorCode

    names = tuple(topic_names(cluster, names))
    internal = [] if force else [topic.name or "" for topic in all_topics(cluster) if topic.is_internal and topic.name in names]
    if internal:
        raise ClientError(
            f"{', '.join(sorted(internal))}: an internal topic holds the state of groups or transactions, which is lost; --force deletes it"
        )
    outcomes = delete_topics(cluster, names)
    done = dict.fromkeys(outcomes, "deleted")
    if if_exists:
        for name, error in outcomes.items():
            if isinstance(error, Refused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                outcomes[name], done[name] = None, "does not exist"
    report_outcomes(outcomes.items(), done, as_json=as_json)


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("-p", "--partitions", type=int, required=True, help="Total number of partitions.")
@click.option("--replica-assignment", "assignment", metavar="0:1,1:2", help="Replicas of the new partitions.")
@json_option
@cluster_command
def alter(cluster: Cluster, names: tuple[str, ...], partitions: int, assignment: str | None, as_json: bool) -> None:
    """Add partitions to topics. Configurations: `ottla configs alter topic NAME`."""
    from ottla.client.topic_admin import grow_topic

    replicas = replica_assignment(assignment) if assignment else None
    check_brokers(cluster, replicas or ())
    outcomes: list[tuple[str, ClientError | None]] = []
    for name in topic_names(cluster, names):
        try:
            grow_topic(cluster, name, partitions, replicas)
        except ClientError as error:
            outcomes.append((name, error))
        else:
            outcomes.append((name, None))
    report_outcomes(outcomes, counted(partitions, "partition"), as_json=as_json)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...")
@click.option("--time", "moments", multiple=True, metavar="TIME", help="The first offset at that time; may be repeated.")
@json_option
@cluster_command
def offsets(cluster: Cluster, names: tuple[str, ...], moments: tuple[str, ...], as_json: bool) -> None:
    """Show the start and end offsets of partitions, and the offsets for points in time.

    TIME is 2024-05-01T12:00, milliseconds since 1970, -1h for an hour ago, or `max-timestamp` for the record with the
    largest one.
    """
    from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, reachable_offsets

    named = topic_partitions(cluster, names)
    seconds = cluster.timeout_seconds
    starts, errors = reachable_offsets(cluster, dict.fromkeys(named, EARLIEST), seconds=seconds)
    ends, more = reachable_offsets(cluster, dict.fromkeys(starts, LATEST), seconds=seconds)
    errors |= more
    partitions = [name for name in named if name in ends]
    at: dict[str, dict[object, int | None]] = {}
    for moment in moments:
        wanted = MAX_TIMESTAMP if moment == "max-timestamp" else _time(moment)
        found, more = reachable_offsets(cluster, dict.fromkeys(partitions, wanted), seconds=seconds)
        errors |= more
        at[moment] = {name: found[name] if found.get(name, -1) >= 0 else None for name in partitions}
    if as_json:
        print_json(
            [
                {
                    "topic": name.topic,
                    "partition": name.partition,
                    "earliest": starts[name],
                    "latest": ends[name],
                    "at": {moment: found[name] for moment, found in at.items()},
                }
                for name in partitions
            ]
        )
    else:
        rows = [
            [*name, starts[name], ends[name], ends[name] - starts[name], *(at[moment][name] for moment in moments)] for name in partitions
        ]
        print_table(("topic", "partition", "earliest", "latest", "span", *moments), rows)
    fail(reasons(errors))


@topics.command("delete-records")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...")
@click.option(
    "-o", "--offset", "before", required=True, metavar="OFFSET|end|TIME", help="Delete the records below: an offset, @TIME, or `end`."
)
@json_option
@cluster_command
def delete_records(cluster: Cluster, names: tuple[str, ...], before: str, as_json: bool) -> None:
    """Delete records from the beginning of partitions."""
    from ottla.client.offsets import end_offsets, offsets_at
    from ottla.client.topic_admin import delete_records as delete_below

    partitions = topic_partitions(cluster, names)
    if before == "end":
        wanted = end_offsets(cluster, partitions)  # a request that is repeated spares the records that were written meanwhile
    elif is_number(before):
        wanted = dict.fromkeys(partitions, int(before))
    elif before.startswith("@"):
        wanted = offsets_at(cluster, partitions, _time(before[1:]))
    else:
        raise click.UsageError(f"--offset {before!r} is neither an offset nor @TIME nor `end`.")
    starts = delete_below(cluster, wanted)
    if as_json:
        print_json([{"topic": name.topic, "partition": name.partition, "low_watermark": start} for name, start in starts.items()])
        return
    print_table(("topic", "partition", "begins at"), [[name.topic, name.partition, start] for name, start in starts.items()])


def _time(text: str) -> int:
    try:
        return parse_time(text, int(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None


def _topic_json(topic: MetadataResponseTopic) -> dict[str, object]:
    from ottla.protocol.uuid import to_text

    partitions: Sequence[object] = [
        {
            "partition": part.partition_index,
            "leader": part.leader_id if part.leader_id >= 0 else None,
            "leader_epoch": part.leader_epoch,
            "replicas": part.replica_nodes,
            "isr": part.isr_nodes,
            "offline": part.offline_replicas,
        }
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]
    return {"topic": topic.name, "id": to_text(topic.topic_id), "internal": topic.is_internal, "partitions": partitions}
