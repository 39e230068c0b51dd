"""The lines about new segments are limited, and those that are left out are counted."""

import logging

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.context import MAX_LINES, LimitedLines
from tests.support.clocks import ManualClock


def test_a_second_has_a_few_lines_and_the_next_one_tells_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    lines = LimitedLines(clock, logging.getLogger("test").info, "%d more segments were rolled, without lines")
    line = "%s: rolled a new segment at offset %d"
    with caplog.at_level(logging.INFO):
        for offset in range(MAX_LINES + 7):
            lines.add(line, TopicPartition("t", 0), offset)
        assert caplog.messages == [f"t-0: rolled a new segment at offset {offset}" for offset in range(MAX_LINES)]
        caplog.clear()
        clock.move(1000)
        lines.add(line, TopicPartition("u", 1), 5)
    assert caplog.messages == ["7 more segments were rolled, without lines", "u-1: rolled a new segment at offset 5"]
