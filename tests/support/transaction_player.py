"""Sends requests of transactional producers, and notes all answers, records and markers in plain form (`transaction_plays`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import parse_end_transaction_marker
from ottla.protocol.records.reader import iter_records
from ottla.protocol.schema.message import Message
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.wire_client import WireClient

SECONDS: Final = 60.0
GROUP: Final = "plays"
STATE_TOPIC: Final = "__transaction_state"
LAST_EPOCH: Final = 32_766
AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)

Producer = tuple[int, int]
"""A producer id, by its number in the play, and an epoch."""


class Player:
    """Plays with one transactional id, which has the name of the play, and one topic with three partitions."""

    def __init__(self, port: int, name: str, restart: Callable[[], object]) -> None:
        self._port = port
        self._client = WireClient(port, SECONDS)
        self._restart = restart
        self.name = name
        self.noted: list[Any] = []
        self._ids: list[int] = []

    def close(self) -> None:
        self._client.close()

    def restart(self) -> None:
        """Stop the broker and start it again."""
        self.close()
        self._restart()
        self._client = WireClient(self._port, SECONDS)
        self.prepare()

    def prepare(self) -> None:
        """Create the topic, and wait for the coordinators."""
        topic = CreatableTopic(name=self.name, num_partitions=3, replication_factor=1)
        self._client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        self._find(0, GROUP)
        self._find(1, self.name)

    def _find(self, key_type: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        eventually(lambda: not self._client.ask(request, 4).coordinators[0].error_code, SECONDS, "the coordinator is known")

    # ---- requests

    def init(self, expected: Producer | None = None, *, version: int = 5, timeout_ms: int = 60_000, **fields: bool) -> Producer:
        """InitProducerId until the coordinator is there."""
        producer_id, epoch = (-1, -1) if expected is None else (self._ids[expected[0]], expected[1])
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch, **fields
        )
        answer = self._ask_until(request, version, lambda answer: answer.error_code)
        return self._note("init", answer.error_code, answer.producer_id, answer.producer_epoch)

    def settle(self) -> Producer:
        """InitProducerId until it is done; only the last answer is noted."""
        found: list[Producer] = []

        def is_done() -> bool:
            found[:] = [self.init()]
            is_busy = self.noted[-1][1] == "CONCURRENT_TRANSACTIONS"
            if is_busy:
                self.noted.pop()
            return not is_busy

        eventually(is_done, SECONDS, "InitProducerId is done")
        return found[0]

    def produce(self, producer: Producer, partition: int = 0, *, sequence: int = 0, version: int = 12) -> None:
        """Produce of one record. CONCURRENT_TRANSACTIONS is asked again, as clients do."""
        producer_id, epoch = self._real(producer)
        batch = bytes(a_batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True))
        data = [TopicProduceData(name=self.name, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=data)
        (found,) = self._ask_until(request, version, _code_of_produce).responses[0].partition_responses
        self.noted.append([f"produce {version}", _named(found.error_code), found.base_offset, found.error_message])

    def add(self, producer: Producer, *partitions: int, version: int = 3, verify_only: bool = False) -> None:
        """AddPartitionsToTxn; from version 4 on as a broker."""
        topics = [AddPartitionsToTxnTopic(name=self.name, partitions=list(partitions))]
        producer_id, epoch = self._real(producer)
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, verify_only=verify_only, topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self._ask_until(request, version, lambda answer: _codes_of_add(answer)[0])
        self.noted.append([f"add {version}", *(_named(code) for code in _codes_of_add(answer))])

    def add_offsets(self, producer: Producer) -> None:
        """AddOffsetsToTxn."""
        producer_id, epoch = self._real(producer)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP + self.name
        )
        self.noted.append(["add offsets", _named(self._ask_until(request, 4, lambda answer: answer.error_code).error_code)])

    def commit_offset(self, producer: Producer, offset: int, *, version: int = 5) -> None:
        """TxnOffsetCommit for partition 0."""
        producer_id, epoch = self._real(producer)
        each = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=GROUP + self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.name, partitions=[each])],
        )
        answer = self._ask_until(request, version, lambda answer: answer.topics[0].partitions[0].error_code)
        self.noted.append([f"commit offset {version}", _named(answer.topics[0].partitions[0].error_code)])

    def committed(self) -> None:
        """OffsetFetch of the stable offset, until there is one."""
        topics = [OffsetFetchRequestTopics(name=self.name, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP + self.name, topics=topics)], require_stable=True)
        found: list[Any] = []

        def is_stable() -> bool:
            found[:] = self._client.ask(request, 8).groups[0].topics[0].partitions
            return bool(found[0].error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT)

        eventually(is_stable, SECONDS, "the offset is stable")
        self.noted.append(["committed", _named(found[0].error_code), found[0].committed_offset])

    def end(self, producer: Producer, *, commit: bool, version: int = 5, waits: bool = True) -> Producer:
        """EndTxn; what it answers for the next transaction. CONCURRENT_TRANSACTIONS is asked again, as clients do."""
        producer_id, epoch = self._real(producer)
        request = EndTxnRequest(transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit)
        answer = self._ask_until(request, version, lambda answer: answer.error_code) if waits else self._client.ask(request, version)
        return self._note(f"end {version}", answer.error_code, answer.producer_id, answer.producer_epoch)

    def mark(self, producer: Producer, *, commit: bool, version: int = 2, transaction_version: int = 2, partition: int = 0) -> None:
        """WriteTxnMarkers, as a coordinator."""
        producer_id, epoch = self._real(producer)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=self.name, partition_indexes=[partition])],
            coordinator_epoch=0,
            transaction_version=transaction_version if version >= 2 else 0,
        )
        answer = self._client.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        self.noted.append([f"mark {version}", _named(answer.markers[0].topics[0].partitions[0].error_code)])

    def use_up(self, producer: Producer) -> Producer:
        """Have the producer its last epoch, by one InitProducerId after the other. Only the last answer is noted."""
        while producer[1] < LAST_EPOCH:
            producer = self.init()
            noted = self.noted.pop()
        self.noted.append(noted)
        return producer

    # ---- what is written

    def records(self) -> None:
        """Note the records of the id in `__transaction_state`, once its last transaction has ended."""
        found: list[Any] = []

        def are_all_there() -> bool:
            found[:] = [record for partition in range(self._state_partitions()) for record in self._records_of(partition)]
            return bool(found) and found[-1]["state"] in {0, 4, 5}

        eventually(are_all_there, SECONDS, "the end is stored")
        self.noted.append(["records", found])

    def records_of_the_end(self) -> None:
        """Note the last three records: of the transaction that ended, and of its end."""
        self.records()
        self.noted[-1][1] = self.noted[-1][1][-3:]

    def batches(self, partition: int = 0) -> None:
        """Note the batches of a partition."""
        noted = []
        data = self._fetch(self.name, partition)
        for at, header in iter_batches(data):
            kind = None
            if header.is_control:
                (record,) = iter_records(data, at, header)
                kind = parse_end_transaction_marker(record).type.name
            noted.append([header.base_offset, self._number(header.producer_id), header.producer_epoch, header.base_sequence, kind])
        self.noted.append([f"batches {partition}", noted])

    def _state_partitions(self) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=STATE_TOPIC)])
        return len(self._client.ask(request, 9).topics[0].partitions)

    def _records_of(self, partition: int) -> list[dict[str, Any]]:
        found = []
        data = self._fetch(STATE_TOPIC, partition)
        for at, header in iter_batches(data):
            for record in iter_records(data, at, header):
                assert record.key is not None
                key, _ = TransactionLogKey.decode(record.key, 0, 2)
                if key.transactional_id == self.name and record.value is not None:
                    version = int.from_bytes(record.value[:2], "big")
                    value, _ = TransactionLogValue.decode(record.value, version, 2)
                    found.append(self._plain(version, value))
        return found

    def _plain(self, version: int, value: TransactionLogValue) -> dict[str, Any]:
        partitions = value.transaction_partitions
        return {
            "version": version,
            "producer": [self._number(value.producer_id), value.producer_epoch],
            "previous": self._number(value.previous_producer_id),
            "next": self._number(value.next_producer_id),
            "client version": value.client_transaction_version,
            "state": value.transaction_status,
            "partitions": None
            if partitions is None
            else sorted([each.topic == self.name, sorted(each.partition_ids)] for each in partitions),
            "has start": value.transaction_start_timestamp_ms > 0,
        }

    def _fetch(self, topic: str, partition: int) -> bytes:
        data = b""
        offset = 0
        while True:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[FetchTopic(topic=topic, partitions=[wanted])])
            (answer,) = self._client.ask(request, 11).responses[0].partitions
            assert not answer.error_code, answer
            read = bytes(answer.records or b"")
            ends = [header.last_offset + 1 for _, header in iter_batches(read)]
            if not ends:
                return data
            data, offset = data + read, ends[-1]

    # ---- notes

    def _ask_until(self, request: Message, version: int, code: Callable[[Any], int]) -> Any:
        """The answer, once the coordinator is there and, if it ends or adds something, is not busy."""
        found: list[Any] = []
        again = AGAIN if isinstance(request, InitProducerIdRequest) else AGAIN | {ErrorCode.CONCURRENT_TRANSACTIONS}

        def is_answered() -> bool:
            found[:] = [self._client.ask(request, version)]
            return code(found[0]) not in again

        eventually(is_answered, SECONDS, f"{type(request).__name__} is answered")
        return found[0]

    def _note(self, what: str, code: int, producer_id: int, epoch: int) -> Producer:
        number = self._number(producer_id)
        self.noted.append([what, _named(code), number, epoch])
        return (len(self._ids) - 1 if number is None else int(number[1:])), epoch

    def _number(self, producer_id: int) -> str | None:
        if producer_id < 0:
            return None
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return f"P{self._ids.index(producer_id)}"

    def _real(self, producer: Producer) -> Producer:
        number, epoch = producer
        return (self._ids[number] if number < len(self._ids) else 1 << 50), epoch


def _named(code: int) -> str:
    return ErrorCode.of(code).name


def _code_of_produce(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def _codes_of_add(answer: Any) -> list[int]:
    topics = answer.results_by_transaction[0].topic_results if answer.results_by_transaction else answer.results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]
