"""Answers that were shown: an error anywhere in them, or one that does not answer the request, fails the load."""

import io
import struct

import pytest

from benchmarks.loadgen.answers import WrongAnswerError, check, check_shown
from benchmarks.loadgen.prepared import Prepared
from benchmarks.loads import frames
from benchmarks.loads.batches import batch_of_size
from benchmarks.loads.frames import Asked
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record

BATCH = batch_of_size(300, 2, 1_700_000_000_000)
PRODUCE = frames.produce_partitions("orders", dict.fromkeys(range(3), BATCH), version=9)
FETCH = frames.fetch_partitions("orders", bytes(16), [Asked(0, 0, 500), Asked(1, 41, 500)], version=11)


def produce_answer(*codes: int, base_offset: int = 5) -> bytes:
    partitions = [PartitionProduceResponse(index=at, error_code=code, base_offset=base_offset) for at, code in enumerate(codes)]
    return frames.answer_frame(
        ApiKey.PRODUCE, ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=partitions)]), 9
    )


def fetch_answer(first_offset: int, code: int = 0, of_request: int = 0) -> bytes:
    batch = memoryview(build_batch([Record(first_offset + at, 1, None, b"v") for at in range(5)]))
    partitions = [
        PartitionData(partition_index=0, error_code=0, high_watermark=0, records=None),
        PartitionData(partition_index=1, error_code=code, high_watermark=50, records=batch),
    ]
    topics = [FetchableTopicResponse(topic="orders", partitions=partitions)]
    return frames.answer_frame(ApiKey.FETCH, FetchResponse(error_code=of_request, responses=topics), 11)


def test_good_answers_pass() -> None:
    check(PRODUCE, produce_answer(0, 0, 0))
    check(FETCH, fetch_answer(40))


@pytest.mark.parametrize(
    ("frame", "answer", "complaint"),
    [
        (PRODUCE, produce_answer(0, 0, 29), "error code 29"),
        (PRODUCE, produce_answer(0, 0), "1 are missing"),
        (PRODUCE, produce_answer(0, 0, 0, base_offset=-1), "no offset"),
        (PRODUCE, produce_answer(0, 0, 0) + b"\0", "1 bytes behind the answer"),
        (FETCH, fetch_answer(40, code=1), "error code 1"),
        (FETCH, fetch_answer(40, of_request=70), "error code 70"),
        (FETCH, fetch_answer(42), "asked for offset 41, got a batch from 42"),
        (FETCH, fetch_answer(36), "asked for offset 41, got a batch from 36"),
    ],
)
def test_an_error_anywhere_in_an_answer_is_found(frame: bytes, answer: bytes, complaint: str) -> None:
    with pytest.raises(WrongAnswerError, match=complaint):
        check(frame, answer)


def test_all_frames_that_should_be_shown_must_have_been_answered() -> None:
    asked = [Prepared(PRODUCE, is_shown=True), Prepared(FETCH), Prepared(PRODUCE, is_shown=True)]
    good = produce_answer(0, 0, 0)

    def shown(*indices: int) -> io.BytesIO:
        return io.BytesIO(b"".join(struct.pack(">II", index, len(good)) + good for index in indices))

    assert check_shown(shown(0, 2), asked) == 2
    with pytest.raises(WrongAnswerError, match="no answer to 1 of 2 frames"):
        check_shown(shown(2), asked)
