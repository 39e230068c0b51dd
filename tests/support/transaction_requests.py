"""Sends single requests of transactional producers, right and wrong ones, and reads what the broker then says of its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.protocol.schema.message import Message
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.wire_client import WireClient

TIMEOUT_MS = 60_000
SECONDS = 60.0
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
"""Answers of a coordinator that has not loaded its partitions yet; the request is sent again."""


class Owner(NamedTuple):
    """A transactional id and the producer that speaks for it."""

    transactional_id: str
    producer_id: int
    epoch: int

    def older(self) -> Owner:
        """The same with the epoch before."""
        return self._replace(epoch=self.epoch - 1)

    def newer(self) -> Owner:
        """The same with an epoch that was never given out."""
        return self._replace(epoch=self.epoch + 1)

    def stranger(self) -> Owner:
        """The same id with a producer id that was never given out."""
        return self._replace(producer_id=self.producer_id + 1_000_000)


class Described(NamedTuple):
    """The result of DescribeTransactions, without times."""

    state: str
    producer_id: int
    epoch: int
    partitions: tuple[tuple[str, int], ...] = ()


class Scene:
    """One connection to a broker that is coordinator and leader of all. The codes that it gives back are `ErrorCode`s."""

    def __init__(self, port: int) -> None:
        self._client = WireClient(port, SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, request: Message, version: int) -> Any:
        """Any request."""
        return self._client.ask(request, version)

    def find_coordinators(self, group: str = "any") -> None:
        """Wait until both coordinators are there; the first question makes the broker create their topics."""
        self._find(0, group)
        self._find(1, "any")

    def _find(self, key_type: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

        def is_ready() -> bool:
            return all(each.error_code == 0 for each in self.ask(request, 4).coordinators)

        eventually(is_ready, SECONDS, "the coordinator is known")

    # ---- the requests of a producer

    def init(self, transactional_id: str | None, timeout_ms: int = TIMEOUT_MS, owner: Owner | None = None, version: int = 4) -> Any:
        """The answer to InitProducerId, as `owner` where that is given, once it is none of an absent or busy coordinator."""
        found: list[Any] = []
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if owner is None else owner.producer_id,
            producer_epoch=-1 if owner is None else owner.epoch,
        )

        def is_answered() -> bool:
            found[:] = [self.ask(request, version)]
            return found[0].error_code not in {*BUSY, ErrorCode.CONCURRENT_TRANSACTIONS}

        eventually(is_answered, SECONDS, "InitProducerId is answered")
        return found[0]

    def owner(self, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> Owner:
        """A new owner of the id."""
        answer = self.init(transactional_id, timeout_ms)
        assert answer.error_code == 0, answer
        return Owner(transactional_id, answer.producer_id, answer.producer_epoch)

    def add(self, owner: Owner, topic: str, *partitions: int, version: int = 3, verify_only: bool = False) -> list[ErrorCode]:
        """AddPartitionsToTxn; the code of every partition, or the one of the request."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        return self.add_topics(owner, topics, version=version, verify_only=verify_only)

    def add_topics(
        self, owner: Owner, topics: list[AddPartitionsToTxnTopic], *, version: int = 3, verify_only: bool = False
    ) -> list[ErrorCode]:
        """The same of several topics."""
        if version < 4:
            answer = self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=owner.transactional_id,
                    v3_and_below_producer_id=owner.producer_id,
                    v3_and_below_producer_epoch=owner.epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
            found = answer.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=owner.transactional_id,
                producer_id=owner.producer_id,
                producer_epoch=owner.epoch,
                verify_only=verify_only,
                topics=topics,
            )
            answer = self.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            if answer.error_code:
                return [ErrorCode(answer.error_code)]
            found = answer.results_by_transaction[0].topic_results
        return [ErrorCode(each.partition_error_code) for topic in found for each in topic.results_by_partition]

    def add_offsets(self, owner: Owner, group: str, version: int = 4) -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=owner.transactional_id, producer_id=owner.producer_id, producer_epoch=owner.epoch, group_id=group
        )
        return ErrorCode(self.ask(request, version).error_code)

    def commit_offset(
        self,
        owner: Owner,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        version: int = 4,
        *,
        metadata: str = "",
        generation_id: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> ErrorCode:
        """TxnOffsetCommit of one partition, once the group's coordinator is ready."""
        each = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        request = TxnOffsetCommitRequest(
            transactional_id=owner.transactional_id,
            group_id=group,
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[each])],
        )
        found: list[ErrorCode] = []

        def is_answered() -> bool:
            found[:] = [ErrorCode(self.ask(request, version).topics[0].partitions[0].error_code)]
            return found[0] not in BUSY

        eventually(is_answered, SECONDS, "TxnOffsetCommit is answered")
        return found[0]

    def end(self, owner: Owner, *, commit: bool, version: int = 4) -> ErrorCode:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=owner.transactional_id, producer_id=owner.producer_id, producer_epoch=owner.epoch, committed=commit
        )
        return ErrorCode(self.ask(request, version).error_code)

    def write(self, owner: Owner, topic: str, partition: int = 0, *, sequence: int = 0, version: int = 11) -> ErrorCode:
        """Produce one transactional record."""
        batch = a_batch(1, producer_id=owner.producer_id, producer_epoch=owner.epoch, base_sequence=sequence, transactional=True)
        (code,) = self.produce(owner.transactional_id, topic, {partition: bytes(batch)}, version=version)
        return code

    def produce(self, transactional_id: str | None, topic: str, batches: dict[int, bytes], *, version: int = 11) -> list[ErrorCode]:
        """Produce these bytes; the code of every partition."""
        data = [PartitionProduceData(index=partition, records=records) for partition, records in batches.items()]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.ask(request, version)
        return [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]

    def mark(
        self, owner: Owner, topic: str, partitions: Sequence[int] = (0,), *, commit: bool, coordinator_epoch: int = 0, version: int = 1
    ) -> list[ErrorCode]:
        """WriteTxnMarkers of one producer; the code of every partition."""
        marker = WritableTxnMarker(
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
            coordinator_epoch=coordinator_epoch,
        )
        answer = self.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        codes = {each.partition_index: ErrorCode(each.error_code) for each in answer.markers[0].topics[0].partitions}
        return [codes[partition] for partition in partitions]

    # ---- the state

    def describe(self, transactional_id: str) -> Any:
        """The answer to DescribeTransactions."""
        return self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states[0]

    def described(self, transactional_id: str) -> Described | None:
        """None for an id that the coordinator does not know."""
        found = self.describe(transactional_id)
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        assert found.error_code == 0, found
        partitions = tuple(sorted((topic.topic, partition) for topic in found.topics for partition in topic.partitions))
        return Described(found.transaction_state, found.producer_id, found.producer_epoch, partitions)

    def wait_until_completed(self, transactional_id: str) -> Described:
        """Until no transaction of the id is open or about to end."""
        found: list[Described | None] = []

        def is_completed() -> bool:
            found[:] = [self.described(transactional_id)]
            return found[0] is not None and found[0].state in {"Empty", "CompleteCommit", "CompleteAbort"}

        eventually(is_completed, SECONDS, f"the transaction of {transactional_id} is completed")
        assert found[0] is not None
        return found[0]

    def open_transactions(self, topic: str, partition: int = 0) -> dict[int, int]:
        """By producer id, the offset at which its open transaction begins, as the leader of the partition says."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        (found,) = self.ask(request, 0).topics[0].partitions
        assert found.error_code == 0, found
        return {each.producer_id: each.current_txn_start_offset for each in found.active_producers if each.current_txn_start_offset >= 0}

    def end_offset(self, topic: str, partition: int = 0, *, committed: bool) -> int:
        """The last stable offset, or the high watermark."""
        asked = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=asked)
        (found,) = self.ask(request, 5).topics[0].partitions
        assert found.error_code == 0, found
        return int(found.offset)

    def holds_nothing_back(self, topic: str, partition: int = 0) -> bool:
        """Whether the last stable offset is the high watermark."""
        return self.end_offset(topic, partition, committed=True) == self.end_offset(topic, partition, committed=False)
