"""A record is written to the metadata topic once, in time, and only while its writer waits for it."""

import asyncio
from contextlib import suppress

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.storage.remote.entries import SegmentState
from ottla.storage.remote.ports import MetadataWriteFailed
from tests.support.metadata_topic import PlayedMetadata, PlayedTopic, ready, run
from tests.support.peers import until
from tests.support.remote_metadata import A_PARTITION, an_entry

FINISHED, DELETING = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED


def test_a_record_whose_answer_is_lost_is_written_once() -> None:
    topic = PlayedTopic().create()
    topic.lost_answers = 2

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        await metadata.add(an_entry(1, 0, 100))
        await metadata.add(an_entry(2, 101, 200))
        assert topic.ends[metadata.reader.index_of(A_PARTITION)] == 2
        assert metadata.ids == 1

    run(story, topic)


def test_a_producer_that_the_leader_does_not_know_gets_another_id() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        await metadata.add(an_entry(1, 0, 100))
        topic.faults[ApiKey.PRODUCE].append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        await metadata.add(an_entry(2, 101, 200))
        assert metadata.ids == 2

    run(story, topic)


@pytest.mark.parametrize("fault", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_a_record_that_is_not_written_fails_in_time_and_later_ones_are_written(fault: ErrorCode) -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        topic.faults[ApiKey.PRODUCE].extend([fault] * 1000)
        with pytest.raises(MetadataWriteFailed, match=fault.name):
            await metadata.add(an_entry(1, 0, 100))
        assert metadata.failed_writes == 1
        topic.faults[ApiKey.PRODUCE].clear()
        while not metadata.all_entries(A_PARTITION):
            with suppress(MetadataWriteFailed):  # the time is short for a busy machine
                await metadata.add(an_entry(2, 101, 200))

    run(story, topic, consume_wait_ms=500)


def test_a_record_that_is_written_but_not_read_fails_in_time() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        topic.faults[ApiKey.FETCH].extend([ErrorCode.KAFKA_STORAGE_ERROR] * 1000)
        with pytest.raises(MetadataWriteFailed, match="did not read its record"):
            await metadata.add(an_entry(1, 0, 100))
        topic.faults[ApiKey.FETCH].clear()
        await until(lambda: len(metadata.all_entries(A_PARTITION)) == 1)

    run(story, topic, consume_wait_ms=500)


def test_a_record_whose_writer_has_left_is_not_sent_once_the_leader_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A former leader publishes nothing, also if it was connecting when it learned of the next one."""
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        connected = asyncio.Event()
        monkeypatch.setattr(topic.peers, "travel", connected.wait)
        leaving = asyncio.ensure_future(metadata.add(an_entry(1, 0, 100)))
        await until(lambda: topic.peers.asked[-1].api_key is ApiKey.PRODUCE)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        connected.set()
        await metadata.add(an_entry(2, 101, 200))
        assert [int.from_bytes(each.id.uuid, "big") for each in metadata.all_entries(A_PARTITION)] == [2]
        assert sum(topic.ends) == 1
        assert "cannot be written" not in caplog.text

    run(story, topic)


def test_writes_that_wait_fail_when_the_broker_stops() -> None:
    topic = PlayedTopic().create()

    async def story(metadata: PlayedMetadata) -> None:
        await ready(metadata)
        topic.faults[ApiKey.PRODUCE].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
        writes = [asyncio.ensure_future(metadata.add(an_entry(number, 0, 100))) for number in range(3)]
        await until(lambda: len(topic.faults[ApiKey.PRODUCE]) < 1000)
        await metadata.writer.close()
        for write in writes:
            with pytest.raises(MetadataWriteFailed):
                await write

    run(story, topic)
