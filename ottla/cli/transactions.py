"""Implements `ottla transactions`: lists and describes transactions, finds those that hang, and aborts them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.doctor.kinds import reasons
from ottla.cli.options import cluster_command, command_group, fail, json_option, report_outcomes, topic_partitions
from ottla.cli.output import print_json, print_table
from ottla.cli.times import parse_span
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.hanging import OpenTransaction
    from ottla.client.transaction_admin import DescribedTransaction, Producer
    from ottla.protocol.topic_partition import TopicPartition

_KIND = "transactional id"
_STATES = click.Choice(
    ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"],
    case_sensitive=False,
)
_PRODUCER_COLUMNS = ("producer id", "epoch", "coordinator epoch", "sequence", "last timestamp", "start offset")


class Span(click.ParamType[int]):
    """A duration as `parse_span` reads it, in milliseconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click.ParamType."""
        try:
            span = parse_span(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if span < 0:
            self.fail(f"{value!r} is negative.", param, ctx)
        return span


broker_option = click.option("--broker", "broker_id", type=int, metavar="ID", help="Ask the replicas on this broker, instead of leaders.")


@command_group
def transactions() -> None:
    """List and describe transactions, find those that hang, and abort them."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, type=_STATES, help="Only in this state; may be repeated.")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only of this producer; may be repeated.")
@click.option("--longer-than", "longer_than_ms", type=Span(), metavar="SPAN", help="Only transactions open for longer: 30s, 1h, PT1H.")
@json_option
@cluster_command
def list_transactions(
    cluster: Cluster, states: tuple[str, ...], producer_ids: tuple[int, ...], longer_than_ms: int | None, as_json: bool
) -> None:
    """List transactional ids with their coordinators and states."""
    from ottla.client.transaction_admin import NO_FILTER, reachable_transactions

    longer_than = NO_FILTER if longer_than_ms is None else longer_than_ms
    found, errors = reachable_transactions(cluster, states=states, producer_ids=producer_ids, longer_than_ms=longer_than)
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        print_table(("transactional id", "coordinator", "producer id", "state"), found, empty="no transactions")
    fail(map(str, errors.values()))


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@json_option
@cluster_command
def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Describe transactional ids: producer, state, open transaction."""
    from ottla.client.reachable import of_coordinators
    from ottla.client.transaction_admin import describe_transaction

    found: list[DescribedTransaction] = []
    errors: list[str] = []
    for _, outcome in of_coordinators(_KIND, names, cluster.transaction_coordinator, partial(describe_transaction, cluster)):
        if isinstance(outcome, ClientError):
            errors.append(str(outcome))
        else:
            found.append(outcome)
    now_ms = _now_ms()
    if as_json:
        print_json([_described_json(each, now_ms) for each in found])
    elif found:
        print_table(
            ("transactional id", "coordinator", "producer id", "epoch", "state", "timeout ms", "started ms", "open for ms", "partitions"),
            [[*each[:7], _open_for(each, now_ms), each.partitions] for each in found],
        )
    fail(errors)


def _described_json(transaction: DescribedTransaction, now_ms: int) -> dict[str, object]:
    partitions = [name._asdict() for name in transaction.partitions]
    return {**transaction._asdict(), "open_for_ms": _open_for(transaction, now_ms), "partitions": partitions}


def _open_for(transaction: DescribedTransaction, now_ms: int) -> int | None:
    from ottla.client.transaction_admin import OPEN_STATES

    if transaction.start_time_ms is None or transaction.state not in OPEN_STATES:
        return None
    return now_ms - transaction.start_time_ms


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...")
@click.option("--open", "only_open", is_flag=True, help="Only producers with an open transaction.")
@broker_option
@json_option
@cluster_command
def producers(cluster: Cluster, names: tuple[str, ...], only_open: bool, broker_id: int | None, as_json: bool) -> None:
    """Show the producers that partitions remember. The first start offset of an open transaction is the last stable
    offset."""
    from ottla.client.transaction_admin import reachable_producers

    partitions = _named_partitions(cluster, names, broker_id)
    found, errors = reachable_producers(cluster, partitions, broker_id)
    rows = [
        (name, producer)
        for name in partitions
        for producer in sorted(found.get(name, ()), key=_by_start_offset)
        if producer.start_offset is not None or not only_open
    ]
    if as_json:
        print_json([{**name._asdict(), **producer._asdict()} for name, producer in rows])
    else:
        print_table(("topic", "partition", *_PRODUCER_COLUMNS), [[*name, *producer] for name, producer in rows])
    fail(reasons(errors))


def _by_start_offset(producer: Producer) -> tuple[bool, int, int]:
    """Open transactions first, in the order in which they began."""
    return producer.start_offset is None, producer.start_offset or 0, producer.producer_id


@transactions.command("find-hanging")
@click.argument("names", nargs=-1, metavar="TOPIC[:PARTITIONS]...")
@broker_option
@click.option(
    "--max-transaction-timeout",
    "max_timeout_ms",
    type=Span(),
    default="15m",
    show_default=True,
    metavar="SPAN",
    help="Only transactions without a record for longer: the largest transaction timeout.",
)
@json_option
@cluster_command
def find_hanging(cluster: Cluster, names: tuple[str, ...], broker_id: int | None, max_timeout_ms: int, as_json: bool) -> None:
    """Find transactions that are open on a partition although no coordinator will end them there.

    The exit status is 1 if a leader or a coordinator did not answer; the transactions of the others are shown.
    """
    from ottla.client.hanging import find_hanging as found_hanging

    if names:
        partitions = _named_partitions(cluster, names, broker_id)
    elif broker_id is not None:
        partitions = _partitions_of_broker(cluster, broker_id)
    else:
        raise click.UsageError("Name topics or give --broker.")
    now_ms = _now_ms()
    found = found_hanging(cluster, partitions, max_timeout_ms=max_timeout_ms, now_ms=now_ms, broker_id=broker_id)
    if as_json:
        print_json([_hanging_json(each, now_ms) for each in found.hanging])
    else:
        rows = [[*each.partition, *each.producer, _idle_minutes(each, now_ms), each.transactional_id] for each in found.hanging]
        print_table(("topic", "partition", *_PRODUCER_COLUMNS, "minutes", "transactional id"), rows)
    undecided = [
        f"{each.partition}: whether the transaction of producer {each.producer.producer_id} from offset {each.producer.start_offset} on "
        "hangs is unknown, because a coordinator did not answer"
        for each in found.undecided
    ]
    fail([*reasons(found.missing), *map(str, found.coordinators), *undecided])


def _hanging_json(found: OpenTransaction, now_ms: int) -> dict[str, object]:
    return {
        **found.partition._asdict(),
        **found.producer._asdict(),
        "minutes": _idle_minutes(found, now_ms),
        "transactional_id": found.transactional_id,
    }


def _idle_minutes(found: OpenTransaction, now_ms: int) -> int:
    return (now_ms - found.producer.last_timestamp) // 60_000


@transactions.command()
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option("--start-offset", type=click.IntRange(0), help="Where the transaction begins, as `producers` and `find-hanging` show it.")
@click.option("--producer-id", type=int, help="Its producer, with both epochs, for brokers older than 3.0.")
@click.option("--producer-epoch", type=int, help="The epoch of the producer.")
@click.option("--coordinator-epoch", type=int, help="The epoch of its coordinator, -1 if none is known.")
@json_option
@cluster_command
def abort(
    cluster: Cluster,
    name: str,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    as_json: bool,
) -> None:
    """Abort a hanging transaction on one partition: its leader writes an abort marker.

    The coordinator is not involved. Use `forget` for a transaction that it still knows.
    """
    from ottla.client.transaction_admin import Marker, abort_transaction, marker_of_transaction

    given = [each for each in (producer_id, producer_epoch, coordinator_epoch) if each is not None]
    if len(given) != (0 if start_offset is not None else len(Marker._fields)):
        raise click.UsageError("Give either --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch.")
    partitions = topic_partitions(cluster, [name])
    if len(partitions) != 1:
        raise click.UsageError(f"{name!r} is not one partition; write orders:0.")
    (partition,) = partitions
    marker = Marker(*given) if start_offset is None else marker_of_transaction(cluster, partition, start_offset)
    abort_transaction(cluster, partition, marker)
    report_outcomes([(str(partition), None)], f"the transaction of producer {marker.producer_id} is aborted", as_json=as_json)


@transactions.command()
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@json_option
@cluster_command
def forget(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Have coordinators abort the open transactions of transactional ids, and fence their producers."""
    from ottla.client.reachable import of_coordinators
    from ottla.client.transaction_admin import forget_transaction

    outcomes = of_coordinators(_KIND, names, cluster.transaction_coordinator, partial(forget_transaction, cluster))
    report_outcomes(outcomes, "its transaction is aborted if it was open, and its producers are fenced", as_json=as_json)


def _named_partitions(cluster: Cluster, names: tuple[str, ...], broker_id: int | None) -> list[TopicPartition]:
    """The partitions that were named; with a broker, those it has replicas of. Raises ClientError when it has none."""
    named = topic_partitions(cluster, names)
    if broker_id is None:
        return named
    held = _held(cluster, named, broker_id)
    if not held:
        raise ClientError(f"broker {broker_id} has no replica of {', '.join(names)}")
    return held


def _partitions_of_broker(cluster: Cluster, broker_id: int) -> list[TopicPartition]:
    from ottla.client.topic_admin import all_topics
    from ottla.protocol.topic_partition import TopicPartition

    listed = [TopicPartition(topic.name or "", part.partition_index) for topic in all_topics(cluster) for part in topic.partitions]
    return _held(cluster, listed, broker_id)


def _held(cluster: Cluster, partitions: list[TopicPartition], broker_id: int) -> list[TopicPartition]:
    """The partitions with a replica on the broker. Raises ClientError when there is no such broker."""
    from ottla.client.reassignments import replicas_of

    cluster.broker_address(broker_id)
    return [name for name, replicas in replicas_of(cluster, partitions).items() if broker_id in replicas]


def _now_ms() -> int:
    return int(time.time() * 1000)
