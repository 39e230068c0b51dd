"""The offset of a time, and the end, leave out no record of that time or later, also one that is written during the command."""

from collections.abc import Mapping

import pytest

from ottla.cli.main import main
from ottla.client import offsets
from ottla.client.cluster import Cluster
from ottla.client.offsets import LATEST, FoundOffset, offsets_at
from ottla.protocol.topic_partition import TopicPartition
from tests.support.played_leaders import ALIVE, RECORDS, ClusterOfTest

OLD, BUSY, RECENT = (TopicPartition("t", number) for number in range(3))


class Writer:
    """Partitions with old records alone, of which one gets a new record after each request, and a partition with a recent record."""

    def __init__(self) -> None:
        self.ends = {OLD: 5, BUSY: 5, RECENT: 9}

    def list_offsets(self, _: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int = 0) -> dict[TopicPartition, FoundOffset]:
        none_yet = {OLD: -1, BUSY: -1 if self.ends[BUSY] <= 6 else 5, RECENT: 7}
        found = {name: FoundOffset(self.ends[name] if time == LATEST else none_yet[name], -1) for name, time in wanted.items()}
        self.ends[BUSY] += 1
        return found


def test_a_record_that_is_written_during_the_lookup_is_not_before_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "list_offsets", Writer().list_offsets)
    assert offsets_at(Cluster("127.0.0.1:1"), [OLD, BUSY, RECENT], 1_000) == {OLD: 5, BUSY: 5, RECENT: 7}


def test_records_are_deleted_up_to_the_end_that_the_partition_had_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[Mapping[TopicPartition, int]] = []

    def delete(_: Cluster, below: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        deleted.append(below)
        return below

    monkeypatch.setattr("ottla.cli.options.Connecting.cluster", lambda _: ClusterOfTest(ALIVE))
    monkeypatch.setattr("ottla.client.topic_admin.delete_records", delete)
    main(["topics", "delete-records", "t", "-o", "end"], standalone_mode=False)
    assert deleted == [{TopicPartition("t", 0): RECORDS}]
