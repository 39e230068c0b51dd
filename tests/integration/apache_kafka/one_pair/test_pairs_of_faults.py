"""A Produce with two faults gets the answer that Apache Kafka gives: both look for faults in the same order."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import zstandard

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.clients import ConfluentClient
from tests.support.java_pair import Pair
from tests.support.odd_batch_answers import KEPT
from tests.support.odd_batches import a_body, an_odd_record, framed
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = needs_apache_kafka

TOPIC = "two-faults"
COMPACTED = "two-faults-compacted"
ZSTD = 4
TRANSACTIONAL = 0x10
CONTROL = 0x20


@dataclass(frozen=True)
class Produce:
    """A Produce of one batch without a transactional id. `damages` change the bytes of the batch."""

    topic: str = TOPIC
    index: int = 0
    acks: int = -1
    version: int = 9
    attributes: int = 0
    codec: int = 0
    count: int = 10
    body: bytes = a_body()
    last_delta: int | None = None
    base_offset: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    damages: tuple[Callable[[bytes], bytes], ...] = ()

    def request(self) -> ProduceRequest:
        body = zstandard.compress(self.body) if self.codec == ZSTD else self.body
        batch = framed(
            body,
            self.codec,
            count=self.count,
            last_delta=self.last_delta,
            attributes=self.attributes,
            base_offset=self.base_offset,
            producer=self.producer,
        )
        for damage in self.damages:
            batch = damage(batch)
        data = [TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=self.index, records=batch)])]
        return ProduceRequest(transactional_id=None, acks=self.acks, timeout_ms=60_000, topic_data=data)


Fault = Callable[[Produce], Produce]


def having(**fields: Any) -> Fault:
    return lambda produce: replace(produce, **fields)


def flagged(attributes: int, **fields: Any) -> Fault:
    return lambda produce: replace(produce, attributes=produce.attributes | attributes, **fields)


def damaged(damage: Callable[[bytes], bytes]) -> Fault:
    return lambda produce: replace(produce, damages=(*produce.damages, damage))


def overwritten(at: int, value: bytes) -> Fault:
    return damaged(lambda batch: batch[:at] + value + batch[at + len(value) :])


def with_length(length: int) -> Fault:
    return overwritten(8, struct.pack(">i", length))


FAULTS: dict[str, Fault] = {
    "transactional": flagged(TRANSACTIONAL, producer=(1, 0, 0)),
    "transactional without a producer": flagged(TRANSACTIONAL),
    "control batch": flagged(CONTROL),
    "unknown topic": having(topic="two-faults-missing"),
    "unknown partition": having(index=7),
    "internal topic": having(topic="__consumer_offsets"),
    "compacted topic": having(topic=COMPACTED),
    "acks 5": having(acks=5),
    "no bytes": damaged(lambda batch: b""),
    "ten bytes": damaged(lambda batch: batch[:10]),
    "length 5": with_length(5),
    "length 20": with_length(20),
    "length beyond the records": with_length(10_000_000),
    "magic 3": overwritten(16, b"\3"),
    "magic 1": overwritten(16, b"\1"),
    "checksum": overwritten(17, b"\0\0\0\1"),
    "two batches": damaged(lambda batch: batch + batch),
    "garbage behind": damaged(lambda batch: batch + b"x" * 30),
    "one record too few": having(count=11),
    "no records": having(count=0, body=b""),
    "last offset delta": having(last_delta=20),
    "base offset": having(base_offset=5),
    "producer without a sequence": having(producer=(1, 0, -1)),
    "sequence of an unknown producer": having(producer=(99, 0, 7)),
    "null keys": having(body=a_body(key=None)),
    "bad record": having(body=a_body(9) + an_odd_record(9, size=b"\0")),
    "zstd in an old version": having(codec=ZSTD, version=6),
    "unknown codec": having(codec=6),
    "too large": having(body=a_body(value=bytes(200_000))),
}


def prepare(port: int, bootstrap: str) -> None:
    client = ConfluentClient(bootstrap)
    client.create_topic(TOPIC, 1, KEPT)
    client.create_topic(COMPACTED, 1, {**KEPT, "cleanup.policy": "compact"})
    with a_wire_client(port) as wire:
        request = FindCoordinatorRequest(coordinator_keys=["two-faults"])
        eventually(lambda: not wire.ask(request, 4).coordinators[0].error_code, what="the topic of the offsets")


def answer(client: WireClient, produce: Produce) -> tuple[int, str | None]:
    found: Any = client.ask(produce.request(), produce.version).responses[0].partition_responses[0]
    return found.error_code, found.error_message if produce.version >= 8 else None


@pytest.mark.slow
def test_two_faults_are_met_in_the_order_of_apache_kafka(pair: Pair) -> None:
    prepare(pair.ours.port, pair.ours.bootstrap)
    prepare(pair.theirs.port(), pair.theirs.bootstrap)
    wrong = {}
    with a_wire_client(pair.ours.port) as ours, a_wire_client(pair.theirs.port()) as theirs:
        for first, second in itertools.combinations(FAULTS, 2):
            produce = FAULTS[second](FAULTS[first](Produce()))
            found, expected = answer(ours, produce), answer(theirs, produce)
            if found != expected:
                wrong[first, second] = found, expected
    assert wrong == {}
