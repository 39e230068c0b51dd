"""Writes records to `__remote_log_metadata`, each as a batch of its own, idempotently and with acks=all.

One task for each metadata partition has one batch in flight, so their order is that of the callers. A batch whose answer is lost is sent
again with the same sequence, to whichever broker leads then. A record that was given up may still arrive; the next one then gets
another producer id, so that the leader does not take one for the other.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ottla.broker.remote.metadata.peers import REQUEST_TIMEOUT_MS, MetadataPeers
from ottla.broker.remote.metadata.refusals import Refusals
from ottla.coordination.appends.delayed_produce import ACKS_ALL
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.batch import NO_PRODUCER_ID, increment_sequence
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.wire import ProtocolError
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Peer, PeerUnavailable
from ottla.storage.disk.clock import Clock
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from ottla.storage.remote.ports import MetadataWriteFailed

logger = logging.getLogger(__name__)

PRODUCE_VERSION: Final = 9
BACKOFF_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 60.0
"""How long a connection without records is kept."""

_STARTS_ANEW: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""The leader does not know this producer's last batch. The record is sent with another producer id, and is harmless twice."""
_FINAL: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Another attempt would be refused, too."""

NextProducerId = Callable[[], Awaitable[int]]


class _Write(NamedTuple):
    value: bytes
    deadline: float
    offset: Future[int]


class MetadataWriter:
    """See the module."""

    def __init__(self, cluster: MetadataCache, peers: MetadataPeers, clock: Clock, next_producer_id: NextProducerId) -> None:
        """`next_producer_id` allocates one, and raises PeerUnavailable if there is none now."""
        self._cluster = cluster
        self._peers = peers
        self._clock = clock
        self._next_producer_id = next_producer_id
        self._partitions: dict[int, _PartitionWriter] = {}
        self.refusals = Refusals(logger, "written")

    async def write(self, index: int, value: bytes, deadline: float) -> int:
        """Writes a record, and returns its offset. `deadline` is a time of the loop's clock. Raises MetadataWriteFailed."""
        partition = self._partitions.get(index)
        if partition is None:
            partition = self._partitions[index] = _PartitionWriter(self, index)
        offset: Future[int] = asyncio.get_running_loop().create_future()
        partition.put(_Write(value, deadline, offset))
        return await offset

    async def close(self) -> None:
        """Gives up what is not written."""
        for partition in list(self._partitions.values()):
            await partition.close()

    def leader_of(self, index: int) -> int:
        """Returns the leader of a metadata partition; raises PeerUnavailable if there is none."""
        leader, _ = self._cluster.leader_of(METADATA_TOPIC, index)
        if leader not in self._cluster.brokers:
            raise PeerUnavailable("it has no leader")
        return leader

    def peer_to(self, leader: int) -> Peer:
        """Makes a connection to a leader."""
        return self._peers.to(leader)

    async def producer_id(self) -> int:
        """Allocates a producer id. Raises PeerUnavailable."""
        return await self._next_producer_id()

    def now_ms(self) -> int:
        """Returns the time of a record."""
        return self._clock.now_ms()

    def forget(self, index: int) -> None:
        """The task of a partition has ended."""
        self._partitions.pop(index, None)


class _PartitionWriter:
    """Writes to one metadata partition."""

    def __init__(self, owner: MetadataWriter, index: int) -> None:
        self._owner = owner
        self._index = index
        self._name = f"{METADATA_TOPIC}-{index}"
        self._waiting: deque[_Write] = deque()
        self._more = asyncio.Event()
        self._peer: Peer | None = None
        self._peer_id = -1
        self._producer_id = NO_PRODUCER_ID
        self._sequence = 0
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"remote-log-metadata-writer-{index}")

    def put(self, write: _Write) -> None:
        """Writes a record after those that wait already."""
        self._waiting.append(write)
        self._more.set()

    async def close(self) -> None:
        """Ends the task, and fails what waits."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while await self._has_more():
                write = self._waiting[0]
                try:
                    offset = await self._publish(write)
                except MetadataWriteFailed as failed:
                    if not write.offset.done():
                        write.offset.set_exception(failed)
                except Exception as error:  # a fault of this broker: the copy would wait for its record
                    logger.exception("%s cannot be written", self._name)
                    self._producer_id = NO_PRODUCER_ID
                    if not write.offset.done():
                        write.offset.set_exception(MetadataWriteFailed(f"{self._name}: {error!r}"))
                else:
                    if not write.offset.done():
                        write.offset.set_result(offset)
                self._waiting.popleft()
        finally:
            self._owner.forget(self._index)
            for write in self._waiting:
                if not write.offset.done():
                    write.offset.set_exception(MetadataWriteFailed(f"{self._name}: this broker stops"))
            await self._disconnect()

    async def _has_more(self) -> bool:
        """Waits for a record; False after a time without any."""
        while not self._waiting:
            self._more.clear()
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._more.wait()
            except TimeoutError:
                if not self._waiting:
                    return False
        return True

    async def _publish(self, write: _Write) -> int:
        loop = asyncio.get_running_loop()
        reason = "the time was over before the first attempt"
        while loop.time() < write.deadline and not write.offset.done():
            try:
                code, offset, message = await self._attempt_while_wanted(write)
            except (PeerUnavailable, ProtocolError, OSError) as error:
                reason = str(error)
                await self._disconnect()
                if write.offset.done():
                    break
            else:
                if code is ErrorCode.NONE:
                    self._sequence = increment_sequence(self._sequence, 1)
                    self._owner.refusals.clear(self._name)
                    return offset
                reason = f"{code.name}{': ' + message if message else ''}"
                if code in _STARTS_ANEW:
                    self._producer_id = NO_PRODUCER_ID
                if code in _FINAL:
                    break
            self._owner.refusals.report(self._name, reason)
            await asyncio.sleep(max(0.0, min(BACKOFF_SECONDS, write.deadline - loop.time())))
        self._producer_id = NO_PRODUCER_ID  # whether the last batch was written is not known
        raise MetadataWriteFailed(f"{self._name}: {reason}")

    async def _attempt_while_wanted(self, write: _Write) -> tuple[ErrorCode, int, str | None]:
        """Makes an attempt, which ends when the caller leaves: a former leader publishes nothing, however long the connecting takes."""
        attempt = asyncio.ensure_future(self._attempt(write))
        try:
            await asyncio.wait((attempt, write.offset), return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_given_up = attempt.cancel()
        if is_given_up:
            raise PeerUnavailable("its caller has left")
        return attempt.result()

    async def _attempt(self, write: _Write) -> tuple[ErrorCode, int, str | None]:
        """Sends the batch once. Returns the answer: error, offset, message."""
        if self._producer_id == NO_PRODUCER_ID:
            self._producer_id = await self._owner.producer_id()
            self._sequence = 0
        peer = await self._connected()
        timeout_ms = max(1, min(REQUEST_TIMEOUT_MS, int((write.deadline - asyncio.get_running_loop().time()) * 1000)))
        record = Record(0, self._owner.now_ms(), None, write.value)
        batch = build_batch([record], producer_id=self._producer_id, producer_epoch=0, base_sequence=self._sequence)
        data = PartitionProduceData(index=self._index, records=bytes(batch))
        topics = [TopicProduceData(name=METADATA_TOPIC, partition_data=[data])]
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=topics)
        response = await peer.request(ApiKey.PRODUCE, PRODUCE_VERSION, request, timeout_ms=timeout_ms)
        assert isinstance(response, ProduceResponse)
        for topic in response.responses:
            for answer in topic.partition_responses:
                return ErrorCode.of(answer.error_code), answer.base_offset, answer.error_message
        return ErrorCode.UNKNOWN_SERVER_ERROR, -1, "the answer has no partition"

    async def _connected(self) -> Peer:
        """A connection to the leader. Raises PeerUnavailable."""
        leader = self._owner.leader_of(self._index)
        if self._peer is None or self._peer_id != leader:
            await self._disconnect()
            self._peer, self._peer_id = self._owner.peer_to(leader), leader
        return self._peer

    async def _disconnect(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()
