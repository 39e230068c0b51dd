"""DescribeLogDirs of very many logs."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.handlers import describe_log_dirs
from broker.request_context import RequestContext
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from storage.topic_partition import TopicPartition
from tests.support.log_manager import Disks


def test_others_have_their_turn_while_many_logs_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_log_dirs, "REPLICAS_PER_TURN", 2)
    manager = Disks().start()
    for index in range(5):
        manager.get_or_create(TopicPartition("orders", index), is_new=True)
    context: Any = SimpleNamespace(is_authorized=lambda *_: True, broker=SimpleNamespace(log_manager=manager))
    describing = describe_log_dirs.handle_describe_log_dirs(DescribeLogDirsRequest(topics=None), cast("RequestContext", context))
    turns = 0
    while True:
        try:
            describing.send(None)
        except StopIteration as done:
            answer = done.value
            break
        turns += 1
    assert turns == 2
    assert [partition.partition_index for partition in answer.results[0].topics[0].partitions] == [0, 1, 2, 3, 4]
