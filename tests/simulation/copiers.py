"""Copies a partition to another, exactly once: each transaction holds the copied records and the offset behind them (KIP-447)."""

from __future__ import annotations

from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.peer import PeerUnavailable
from tests.simulation.clients import Leaders
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.elections import Elections
from tests.simulation.groups import GroupClient
from tests.simulation.ledger import Fate, TransactionalId
from tests.simulation.transactions import TransactionalClient

OFFSETS = TopicPartition("__consumer_offsets", 0)
MOST_RECORDS = 5
LOOKS = 0.2
"""How likely a copier looks at its offset in the middle of its transaction, as somebody who does not ask for a stable one."""


class Copier(TransactionalClient):
    """One instance. A copy carries the offset of its source, by which the ledger knows it."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        elections: Elections,
        source: TopicPartition,
        sources: Leaders,
        target: TopicPartition,
        targets: Leaders,
        owner: TransactionalId,
        instance: str,
        seed: int,
    ) -> None:
        super().__init__(cluster, targets, owner, instance, target.topic, seed)
        self._elections = elections
        self._source = source
        self._sources = sources
        self._target = target.partition
        self._group = GroupClient(cluster, source.topic, owner.name, self.random.getrandbits(32))
        self._position = 0

    async def prepare(self) -> None:
        """See TransactionalClient."""
        while (offset := await self.committed_offset()) is None:
            await self._wait(None)
        self._position = max(offset, 0)

    async def committed_offset(self) -> int | None:
        """The stable offset of the group; None if nobody can tell it.

        A coordinator reads offsets from memory, even if it is deposed and does not know it yet, here as with Apache Kafka. So the answer
        counts only if the store named that coordinator before and after.
        """
        leadership = self._elections.states[OFFSETS].leader_epoch
        offset = await self._read_offset(require_stable=True)
        broker_id = self._group.coordinator
        if offset is None or broker_id is None or self._elections.states[OFFSETS].leader_epoch != leadership:
            return None
        replica = self.cluster.replicas(*OFFSETS).get(broker_id)
        return offset if replica is not None and replica.leader_epoch == leadership else None

    async def transact(self) -> bool:
        """See TransactionalClient."""
        offsets = await self._fetch()
        if not offsets:
            return True
        transaction = self.begin()
        transaction.offset = offsets[-1] + 1
        await self.add_partitions([self._target])
        await self._add_offsets()
        await self.send(self._target, [transaction.add(self._target, str(offset)) for offset in offsets])
        await self._commit_offset(transaction.offset)
        if self.random.random() < LOOKS:
            await self._read_offset(require_stable=False)
        may_go_on = await self.end(transaction)
        if transaction.fate is Fate.COMMITTED:
            self._position = transaction.offset
        return may_go_on

    async def _fetch(self) -> list[int]:
        """The offsets of the next records of the source."""
        leader = await self._sources.leader(self._source.partition)
        asked = FetchPartition(partition=self._source.partition, fetch_offset=self._position, partition_max_bytes=200)
        topics = [FetchTopic(topic_id=self._sources.topic_id, partitions=[asked])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=200, topics=topics)
        try:
            answer = cast("FetchResponse", await self.ask(leader, ApiKey.FETCH, 17, request))
        except PeerUnavailable:
            answer = FetchResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
        found = [partition for topic in answer.responses for partition in topic.partitions]
        if answer.error_code or any(partition.error_code for partition in found):
            self._sources.forget(self._source.partition, leader)
            return []
        ends = [header.next_offset for partition in found for _, header in iter_batches(bytes(partition.records or b""))]
        return list(range(self._position, max(ends, default=self._position)))[:MOST_RECORDS]

    async def _add_offsets(self) -> None:
        if self.in_version_2:
            return  # TxnOffsetCommit adds them
        producer = self._own()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.owner.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=self.owner.name,
        )

        def code(answer: Message) -> int:
            return cast("AddOffsetsToTxnResponse", answer).error_code

        await self.ask_until_done(self, ApiKey.ADD_OFFSETS_TO_TXN, 3, request, code)

    async def _commit_offset(self, offset: int) -> None:
        producer = self._own()
        partition = TxnOffsetCommitRequestPartition(partition_index=self._source.partition, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.owner.name,
            group_id=self.owner.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=self._source.topic, partitions=[partition])],
        )

        def code(answer: Message) -> int:
            return cast("TxnOffsetCommitResponse", answer).topics[0].partitions[0].error_code

        await self.ask_until_done(self._group, ApiKey.TXN_OFFSET_COMMIT, 5 if self.in_version_2 else 3, request, code)

    async def _read_offset(self, *, require_stable: bool) -> int | None:
        """The offset of the group, which must be that of a transaction whose commit was asked for; None if nobody tells it."""
        group = OffsetFetchRequestGroup(group_id=self.owner.name, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        answer = cast("OffsetFetchResponse | None", await self._group.ask_coordinator(ApiKey.OFFSET_FETCH, 9, request))
        if answer is None or answer.groups[0].error_code != ErrorCode.NONE:
            self._group.forget_coordinator()
            return None
        found = [partition for topic in answer.groups[0].topics for partition in topic.partitions]
        if any(partition.error_code for partition in found):
            assert require_stable, f"the offset of group {self.owner.name} cannot be read: {found}"
            return None
        offset = found[0].committed_offset if found else -1
        assert offset in self.owner.visible, f"group {self.owner.name} has offset {offset}, and no transaction with it was to be committed"
        return offset
