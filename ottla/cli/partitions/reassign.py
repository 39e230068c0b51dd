"""Implements `ottla topics reassign`: plans, starts, tracks and cancels reassignments of replicas."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import IO, TYPE_CHECKING

import click

from ottla.cli.options import check_brokers, cluster_command, command_group, json_option, numbers, report_outcomes, topic_partitions
from ottla.cli.output import print_json, print_table, progress_bar, say
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.reassignment_plan import Plan
    from ottla.protocol.topic_partition import TopicPartition

_POLL_SECONDS = 0.2

plan_argument = click.argument("plan", type=click.File(encoding="utf-8"), metavar="PLAN.json")
preserve_option = click.option("--preserve-throttles", is_flag=True, help="Keep the replication throttles.")


@command_group
def reassign() -> None:
    """Move partitions to other brokers.

    A plan is a JSON file in the format of kafka-reassign-partitions.sh; `-` is standard input.
    """


@reassign.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...")
@click.option("--to", "brokers", metavar="0,1,4-6", help="The brokers that may host replicas; by default all live brokers.")
@click.option("-r", "--replication-factor", "factor", type=click.IntRange(min=1), help="Number of replicas; by default unchanged.")
@click.option("--ignore-racks", is_flag=True, help="Do not spread replicas over racks.")
@click.option("-o", "--output", type=click.File("w", encoding="utf-8"), metavar="PLAN.json", help="Write the plan there.")
@json_option
@cluster_command
def generate(
    cluster: Cluster,
    names: tuple[str, ...],
    brokers: str | None,
    factor: int | None,
    ignore_racks: bool,
    output: IO[str] | None,
    as_json: bool,
) -> None:
    """Plan partitions of TOPICs: spread over all racks, evenly over brokers, with the fewest moves.

    Nothing is moved. With --json the plan is printed, for `execute`.
    """
    import json

    from ottla.client.reassignment_plan import balanced, to_json
    from ottla.client.reassignments import replicas_of

    current = replicas_of(cluster, topic_partitions(cluster, names))
    racks = {broker.node_id: None if ignore_racks else broker.rack for broker in cluster.refresh([]).brokers}
    if brokers is not None:
        wanted = numbers(brokers)
        unknown = [str(broker) for broker in wanted if broker not in racks]
        if unknown:
            raise ClientError(f"there is no broker {', '.join(unknown)}; alive are {', '.join(map(str, sorted(racks)))}")
        racks = {broker: racks[broker] for broker in wanted}
    plan = balanced(current, racks, factor)
    if output is not None:
        json.dump(to_json(plan), output)
        output.write("\n")
    if as_json:
        print_json(to_json(plan))
    else:
        print_table(
            ("topic", "partition", "now", "planned", "copies"),
            [[name.topic, name.partition, current[name], new, len(set(new) - set(current[name]))] for name, new in plan.items()],
        )


@reassign.command()
@plan_argument
@click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Replication throttle of the reassignment, bytes per second and broker."
)
@click.option("--additional", is_flag=True, help="Start even if other reassignments are in progress.")
@click.option(
    "--save", type=click.File("w", encoding="utf-8"), metavar="PLAN.json", help="Save the current assignment, as a plan for the way back."
)
@click.option("--wait", is_flag=True, help="Return when all partitions are moved, and remove the throttles then.")
@json_option
@cluster_command
def execute(
    cluster: Cluster, plan: IO[str], throttle: int | None, additional: bool, save: IO[str] | None, wait: bool, as_json: bool
) -> None:
    """Move partitions as planned in PLAN.json."""
    import json

    from ottla.client import reassignments
    from ottla.client.reassignment_plan import to_json

    wanted = _read(plan)
    current = reassignments.replicas_of(cluster, wanted)
    check_brokers(cluster, wanted.values())
    under_way = reassignments.moves(cluster)
    if under_way and not additional:
        raise ClientError(f"{', '.join(map(str, under_way))} are being moved; wait, `cancel` it, or give --additional")
    if save is not None:
        json.dump(to_json({name: move.target if (move := under_way.get(name)) else current[name] for name in wanted}), save)
        save.write("\n")
        save.flush()  # before a replica moves: the way back is known also if this command is killed, or the disk is full
    with _throttles_told(plan if throttle is not None else None):
        if throttle is not None:
            reassignments.throttle(cluster, current, wanted, throttle)
            say(f"this replication is limited to {throttle} bytes per second on each broker; verify, or --wait, removes the limit")
        outcomes = reassignments.reassign(cluster, wanted)
        is_moved = wait and not any(outcomes.values())
        if is_moved:
            _wait(cluster, list(wanted))
        elif throttle is not None and any(outcomes.values()):
            say(_left(plan))
    left = _clear(cluster, wanted) if is_moved and throttle is not None else None
    report_outcomes(
        [(str(name), outcome) for name, outcome in outcomes.items()], "moved" if is_moved else "is being moved", as_json=as_json
    )
    if left is not None:
        raise left


@contextmanager
def _throttles_told(plan: IO[str] | None) -> Iterator[None]:
    """Tells how to remove the throttles of a plan if this block fails or is interrupted; they stay, as with Kafka's tool. None has none."""
    try:
        yield
    except (ClientError, KeyboardInterrupt):
        if plan is not None:
            say(_left(plan))
        raise


def _left(plan: IO[str]) -> str:
    file = "PLAN.json" if plan.name in ("-", "<stdin>") else quote(plan.name)
    return f"replication throttles may be left; `ottla topics reassign verify {file}` removes them once no partition is being moved"


def _clear(cluster: Cluster, partitions: Iterable[TopicPartition]) -> ClientError | None:
    """Remove the throttles; the error if some are left."""
    from ottla.client import reassignments

    try:
        reassignments.clear_throttles(cluster, [name.topic for name in partitions])
    except ClientError as error:
        remedy = "ottla configs alter broker ID --delete leader.replication.throttled.rate --delete follower.replication.throttled.rate"
        return ClientError(f"{error}\nthese replication throttles are left; repeat `verify`, or use {remedy}")
    return None


def _read(plan: IO[str]) -> Plan:
    """The plan in a file. Raises ClientError."""
    from ottla.client.reassignment_plan import from_json

    try:
        return from_json(plan.read())
    except UnicodeError:
        raise ClientError(f"{plan.name} is not a plan in the format of `generate`: it is not UTF-8") from None


def _wait(cluster: Cluster, partitions: list[TopicPartition]) -> None:
    from ottla.client.reassignments import moves

    with progress_bar("moving", len(partitions), unit="partitions") as advance:
        while left := len(moves(cluster, partitions)):
            advance(len(partitions) - left, len(partitions))
            time.sleep(_POLL_SECONDS)


@reassign.command()
@plan_argument
@preserve_option
@json_option
@cluster_command
def verify(cluster: Cluster, plan: IO[str], preserve_throttles: bool, as_json: bool) -> None:
    """Show the progress of PLAN.json; status 1 unless all is done. Removes the throttles when no partition is being
    moved."""
    from ottla.client import reassignments

    wanted = _read(plan)
    current = reassignments.replicas_of(cluster, wanted)
    under_way = reassignments.moves(cluster)
    states = {
        name: "moving" if name in under_way else "done" if current[name] == replicas else "not as planned"
        for name, replicas in wanted.items()
    }
    left = None if under_way or preserve_throttles else _clear(cluster, wanted)
    if as_json:
        print_json(
            [
                {"topic": name.topic, "partition": name.partition, "replicas": current[name], "planned": wanted[name], "state": state}
                for name, state in states.items()
            ]
        )
    else:
        rows = [[name.topic, name.partition, current[name], wanted[name], state] for name, state in states.items()]
        print_table(("topic", "partition", "now", "planned", "state"), rows)
    sys.stdout.flush()
    if left is not None:
        raise left
    if set(states.values()) - {"done"}:
        raise SystemExit(1)


@reassign.command()
@click.argument("plan", type=click.File(encoding="utf-8"), metavar="PLAN.json", required=False)
@click.option("--all", "everything", is_flag=True, help="All moves in progress.")
@preserve_option
@json_option
@cluster_command
def cancel(cluster: Cluster, plan: IO[str] | None, everything: bool, preserve_throttles: bool, as_json: bool) -> None:
    """Cancel the moves of PLAN.json that are in progress; partitions stay on their brokers."""
    from ottla.client import reassignments

    if (plan is None) is not everything:
        raise click.UsageError("Give a PLAN.json or --all.")
    under_way = list(reassignments.moves(cluster))
    wanted = under_way if plan is None else [name for name in _read(plan) if name in under_way]
    if not wanted:
        say("none of its partitions is being moved")
        report_outcomes((), "", as_json=as_json)
        return
    outcomes = reassignments.reassign(cluster, dict.fromkeys(wanted))
    is_over = set(wanted) == set(under_way) and not any(outcomes.values())
    left = _clear(cluster, wanted) if is_over and not preserve_throttles else None
    report_outcomes([(str(name), outcome) for name, outcome in outcomes.items()], "stays where it was", as_json=as_json)
    if left is not None:
        raise left


@reassign.command("list")
@json_option
@cluster_command
def list_moves(cluster: Cluster, as_json: bool) -> None:
    """Show the moves in progress."""
    from ottla.client.reassignments import moves

    found = sorted(moves(cluster).items())
    if as_json:
        print_json(
            [
                {
                    "topic": name.topic,
                    "partition": name.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for name, move in found
            ]
        )
        return
    print_table(
        ("topic", "partition", "replicas", "adding", "removing"),
        [[name.topic, name.partition, move.replicas, move.adding, move.removing] for name, move in found],
        empty="no moves",
    )
