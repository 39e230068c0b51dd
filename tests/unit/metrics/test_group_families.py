"""Committed offsets and lag as metrics: what is shown, and how many."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ottla.broker.metrics.group_families import GROUP_FAMILIES, GroupOffset, group_offsets
from ottla.broker.metrics.view import View
from ottla.config.broker import BrokerConfig
from ottla.coordination.groups.committed import CommittedOffsets, record_offset_of
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.offset_records import OffsetAndMetadata, offset_value
from ottla.protocol.topic_partition import TopicPartition
from tests.support.pauses import every_pause_waits


def group_with(**offsets: int) -> Any:
    committed = CommittedOffsets()
    for topic, offset in offsets.items():
        committed.put(TopicPartition(topic, 0), record_offset_of(0), offset_value(OffsetAndMetadata(offset, 0, "", 0)))
    return SimpleNamespace(
        group_id='a "group"', group_type="classic", state=GroupState.STABLE, offsets=SimpleNamespace(committed=committed)
    )


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
    machine = SimpleNamespace(rebalances=5)
    groups = SimpleNamespace(
        groups=SimpleNamespace(metadata=SimpleNamespace(taken=6)),
        consumer=SimpleNamespace(machine=machine),
        share=SimpleNamespace(machine=SimpleNamespace(rebalances=4)),
    )
    none = dict.fromkeys(GroupState, 0)
    view: Any = SimpleNamespace(
        group_offsets=[GroupOffset("{a}", 7, 3), GroupOffset("{b}", 3, None)],
        committed_offsets=12,
        group_states={
            "classic": {**none, GroupState.STABLE: 2},
            "consumer": {**none, GroupState.ASSIGNING: 1},
            "share": {**none, GroupState.EMPTY: 3},
        },
        services=SimpleNamespace(coordinators=SimpleNamespace(groups=groups)),
    )
    values = {family.name: list(family.read(view)) for family in GROUP_FAMILIES}
    states = ["empty", "assigning", "reconciling", "stable", "dead"]
    assert values == {
        "kafka_server_group_coordinator_metrics_group_count": [
            ('{protocol="classic"}', 2),
            ('{protocol="consumer"}', 1),
            ('{protocol="share"}', 3),
        ],
        "kafka_server_group_coordinator_metrics_consumer_group_count": [
            (f'{{state="{state}"}}', int(state == "assigning")) for state in states
        ],
        "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count": [("", 5)],
        "kafka_server_group_coordinator_metrics_share_group_count": [
            ('{state="empty"}', 3),
            ('{state="stable"}', 0),
            ('{state="dead"}', 0),
        ],
        "kafka_server_group_coordinator_metrics_share_group_rebalance_count": [("", 4)],
        "ottla_group_metadata_bytes": [("", 6)],
        "ottla_group_committed_offset": [("{a}", 7), ("{b}", 3)],
        "ottla_group_lag": [("{a}", 3)],
        "ottla_group_offsets_not_shown": [("", 10)],
    }


class NoReplicas:
    """A broker without partitions."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def partition(self, topic: str, index: int) -> None:
        """It has none."""


def a_view(group: Any, most: int) -> View:
    services: Any = SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: 0),
        config=BrokerConfig({"ottla.group.lag.max.series": str(most)}),
        data=SimpleNamespace(replica_manager=NoReplicas()),
        cluster=SimpleNamespace(controller=SimpleNamespace(context=SimpleNamespace(assignments={}))),
        coordinators=SimpleNamespace(
            groups=SimpleNamespace(groups=[group]),
            transactions=SimpleNamespace(transactions=[]),
            share_leader=SimpleNamespace(led=()),
        ),
    )
    return View(services, *(None,) * 12)  # type: ignore[arg-type]  # what counting groups does not need


def test_other_work_is_done_between_the_offsets_of_a_large_group_which_may_change_meanwhile() -> None:
    most = 100
    group = group_with(**{f"t{number}": number for number in range(3 * most)})

    async def turns_and_view() -> tuple[int, View]:
        every_pause_waits()
        view = a_view(group, most)
        preparing = asyncio.ensure_future(view.prepare())
        turns = 0
        while not preparing.done():
            await asyncio.sleep(0)
            turns += 1
            group.offsets.committed.by_topic.pop(f"t{turns}", None)
        await preparing
        return turns, view

    turns, view = asyncio.run(turns_and_view())
    assert turns >= most
    assert len(view.group_offsets) == most
