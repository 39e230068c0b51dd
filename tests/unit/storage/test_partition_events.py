"""One line of the log for all partitions of one event."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.upkeep.partition_events import GATHERING_MS, PartitionEvents, names_of
from tests.support.background import ManualBackground
from tests.support.clocks import ManualClock


@pytest.fixture
def background() -> ManualBackground:
    return ManualBackground(ManualClock())


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([0], "orders-0"), ([0, 1, 2], "orders-[0-2]"), ([7, 0, 2, 3, 3], "orders-[0,2-3,7]")],
)
def test_partitions_of_a_topic_are_named_by_their_spans(numbers: list[int], text: str) -> None:
    assert names_of(TopicPartition("orders", number) for number in numbers) == text


def test_a_line_names_some_topics_and_counts_the_others() -> None:
    text = names_of(TopicPartition(f"t{number:02}", 0) for number in range(12))
    assert text.startswith("t00-0, t01-0, ")
    assert text.endswith("t09-0 and those of 2 more topics")


def test_events_of_the_same_text_become_one_line(background: ManualBackground, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    events = PartitionEvents(background)
    for number in range(50):
        events.add("created in /data", TopicPartition("__consumer_offsets", number))
    events.add("deleted from /data", TopicPartition("orders", 0))
    assert not caplog.messages
    background.advance(GATHERING_MS)
    assert caplog.messages == ["__consumer_offsets-[0-49]: created in /data", "orders-0: deleted from /data"]
    events.add("created in /data", TopicPartition("orders", 1))
    background.advance(GATHERING_MS)
    assert caplog.messages[-1] == "orders-1: created in /data"


def test_the_end_loses_no_line(background: ManualBackground, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    events = PartitionEvents(background)
    events.add("created in /data", TopicPartition("orders", 1))
    events.close()
    background.advance(GATHERING_MS)
    assert caplog.messages == ["orders-1: created in /data"]
