"""Entries are written to the metadata topic and read from it, whatever happens to the topic and to its leaders."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.broker.remote.metadata import fetching, reader, snapshot_files
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.replication.ports.peer import PeerUnavailable
from ottla.storage.remote.entries import SegmentState, TopicIdPartition
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from ottla.storage.remote.ports import MetadataNotReady, MetadataWriteFailed
from tests.support.filesystems import MemoryFileSystem
from tests.support.metadata_topic import LOG_DIR, PARTITIONS, PlayedMetadata, PlayedTopic, ready, run, write_elsewhere
from tests.support.peers import until
from tests.support.remote_metadata import A_PARTITION, an_entry, an_update, values_of

FINISHED, DELETING = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED
OTHER = TopicIdPartition(bytes(16), "payments", 2)


def test_what_is_written_is_read() -> None:
    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        entry = an_entry(1, 0, 100)
        await metadata.add(entry)
        assert metadata.get(A_PARTITION, entry.id.uuid) == entry
        assert metadata.find(A_PARTITION, 0, 50) is None
        await metadata.update(an_update(entry, FINISHED))
        found = metadata.find(A_PARTITION, 0, 50)
        assert found is not None
        assert found.state is FINISHED
        assert metadata.highest_offset(A_PARTITION, 0) == 100
        assert list(metadata.entries(A_PARTITION, 0)) == list(metadata.all_entries(A_PARTITION)) == [found]

    run(story, PlayedTopic().create())


def test_lookups_are_refused_until_everything_has_been_read() -> None:
    topic = PlayedTopic().create()
    topic.faults[ApiKey.FETCH].extend([ErrorCode.KAFKA_STORAGE_ERROR] * 3)

    async def story(metadata: PlayedMetadata) -> None:
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 100), FINISHED))
        metadata.follow(A_PARTITION)
        with pytest.raises(MetadataNotReady):
            metadata.find(A_PARTITION, 0, 50)
        await until(lambda: metadata.is_ready(A_PARTITION))
        assert metadata.find(A_PARTITION, 0, 50) is not None
        assert not topic.faults[ApiKey.FETCH]
        with pytest.raises(MetadataNotReady):
            metadata.all_entries(OTHER)

    run(story, topic)


@pytest.mark.parametrize("when", ["while it waits for records", "while it waits for others", "while it asks for ends"])
def test_a_reader_that_has_all_does_not_wait_when_more_is_followed(when: str) -> None:
    """The leader of the metadata holds each fetch that may wait until there are new records, and there never are any."""
    topic = PlayedTopic().create()
    waiting = 0

    async def travel() -> None:
        nonlocal waiting
        last = topic.peers.asked[-1]
        if isinstance(last.message, fetching.FetchRequest) and last.message.max_wait_ms:
            waiting += 1
            await asyncio.Event().wait()

    topic.peers.travel = travel  # type: ignore[method-assign]  # a leader that waits

    async def story(metadata: PlayedMetadata) -> None:
        is_same = when == "while it waits for records"
        index = metadata.reader.index_of(A_PARTITION)
        others = (OTHER._replace(partition=number) for number in range(100))
        other = next(each for each in others if (metadata.reader.index_of(each) == index) is is_same)
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 100, partition=other), FINISHED), partition=other)
        if when == "while it asks for ends":
            topic.faults[ApiKey.LIST_OFFSETS].append(lambda: metadata.follow(other))
        await ready(metadata)
        if when != "while it asks for ends":
            await until(lambda: waiting == 1)
            metadata.follow(other)
        await until(lambda: metadata.is_ready(other))
        assert metadata.find(other, 0, 50) is not None
        assert metadata.is_ready(A_PARTITION)
        assert len(metadata.reader.refusals) == 0

    run(story, topic)


def test_who_waits_for_metadata_learns_that_they_are_followed_no_more() -> None:
    topic = PlayedTopic()
    topic.refuses_creation = "Replication factor: 3 larger than available brokers: 1."

    async def story(metadata: PlayedMetadata) -> None:
        with pytest.raises(MetadataNotReady):
            await metadata.when_ready(A_PARTITION)
        metadata.follow(A_PARTITION)
        waiting = [asyncio.create_task(metadata.when_ready(A_PARTITION)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        metadata.unfollow(A_PARTITION)
        with pytest.raises(MetadataNotReady):
            await waiting[1]
        metadata.follow(A_PARTITION)
        topic.refuses_creation = ""
        await metadata.when_ready(A_PARTITION)
        await metadata.when_ready(A_PARTITION)
        assert not metadata.all_entries(A_PARTITION)

    run(story, topic)


def test_only_metadata_partitions_of_replicas_here_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "HIDDEN_SECONDS", 0.0)
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        fetched = {
            partition.partition
            for asked in topic.peers.asked
            if asked.api_key == ApiKey.FETCH
            for partition in asked.message.topics[0].partitions
        }
        assert fetched == {metadata.reader.index_of(A_PARTITION)}
        metadata.unfollow(A_PARTITION)
        await until(lambda: topic.peers.open == 0)
        with pytest.raises(MetadataWriteFailed):
            await metadata.add(an_entry(1, 0, 100))

    run(story, topic)


def test_an_answer_to_a_log_that_is_read_no_more_is_not_taken_for_that_of_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "HIDDEN_SECONDS", 0.0)
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        others = (OTHER._replace(partition=number) for number in range(100))
        other = next(each for each in others if metadata.reader.index_of(each) == metadata.reader.index_of(A_PARTITION))
        first, second = (an_entry(number, 10 * number, 10 * number + 9, partition=other) for number in range(2))
        write_elsewhere(topic, metadata, *values_of(first, FINISHED), partition=other)
        await ready(metadata)

        def change() -> None:
            metadata.unfollow(A_PARTITION)
            metadata.follow(other)
            write_elsewhere(topic, metadata, *values_of(second, FINISHED), partition=other)

        topic.faults[ApiKey.FETCH].append(change)
        await until(lambda: not topic.faults[ApiKey.FETCH])
        await until(lambda: metadata.is_ready(other))
        assert [entry.start_offset for entry in metadata.entries(other, 0)] == [0, 10]

    run(story, topic)


def test_a_missing_topic_is_created_with_its_configuration() -> None:
    topic = PlayedTopic()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)

    run(story, topic)
    (created,) = topic.created
    assert (created.num_partitions, created.replication_factor) == (PARTITIONS, 1)
    assert created.configs == {"retention.ms": "-1", "cleanup.policy": "delete", "remote.storage.enable": "false"}


def test_a_topic_that_cannot_be_created_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    topic = PlayedTopic()
    topic.refuses_creation = "Replication factor: 3 larger than available brokers: 1."

    async def story(metadata: PlayedMetadata) -> None:
        metadata.follow(A_PARTITION)
        await until(lambda: len(topic.created) > 3)
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
        topic.refuses_creation = ""
        await until(lambda: metadata.is_ready(A_PARTITION))

    run(story, topic)


def test_another_number_of_partitions_is_refused_until_it_is_right(caplog: pytest.LogCaptureFixture) -> None:
    topic = PlayedTopic(partitions=PARTITIONS + 1).create()

    async def story(metadata: PlayedMetadata) -> None:
        metadata.follow(A_PARTITION)
        await until(lambda: f"it has {PARTITIONS + 1} partitions" in caplog.text)
        assert not topic.peers.asked
        assert not metadata.is_ready(A_PARTITION)

    run(story, topic)


@pytest.mark.parametrize("when", ["while reading", "while writing"])
def test_leaders_move(when: str) -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        if when == "while writing":
            await ready(metadata)
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 100), FINISHED))
        topic.faults[ApiKey.FETCH if when == "while reading" else ApiKey.PRODUCE].append(lambda: topic.move(2))
        await ready(metadata)
        entry = an_entry(2, 101, 200)
        await metadata.add(entry)
        topic.move(1)
        await metadata.update(an_update(entry, FINISHED))
        assert metadata.find(A_PARTITION, 0, 150) is not None
        await until(lambda: metadata.find(A_PARTITION, 0, 50) is not None)

    run(story, topic)


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE])
@pytest.mark.parametrize(
    "fault",
    [
        PeerUnavailable("the connection was lost"),
        RuntimeError("a fault of this broker"),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
    ids=str,
)
def test_nothing_ends_the_reader_or_the_writer(key: ApiKey, fault: ErrorCode | Exception) -> None:
    topic = PlayedTopic().create()
    topic.faults[key].extend([fault] * 2)

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        entry = an_entry(1, 0, 100)
        while topic.faults[key]:
            with suppress(MetadataWriteFailed):  # after a fault of the broker itself
                await metadata.add(entry)
        await metadata.add(entry)
        assert metadata.get(A_PARTITION, entry.id.uuid) == entry

    run(story, topic)


def test_a_log_that_begins_later_is_read_from_its_start() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        index = metadata.reader.index_of(A_PARTITION)
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 100), FINISHED), *values_of(an_entry(2, 101, 200), FINISHED))
        for _ in range(2):
            topic.batches[index].popleft()
        await ready(metadata)
        assert metadata.find(A_PARTITION, 0, 150) is not None
        assert metadata.find(A_PARTITION, 0, 50) is None

    run(story, topic)


@pytest.mark.parametrize("how", ["shorter", "diverging"])
def test_entries_whose_records_were_lost_are_forgotten(how: str) -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        index = metadata.reader.index_of(A_PARTITION)
        await ready(metadata)
        for number in range(3):
            await metadata.add(an_entry(number, number, number))
        topic.cut(index, 1)
        if how == "diverging":
            write_elsewhere(topic, metadata, *[values_of(an_entry(number, number, number))[0] for number in (7, 8)])
            topic.diverging.add(index)
        expected = {0, 7, 8} if how == "diverging" else {0}

        def known() -> set[int]:
            entries = metadata.all_entries(A_PARTITION) if metadata.is_ready(A_PARTITION) else []
            return {int.from_bytes(entry.id.uuid, "big") for entry in entries}

        await until(lambda: known() == expected)

    run(story, topic)


def test_entries_stay_known_when_the_topic_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        entry = an_entry(1, 0, 100)
        await metadata.add(entry)
        topic.create(b"b" * 16)
        await until(lambda: "was deleted and created again" in caplog.text)
        assert metadata.get(A_PARTITION, entry.id.uuid) == entry
        await metadata.update(an_update(entry, FINISHED))
        found = metadata.find(A_PARTITION, 0, 50)
        assert found is not None
        assert found.state is FINISHED

    run(story, topic)


def test_a_damaged_batch_is_fetched_again() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        index = metadata.reader.index_of(A_PARTITION)
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 100), FINISHED))
        offset, good = topic.batches[index].pop()
        topic.batches[index].append((offset, good[:-1] + bytes((good[-1] ^ 1,))))
        metadata.follow(A_PARTITION)
        await until(lambda: len(metadata.reader.refusals) == 1)
        assert not metadata.is_ready(A_PARTITION)
        topic.batches[index][-1] = offset, good
        await until(lambda: metadata.is_ready(A_PARTITION))
        assert len(metadata.reader.refusals) == 0

    run(story, topic)


@pytest.mark.parametrize("snapshot", ["good", "damaged", "missing"])
def test_after_a_restart_only_the_tail_is_read(snapshot: str) -> None:
    topic, filesystem = PlayedTopic().create(), MemoryFileSystem()

    async def before(metadata: PlayedMetadata) -> None:
        await ready(metadata, A_PARTITION, OTHER)
        for number in range(5):
            entry = an_entry(number, 10 * number, 10 * number + 9)
            await metadata.add(entry)
            await metadata.update(an_update(entry, FINISHED))

    async def after(metadata: PlayedMetadata) -> None:
        index = metadata.reader.index_of(A_PARTITION)
        path = metadata.snapshots.path(index)
        if snapshot == "missing":
            filesystem.unlink(path)
        elif snapshot == "damaged":
            filesystem.open(path).pwrite(b"X", 70)
        write_elsewhere(topic, metadata, *values_of(an_entry(5, 50, 59), FINISHED))
        topic.peers.asked.clear()
        await ready(metadata)
        first = next(asked.message.topics[0].partitions[0] for asked in topic.peers.asked if asked.api_key == ApiKey.FETCH)
        assert (first.partition, first.fetch_offset) == (index, 10 if snapshot == "good" else 0)
        assert [entry.start_offset for entry in metadata.entries(A_PARTITION, 0)] == [0, 10, 20, 30, 40, 50]

    run(before, topic, filesystem)
    assert [name for name in filesystem.list_directory(LOG_DIR) if name.endswith(".snapshot")]
    run(after, topic, filesystem)


def test_a_snapshot_of_several_pieces_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, filesystem = PlayedTopic().create(), MemoryFileSystem()
    monkeypatch.setattr(snapshot_files, "_PIECE_BYTES", 64)

    async def before(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        for number in range(5):
            await metadata.add(an_entry(number, 10 * number, 10 * number + 9))

    async def after(metadata: PlayedMetadata) -> None:
        topic.peers.asked.clear()
        await ready(metadata)
        first = next(asked.message.topics[0].partitions[0] for asked in topic.peers.asked if asked.api_key == ApiKey.FETCH)
        assert first.fetch_offset == 5
        assert sorted(entry.start_offset for entry in metadata.all_entries(A_PARTITION)) == [0, 10, 20, 30, 40]

    run(before, topic, filesystem)
    run(after, topic, filesystem)


def test_old_records_are_taken_in_while_the_collector_pauses_and_new_ones_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LITTLE_BYTES", 0)
    topic = PlayedTopic().create()
    offsets: list[tuple[int, int]] = []
    known: list[PlayedMetadata] = []

    def position() -> int:
        log = known[0].reader.log_of(A_PARTITION)
        assert log is not None
        return log.position

    @contextmanager
    def while_loading() -> Iterator[None]:
        began = position()
        yield
        offsets.append((began, position()))

    async def story(metadata: PlayedMetadata) -> None:
        known.append(metadata)
        write_elsewhere(topic, metadata, *values_of(an_entry(1, 0, 9), FINISHED))
        await ready(metadata)
        assert offsets == [(0, 0), (0, 2)]  # the snapshot that is missing, and the records
        await metadata.add(an_entry(2, 10, 19))
        assert position() == 3
        assert len(offsets) == 2

    run(story, topic, while_loading=while_loading)


def test_each_codec_is_compiled_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 0
    compiled: list[int] = []
    for codec in (fetching.ListOffsetsRequest, fetching.ListOffsetsResponse, fetching.FetchRequest, fetching.FetchResponse):
        for kind in ("encoder", "decoder"):
            monkeypatch.setattr(codec, kind, lambda version: compiled.append(turn))

    async def scenario() -> None:
        nonlocal turn
        preparing = asyncio.create_task(fetching.prepare())
        while not preparing.done():
            turn += 1
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(compiled) == len(set(compiled)) == 4


def test_a_broker_whose_replicas_are_stopped_before_it_stops_has_snapshots() -> None:
    topic, filesystem = PlayedTopic().create(), MemoryFileSystem()

    async def before(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        await metadata.add(an_entry(1, 0, 100))
        metadata.unfollow(A_PARTITION)
        assert not metadata.is_ready(A_PARTITION)

    async def after(metadata: PlayedMetadata) -> None:
        topic.peers.asked.clear()
        await ready(metadata)
        assert len(metadata.all_entries(A_PARTITION)) == 1
        first = next(asked.message.topics[0].partitions[0] for asked in topic.peers.asked if asked.api_key == ApiKey.FETCH)
        assert first.fetch_offset == 1

    run(before, topic, filesystem)
    run(after, topic, filesystem)


def test_a_snapshot_of_a_deleted_topic_is_not_used() -> None:
    topic, filesystem = PlayedTopic().create(), MemoryFileSystem()

    async def before(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        await metadata.add(an_entry(1, 0, 100))

    async def after(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        assert not metadata.all_entries(A_PARTITION)

    run(before, topic, filesystem)
    topic.create(b"b" * 16)
    run(after, topic, filesystem)


def test_the_requests_go_to_the_listener_of_the_configuration_as_a_consumer_without_a_group() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        await metadata.add(an_entry(1, 0, 100))

    run(story, topic)
    kinds = {asked.api_key for asked in topic.peers.asked}
    assert kinds == {ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE}
    assert {asked.message.replica_id for asked in topic.peers.asked if asked.api_key == ApiKey.FETCH} == {-1}
    assert {topic.name for asked in topic.peers.asked if asked.api_key == ApiKey.PRODUCE for topic in asked.message.topic_data} == {
        METADATA_TOPIC
    }
