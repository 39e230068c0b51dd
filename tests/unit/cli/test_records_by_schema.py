"""Records whose schemas cannot be had are printed as they are, with a bounded number of remarks."""

import pytest

from ottla.cli.records import by_schema
from ottla.cli.records.by_schema import Decoding
from ottla.client.fetcher import FetchedBatch
from ottla.protocol.records.batch import TimestampType
from ottla.protocol.records.reader import Record
from ottla.protocol.topic_partition import TopicPartition
from ottla.schemas.schema_registry import SchemaRegistry
from tests.unit.cli.test_console_registry import a_registry

VALUES = [bytes([0, 0, 0, 1, each, 7]) for each in range(5)]
"""Bytes that look as if each had a schema of its own."""


def test_each_reason_is_told_once_and_their_number_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(by_schema, "_MOST_REASONS", 3)
    records = [Record(at, 0, None, value) for at, value in enumerate(VALUES * 2)]
    batch = FetchedBatch(TopicPartition("t", 0), TimestampType.CREATE_TIME, records, len(records))
    with a_registry({}) as registry:
        decoding = Decoding(SchemaRegistry(registry.url), said.append)
        assert [decoding.batch(batch) for _ in range(2)] == [batch, batch]
    *reasons, last = said
    assert [line.rpartition(" ")[2] for line in reasons] == ["256", "257", "258"]
    assert last == "ottla: other reasons for which records are printed as they are follow without a remark"
