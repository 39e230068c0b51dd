"""Asks many brokers, each for its part of an answer. A broker that does not answer is named, and the parts of the others are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from broker.client.cluster import Cluster, TopicPartition, may_pass
from broker.client.errors import ClientError, Refused
from protocol.errors import ErrorCode

_BACKOFF_SECONDS: Final = 0.1

Part = TypeVar("Part")
Errors = dict[TopicPartition, ClientError]


def of_brokers(
    cluster: Cluster, ask: Callable[[int], Part], broker_ids: Iterable[int] | None = None
) -> tuple[dict[int, Part], dict[int, ClientError]]:
    """The answers of brokers, by default of all live ones, and the error of each other one.

    Every broker has the timeout of the cluster. Raises ClientError if no broker can be asked for the others.
    """
    found: dict[int, Part] = {}
    errors: dict[int, ClientError] = {}
    for broker_id in cluster.broker_ids() if broker_ids is None else broker_ids:
        try:
            found[broker_id] = cluster.until_done(partial(ask, broker_id))
        except ClientError as error:
            errors[broker_id] = error
    return found, errors


def of_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Mapping[TopicPartition, Part | ClientError]],
    *,
    seconds: float,
    broker_id: int | None = None,
) -> tuple[dict[TopicPartition, Part], Errors]:
    """The answers of the leaders of partitions, and the error of each other partition.

    `ask` gets a leader and its partitions. A leader that moves or does not answer is asked again, as long as these seconds have not passed.
    With a `broker_id` the replicas on that broker are asked instead. Raises ClientError if no broker can be asked for the leaders.
    """
    wanted = list(partitions)
    found: dict[TopicPartition, Part] = {}
    lasting: Errors = {}
    until = time.monotonic() + seconds
    while True:
        left = [name for name in wanted if name not in found and name not in lasting]
        by_broker, errors = _led(cluster, left) if broker_id is None else ({broker_id: left}, {})
        for replica, names in by_broker.items():
            errors |= dict.fromkeys(names, ClientError(f"the answer of broker {replica} lacks the partition"))
            try:
                answers = ask(replica, names)
            except ClientError as error:
                answers = dict.fromkeys(names, error)
            for name, answer in answers.items():
                if isinstance(answer, ClientError):
                    errors[name] = answer
                else:
                    found[name] = answer
                    errors.pop(name, None)
        passing = {name for name, error in errors.items() if may_pass(error)}
        lasting |= {name: error for name, error in errors.items() if name not in passing}
        if not passing or time.monotonic() + _BACKOFF_SECONDS > until:
            return found, lasting | errors
        time.sleep(_BACKOFF_SECONDS)
        for name in passing:
            cluster.forget(name.topic)


def _led(cluster: Cluster, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], Errors]:
    """The partitions by the id of their leader, and the errors of those without one. Raises ClientError for one that does not exist."""
    topics: dict[str, list[TopicPartition]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name)
    found: dict[int, list[TopicPartition]] = {}
    errors: Errors = {}
    for names in topics.values():
        try:
            by_leader, without = cluster.led(names)
        except Refused as error:  # the topic was deleted
            errors |= dict.fromkeys(names, error)
            continue
        errors |= {name: Refused(str(name), ErrorCode.LEADER_NOT_AVAILABLE) for name in without}
        for leader, some in by_leader.items():
            found.setdefault(leader, []).extend(some)
    return found, errors
