"""Makes the requests of a transactional producer: the partitions, the records, a group's offsets and the end of each transaction.

Clients of Apache Kafka 3.9 send the same versions. Sequence numbers go on from one transaction to the next, with their checksums.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import crc32c

from benchmarks.loadgen.transactional import Asked, Step, To
from benchmarks.loads import frames
from benchmarks.loads.admin import GROUP, TRANSACTION, Admin, Topic
from benchmarks.loads.batches import COVERED_AT, CRC_AT, SEQUENCE_AT, of_producer
from benchmarks.loads.frames import Asked as FetchAsked
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema.message import Message

PRODUCE_2, END_2 = 12, 5
"""The first versions of Produce and EndTxn in transactions of version 2 (KIP-890)."""
EPOCH_AT = SEQUENCE_AT - 2
_MARKS = 0x7B00  # error codes that stand nowhere else in an answer


class Identity(NamedTuple):
    """A transactional id after InitProducerId, and where its coordinator listens."""

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_port: int


def begin(port: int, transactional_id: str) -> Identity:
    """Have the coordinator give a producer id and a new epoch to it; `port` is that of any broker. Raises BrokerRefusedError."""
    with Admin("127.0.0.1", port) as any_broker:
        coordinator_port = any_broker.coordinator_port(TRANSACTION, transactional_id)
    with Admin("127.0.0.1", coordinator_port) as coordinator:
        producer_id, epoch = coordinator.transactional_producer(transactional_id)
    return Identity(transactional_id, producer_id, epoch, coordinator_port)


def add_partitions(who: Identity, topic: str, partitions: Sequence[int]) -> Step:
    """AddPartitionsToTxn."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )

    def answer(codes: Sequence[int]) -> Message:
        results = [AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code) for code in codes]
        topics = [AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    return [_always(who, ApiKey.ADD_PARTITIONS_TO_TXN, request, answer, len(partitions))]


def produce(who: Identity, topic: str, batches: Mapping[int, bytes], records: int, port_of: Mapping[int, int]) -> Step:
    """A Produce for every leader of the partitions. Each batch has so many records; `port_of` names the leaders' ports by partition."""
    by_port: dict[int, dict[int, bytes]] = {}
    for partition, batch in batches.items():
        numbered = of_producer(batch, who.producer_id, epoch=who.epoch, is_transactional=True)
        by_port.setdefault(port_of[partition], {})[partition] = numbered
    return [
        Asked(To(port), _produce_frame(who, topic, some, records), frames.produce_error_offsets(topic, len(some)))
        for port, some in by_port.items()
    ]


def _produce_frame(who: Identity, topic: str, batches: Mapping[int, bytes], records: int) -> Callable[[int], bytes]:
    unnumbered = frames.produce_partitions(topic, batches, transactional_id=who.transactional_id)
    places, at = [], 0
    for batch in batches.values():
        at = unnumbered.index(batch, at)
        places.append((at, at + len(batch)))
        at += len(batch)

    def frame(number: int) -> bytes:
        made = bytearray(unnumbered)
        sequence = (number * records).to_bytes(4, "big")
        with memoryview(made) as view:
            for start, end in places:
                made[start + SEQUENCE_AT : start + SEQUENCE_AT + 4] = sequence
                made[start + CRC_AT : start + COVERED_AT] = crc32c.crc32c(view[start + COVERED_AT : end]).to_bytes(4, "big")
        return bytes(made)

    return frame


def end(who: Identity, commits: Callable[[int], bool] = lambda _: True) -> Step:
    """EndTxn; `commits` decides by the number of a transaction whether it is committed."""

    def answer(codes: Sequence[int]) -> Message:
        return EndTxnResponse(error_code=codes[0])

    made = {
        committed: frames.request_frame(
            ApiKey.END_TXN,
            EndTxnRequest(
                transactional_id=who.transactional_id, producer_id=who.producer_id, producer_epoch=who.epoch, committed=committed
            ),
        )
        for committed in (True, False)
    }
    return [Asked(To(who.coordinator_port, True), lambda number: made[commits(number)], _places(ApiKey.END_TXN, answer, 1))]


def produce_2(who: Identity, topic: str, partition: int, batch: bytes, port: int) -> Step:
    """A Produce of transaction version 2, which adds the partition to the transaction. Each transaction has the next producer epoch."""
    numbered = of_producer(batch, who.producer_id, epoch=who.epoch, is_transactional=True)
    unnumbered = frames.produce_partitions(topic, {partition: numbered}, version=PRODUCE_2, transactional_id=who.transactional_id)
    start = unnumbered.index(numbered)
    stop = start + len(numbered)

    def frame(number: int) -> bytes:
        made = bytearray(unnumbered)
        made[start + EPOCH_AT : start + SEQUENCE_AT] = (who.epoch + number).to_bytes(2, "big")
        with memoryview(made) as view:
            made[start + CRC_AT : start + COVERED_AT] = crc32c.crc32c(view[start + COVERED_AT : stop]).to_bytes(4, "big")
        return bytes(made)

    return [Asked(To(port), frame, frames.produce_error_offsets(topic, version=PRODUCE_2))]


def end_2(who: Identity) -> Step:
    """EndTxn of transaction version 2: it commits, and raises the producer epoch."""

    def frame(number: int) -> bytes:
        request = EndTxnRequest(
            transactional_id=who.transactional_id, producer_id=who.producer_id, producer_epoch=who.epoch + number, committed=True
        )
        return frames.request_frame(ApiKey.END_TXN, request, END_2)

    def answer(code: int) -> Message:
        return EndTxnResponse(error_code=code, producer_id=0, producer_epoch=0)

    return [Asked(To(who.coordinator_port, True), frame, (frames.error_offset(ApiKey.END_TXN, answer, END_2),))]


def end_nothing(port: int) -> Step:
    """EndTxn of a transactional id that does not exist. The broker refuses it, and writes nothing."""
    request = EndTxnRequest(transactional_id="unknown", producer_id=0, producer_epoch=0, committed=True)
    made = frames.request_frame(ApiKey.END_TXN, request)
    return [Asked(To(port, True), lambda _: made, ())]


def read(topic: Topic, leader_port: int, offsets: Sequence[int], max_bytes: int) -> Step:
    """A read_committed Fetch of partition 0, at one of these offsets after the other."""
    made = [
        frames.fetch_partitions(topic.name, topic.topic_id, [FetchAsked(0, offset, max_bytes)], isolation_level=frames.READ_COMMITTED)
        for offset in offsets
    ]
    return [Asked(To(leader_port), lambda number: made[number % len(made)], frames.fetch_error_offsets())]


def commit_offsets(who: Identity, port: int, group: str, topic: str) -> Sequence[Step]:
    """AddOffsetsToTxn, and TxnOffsetCommit of partition 0 to the coordinator of the group, of no member. Raises BrokerRefusedError."""
    with Admin("127.0.0.1", port) as admin:
        group_port = admin.coordinator_port(GROUP, group)

    def added(codes: Sequence[int]) -> Message:
        return AddOffsetsToTxnResponse(error_code=codes[0])

    def committed(codes: Sequence[int]) -> Message:
        partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=codes[0])
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name=topic, partitions=[partition])])

    add = AddOffsetsToTxnRequest(
        transactional_id=who.transactional_id, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=group
    )
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])],
    )
    to_group = _always(who._replace(coordinator_port=group_port), ApiKey.TXN_OFFSET_COMMIT, commit, committed, 1)
    return [[_always(who, ApiKey.ADD_OFFSETS_TO_TXN, add, added, 1)], [to_group]]


def _always(who: Identity, key: ApiKey, request: Message, answer: Callable[[Sequence[int]], Message], codes: int) -> Asked:
    """The same request to a coordinator in every transaction; `answer` gives the response with so many error codes."""
    made = frames.request_frame(key, request)
    return Asked(To(who.coordinator_port, True), lambda _: made, _places(key, answer, codes))


def _places(key: ApiKey, answer: Callable[[Sequence[int]], Message], codes: int) -> Sequence[int]:
    marks = [_MARKS + 1 + at for at in range(codes)]
    return frames.error_offsets(frames.answer_frame(key, answer(marks)), marks)
