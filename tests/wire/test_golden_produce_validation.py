"""Odd and bad Produce requests that a real Apache Kafka answered.

Validation refuses the same ones, for the same reason, and changes the same bytes of those it accepts.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import CorruptRecord, InvalidRecord, RecordTooLarge, StorageError, UnsupportedCompressionType
from ottla.storage.validation.batch import complete_validation, judge, read_only_batch
from ottla.storage.validation.record_errors import WITHOUT_LOG_START_OFFSET, UnreadableRecords, error_message
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP
from tests.support.golden_logs import golden_batches

BAD_INPUT = Path(__file__).parents[1] / "golden" / "wire" / "bad-input.jsonl"

# Listed in docs/differences.md, section "Record validation".
DIFFERENCES = {"null records"}

CONVERTED = {"magic 1 in v2 (up-converted)", "magic 1 gzip in v2", "magic 0 in v0"}

ERROR_CODES = {
    UnreadableRecords: -1,
    CorruptRecord: 2,
    RecordTooLarge: 10,
    UnsupportedCompressionType: 76,
    InvalidRecord: 87,
}


class Case(NamedTuple):
    name: str
    version: int
    topic: str
    records: bytearray
    answer: str

    def answered(self, field: str) -> int:
        """A number in the recorded answer."""
        found = re.search(rf"{field}=(-?\d+)", self.answer)
        assert found, self.answer
        return int(found.group(1))


@cache
def cases() -> list[Case]:
    """The recorded Produce requests with one batch for one partition and an answer."""
    read: list[Case] = []
    for line in BAD_INPUT.read_text().splitlines():
        recorded: dict[str, Any] = json.loads(line)
        if recorded["api_key"] != 0 or recorded["outcome"] != "response":
            continue
        frame = bytes.fromhex(recorded["sent_hex"])[4:]
        if len(frame) + 4 != recorded["sent_bytes"]:
            continue  # too long to be recorded whole
        version = recorded["version"]
        _, at = RequestHeader.decode(frame, 2 if version >= 9 else 1)
        request, _ = ProduceRequest.decode(frame, version, at)
        if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
            topic = request.topic_data[0]
            read.append(Case(recorded["case"], version, topic.name, bytearray(topic.partition_data[0].records), recorded["decoded"]))
    return read


def decided_by_validation() -> list[Case]:
    """Not those that the partition, the producer's state, a transaction or an authorizer refuses."""
    return [case for case in cases() if case.answered("errorCode") in {0, *ERROR_CODES.values()} and case.name not in DIFFERENCES]


def validated(case: Case) -> BatchRun:
    run = BatchRun(memoryview(case.records))
    read_only_batch(run, case.version)
    rules = ValidationRules(TopicPartition(case.topic, 0), compact=case.topic == "bad-compact")
    judge(run, rules, FIRST_TIMESTAMP, True)
    return complete_validation(run.detached(), rules, FIRST_TIMESTAMP) if case.name in CONVERTED else run


def test_the_recording_has_the_cases_this_is_about() -> None:
    assert len(decided_by_validation()) == 38
    assert {case.name for case in cases()} >= CONVERTED


@pytest.mark.parametrize("case", decided_by_validation(), ids=lambda case: case.name)
def test_a_batch_is_accepted_or_refused_as_apache_kafka_did(case: Case) -> None:
    if case.answered("errorCode") == 0:
        assert not validated(case).needs_worker
        return
    with pytest.raises(tuple(ERROR_CODES)) as caught:
        validated(case)
    error = caught.value
    assert case.answered("errorCode") == next(code for kind, code in ERROR_CODES.items() if isinstance(error, kind))
    assert case.answered("logStartOffset") == (-1 if isinstance(error, WITHOUT_LOG_START_OFFSET) else 0)
    if case.version >= 8:
        assert isinstance(error, StorageError)
        message = error_message(error)
        assert ("errorMessage=null" if message is None else f"errorMessage='{message}'") in case.answer
        for index, text in getattr(error, "record_errors", ()):
            assert f"BatchIndexAndErrorMessage(batchIndex={index}, batchIndexErrorMessage='{text}')" in case.answer


def test_an_accepted_batch_is_stamped_to_the_bytes_that_apache_kafka_wrote() -> None:
    written = {
        batch.manifest["base_offset"]: batch.log[batch.position : batch.position + batch.manifest["size"]]
        for batch in golden_batches()
        if batch.place.startswith("odd/bad-0/")
    }
    compared = set()
    for case in decided_by_validation():
        if case.answered("errorCode") == 0 and case.name != "idempotent duplicate":
            batch = validated(case)
            batch.stamp(case.answered("baseOffset"), 0)
            assert bytes(batch.batch()) == written[case.answered("baseOffset")], case.name
            compared.add(case.name)
    assert compared > CONVERTED | {
        "attribute LogAppendTime from a client",
        "max timestamp in header 5, records later",
        "unused attribute bit 7",
    }
