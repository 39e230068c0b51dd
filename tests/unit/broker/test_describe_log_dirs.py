"""DescribeLogDirs of very many logs, and of logs without a partition."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import cast

from ottla.broker.handlers.topics import describe_log_dirs
from ottla.broker.request.context import RequestContext
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.manager.log_manager import LogManager
from tests.support.log_manager import Disks
from tests.support.pauses import steps_of
from tests.support.services import services_with


def a_context(manager: LogManager, hosted: Collection[tuple[str, int]]) -> RequestContext:
    """Of a broker that hosts these partitions."""
    replicas = SimpleNamespace(partition=lambda topic, index: object() if (topic, index) in hosted else None)
    broker = services_with(log_manager=manager, replica_manager=replicas)
    return cast("RequestContext", SimpleNamespace(is_authorized=lambda *_: True, broker=broker))


def describe(context: RequestContext) -> tuple[DescribeLogDirsResponse, int]:
    """The answer, and how often others had their turn before it."""
    turns, answer = steps_of(describe_log_dirs.handle_describe_log_dirs(DescribeLogDirsRequest(topics=None), context))
    return answer, turns


def test_others_have_their_turn_while_many_logs_are_described() -> None:
    manager = Disks().start()
    for index in range(5):
        manager.get_or_create(TopicPartition("orders", index), is_new=True)
    answer, turns = describe(a_context(manager, ()))
    assert turns == 5
    assert [partition.partition_index for partition in answer.results[0].topics[0].partitions] == [0, 1, 2, 3, 4]


def test_the_lag_of_a_log_whose_partition_is_not_hosted_is_unknown() -> None:
    manager = Disks().start()
    for index in range(2):
        manager.get_or_create(TopicPartition("orders", index), is_new=True)
    answer, _ = describe(a_context(manager, [("orders", 1)]))
    assert [partition.offset_lag for partition in answer.results[0].topics[0].partitions] == [-1, 0]
