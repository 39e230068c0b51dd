"""Asks many brokers at once, each for its part of an answer. A broker that does not answer is named, and the parts of the others are kept.

Each broker has a thread and a client of its own while it is asked, so brokers that do not answer take the timeout once, and not one after
another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from ottla.client.cluster import Cluster, may_pass
from ottla.client.errors import ClientError, ConnectionLost, NotAuthenticated, Refused, Unreachable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

_BACKOFF_SECONDS: Final = 0.1

Part = TypeVar("Part")
Answers = Mapping[TopicPartition, Part | ClientError]
Errors = dict[TopicPartition, ClientError]


def of_brokers(
    cluster: Cluster, ask: Callable[[Cluster, int], Part], broker_ids: Iterable[int] | None = None
) -> tuple[dict[int, Part], dict[int, ClientError]]:
    """The answers of brokers, by default of all live ones, and the error of each other one.

    Every broker has the timeout of the cluster. Raises ClientError if no broker can be asked for the others.
    """
    alive = cluster.broker_ids()

    def until_done(own: Cluster, broker_id: int) -> Part:
        return own.until_done(partial(ask, own, broker_id))

    return at_once(cluster, alive if broker_ids is None else broker_ids, until_done)


def at_once(
    cluster: Cluster, broker_ids: Iterable[int], ask: Callable[[Cluster, int], Part]
) -> tuple[dict[int, Part], dict[int, ClientError]]:
    """The answers of brokers that are asked at the same time, and the error of each other one. `ask` gets the client of a broker."""
    clients = {broker_id: cluster.apart(broker_id) for broker_id in dict.fromkeys(broker_ids)}
    found: dict[int, Part] = {}
    errors: dict[int, ClientError] = {}
    faults: list[Exception] = []

    def run(broker_id: int) -> None:
        try:
            found[broker_id] = ask(clients[broker_id], broker_id)
        except ClientError as error:
            errors[broker_id] = error
        except Exception as fault:  # for the thread that takes the answers
            faults.append(fault)

    ids = list(clients)
    threads = [threading.Thread(target=run, args=(broker_id,), daemon=True) for broker_id in ids[:-1]]
    for thread in threads:
        thread.start()  # an interrupted command does not wait for it
    for last in ids[-1:]:
        run(last)  # this thread has nothing else to do
    for thread in threads:
        thread.join()
    for own in clients.values():
        cluster.take_back(own)
    if faults:
        raise faults[0]
    return {each: found[each] for each in ids if each in found}, {each: errors[each] for each in ids if each in errors}


def of_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[Cluster, int, list[TopicPartition]], Answers[Part]],
    *,
    seconds: float,
    broker_id: int | None = None,
) -> tuple[dict[TopicPartition, Part], Errors]:
    """The answers of the leaders of partitions, and the error of each other partition.

    `ask` gets the client of a leader, the leader and its partitions. A leader that moves or does not answer is asked again, until these
    seconds have passed. With a `broker_id` the replicas on that broker are asked instead. Raises ClientError if no broker can be asked for
    the leaders.
    """
    wanted = list(partitions)
    found: dict[TopicPartition, Part] = {}
    lasting: Errors = {}
    until = time.monotonic() + seconds
    while True:
        left = [name for name in wanted if name not in found and name not in lasting]
        by_broker, errors = _led(cluster, left) if broker_id is None else ({broker_id: left}, {})
        for name, answer in _asked(cluster, by_broker, ask).items():
            if isinstance(answer, ClientError):
                errors[name] = answer
            else:
                found[name] = answer
        passing = {name for name, error in errors.items() if may_pass(error)}
        lasting |= {name: error for name, error in errors.items() if name not in passing}
        if not passing or time.monotonic() + _BACKOFF_SECONDS > until:
            return found, lasting | errors
        time.sleep(_BACKOFF_SECONDS)
        for name in passing:
            cluster.forget(name.topic)


def of_coordinators(
    kind: str, names: Iterable[str], coordinator_of: Callable[[str], Hashable], act: Callable[[str], Part]
) -> Iterator[tuple[str, Part | ClientError]]:
    """Each name, such as that of a group, with the result or the error of `act`. A coordinator that does not answer takes the timeout once,
    and so does a cluster without a broker that names coordinators.

    `kind` is put before the name in the error of a lost connection. Raises the errors that all names would have: Unreachable,
    NotAuthenticated.
    """
    lost: dict[Hashable, ConnectionLost] = {}
    for name in dict.fromkeys(names):
        coordinator: Hashable = None
        try:
            if None in lost:
                raise lost[None]
            coordinator = coordinator_of(name)
            if coordinator in lost:
                raise lost[coordinator]  # it would take the whole timeout again
            result = act(name)
        except (Unreachable, NotAuthenticated):
            raise
        except ConnectionLost as error:
            lost[coordinator] = error
            yield name, ConnectionLost(f"{kind} {name}: {error}")
        except ClientError as error:
            yield name, error
        else:
            yield name, result


def _asked(
    cluster: Cluster, by_broker: Mapping[int, list[TopicPartition]], ask: Callable[[Cluster, int, list[TopicPartition]], Answers[Part]]
) -> Answers[Part]:
    """The answers of brokers for their partitions, and an error for each partition without one."""
    told, errors = at_once(cluster, by_broker, lambda own, replica: ask(own, replica, by_broker[replica]))
    found: dict[TopicPartition, Part | ClientError] = {}
    for replica, names in by_broker.items():
        lacking = errors.get(replica) or ClientError(f"the answer of broker {replica} lacks the partition")
        found |= dict.fromkeys(names, lacking)
        found |= told.get(replica, {})
    return found


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
