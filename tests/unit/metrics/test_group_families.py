"""Committed offsets and lag as metrics: what is shown, and how many."""

from types import SimpleNamespace
from typing import Any

from broker.groups.committed import CommittedOffsets, record_offset_of
from broker.groups.offset_records import OffsetAndMetadata, offset_value
from broker.metrics.group_families import GROUP_FAMILIES, GroupOffset, group_offsets
from storage.disk.topic_partition import TopicPartition


def group_with(**offsets: int) -> Any:
    committed = CommittedOffsets()
    for topic, offset in offsets.items():
        committed.put(TopicPartition(topic, 0), record_offset_of(0), offset_value(OffsetAndMetadata(offset, 0, "", 0)))
    return SimpleNamespace(group_id='a "group"', offsets=SimpleNamespace(committed=committed))


def replicas_with(**high_watermarks: int) -> Any:
    def partition(topic: str, index: int) -> Any:
        if topic not in high_watermarks:
            return None
        return SimpleNamespace(is_online=high_watermarks[topic] >= 0, log=SimpleNamespace(high_watermark=high_watermarks[topic]))

    return SimpleNamespace(partition=partition)


def test_the_lag_is_known_where_the_coordinator_has_a_replica() -> None:
    found = list(group_offsets(group_with(here=7, away=3, offline=1, ahead=9), replicas_with(here=10, offline=-1, ahead=5)))
    label = '{{group="a \\"group\\"",topic="{}",partition="0"}}'
    assert found == [
        GroupOffset(label.format("here"), 7, 3),
        GroupOffset(label.format("away"), 3, None),
        GroupOffset(label.format("offline"), 1, None),
        GroupOffset(label.format("ahead"), 9, 0),
    ]


def test_families_show_what_was_collected_and_count_the_rest() -> None:
    view: Any = SimpleNamespace(group_offsets=[GroupOffset("{a}", 7, 3), GroupOffset("{b}", 3, None)], committed_offsets=12)
    values = {family.name: list(family.read(view)) for family in GROUP_FAMILIES}
    assert values == {
        "ottla_group_committed_offset": [("{a}", 7), ("{b}", 3)],
        "ottla_group_lag": [("{a}", 3)],
        "ottla_group_offsets_not_shown": [("", 10)],
    }
