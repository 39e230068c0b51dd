"""Writes markers to the partitions of finished transactions, by requests to their leaders. Kafka's TransactionMarkerChannelManager.

A broker that leads some of the partitions gets one WriteTxnMarkers at a time, with all markers that are due for it, up to a number of
partitions that bounds a turn of the event loop. A marker is sent until the leader of its partition has it. After a failed connection or a
retriable error the leader is looked up again. Partitions without a leader are looked up again after a pause.

Markers are queued after the answers of the current turn are sent: the producers read these meanwhile. This broker writes the markers of its
own partitions without a request, and waits for each of them separately.

A partition that is missing in this broker's metadata may be new, so the metadata store is read. If the partition does not exist, it needs
no marker.

After two kinds of refusal Apache Kafka sends no more markers of a transaction, and its id waits for a new coordinator. Here the id
continues. A partition with a newer producer epoch needs no marker of the older one. A newer coordinator epoch belongs to another broker, of
which this broker learns soon, or this broker itself had a newer epoch when the answer arrived.

Invariant: a transaction is in `_pending` from its outcome to its last marker, unless its partition of `__transaction_state` is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, final

from ottla.controller.errors import StoreError
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.coordination.transactions.metadata import TransactionMetadata, TransitMetadata
from ottla.coordination.transactions.partitions import NO_PARTITIONS, Partitions, difference, in_parts, of_pairs, union
from ottla.pauses import begin, pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.senders import Senders
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 100
"""Pause before partitions without a leader, or with a retriable error, are tried again, ms; an election takes about as long."""

PUT_OFF_PER_TURN: Final = 200
"""Transactions with such partitions that are processed in a turn of the event loop: 1 ms."""

LEAST_PAUSE_MS: Final = 10
"""Pause between two such turns when there are many transactions, ms; so they take a tenth of the processor at most."""

PARTITIONS_PER_REQUEST: Final = 2_000
"""Partitions of transactions in one request to a broker; their leaders are looked up together, which takes about a millisecond."""

MARKER_WEIGHT: Final = 4
"""A marker takes as long to build and to encode as so many partitions in it."""

WRITE_MARKERS_VERSION: Final = 2
"""Of WriteTxnMarkers between brokers; a broker that does not know the version gets an older one."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""The leader is another broker, or may accept the marker at the next attempt."""

UNANSWERED: Final = ErrorCode.UNKNOWN_SERVER_ERROR
"""Replaces an error code that is missing in a broker's answer."""

UNMARKABLE: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The partition will never accept a marker of this producer epoch. Either it cannot contain markers, and so has no transactional records.
Or it has records of a newer epoch, which the coordinator lost in an unclean election. Then the transaction of the older epoch has ended
before, or ends with the newer one.
"""

WriteMarkers: TypeAlias = Callable[[int, WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
"""Requests a broker by its id, possibly this one, to write markers. Raises OSError; the markers may have been written."""

OnMarked: TypeAlias = Callable[[Mapping[tuple[str, int], int]], None]
"""Called once with the error code of each partition, when all results are known."""


class Marker(NamedTuple):
    """The fields of a marker."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    """The version of the client; in version 2 the epoch is above that of the transaction (KIP-1228)."""


WriteHere: TypeAlias = Callable[[Marker, Iterable[TopicPartition], str, OnMarked], Coroutine[Any, Any, None]]
"""Writes a marker to partitions of this broker. The text names the coordinator, for the log."""

PartitionsOf: TypeAlias = Callable[[str], Awaitable[Collection[int]]]
"""Asks the metadata store for the partitions of a topic. Raises StoreError, MalformedZNode."""


@final
class Marked:
    """A transaction whose markers are being written. `completion` is stored after the last one."""

    __slots__ = ("completion", "is_commit", "refusals", "txn")

    def __init__(self, txn: TransactionMetadata, is_commit: bool, completion: TransitMetadata) -> None:
        self.txn = txn
        self.is_commit = is_commit
        self.completion = completion
        self.refusals: dict[tuple[str, int], ErrorCode] = {}
        """The last error code of a partition, so that each is logged once."""


class Due(NamedTuple):
    """Markers of one transaction for one broker."""

    marked: Marked
    partitions: Partitions


class DueMarkers(NamedTuple):
    """Send the due markers to a broker."""


FLUSH: Final = DueMarkers()


@final
class TransactionMarkers:
    """See the module. Owned by the coordinator.

    `requests` and `responses` count those to and from other brokers, and one of each for the markers that this broker writes itself in a
    turn.
    """

    __slots__ = (
        "_begun",
        "_cluster",
        "_coordinator_epoch",
        "_denied",
        "_due",
        "_flushing",
        "_listener",
        "_look_again",
        "_looking",
        "_on_written",
        "_partitions_of",
        "_pending",
        "_senders",
        "_timing_wheel",
        "_unread",
        "_unrouted",
        "_write_markers",
        "here",
        "requests",
        "responses",
    )

    def __init__(
        self,
        cluster: MetadataCache,
        listener: str,
        write_markers: WriteMarkers,
        partitions_of: PartitionsOf,
        coordinator_epoch: Callable[[TransactionMetadata], int | None],
        timing_wheel: TimingWheel,
        monotonic: Callable[[], float],
        on_written: Callable[[TransactionMetadata, TransitMetadata], None],
        here: tuple[int, WriteHere] | None = None,
    ) -> None:
        """`coordinator_epoch` returns the current epoch, or None if this broker does not coordinate the id any more."""
        self._cluster = cluster
        self._listener = listener
        self._write_markers = write_markers
        self._partitions_of = partitions_of
        self._coordinator_epoch = coordinator_epoch
        self._timing_wheel = timing_wheel
        self._on_written = on_written
        self._begun: deque[Marked] = deque()
        """Transactions whose markers are not queued yet."""
        self._pending: dict[TransactionMetadata, Marked] = {}
        self._due: dict[int, deque[Due]] = {}
        """By broker, the markers that are not sent yet; no queue is empty."""
        self._denied: set[int] = set()
        """Brokers that refuse this broker's markers with CLUSTER_AUTHORIZATION_FAILED, which is logged once for each."""
        self._flushing: set[int] = set()
        """Brokers whose sender has a FLUSH, in its queue or in flight."""
        self._unrouted: dict[Marked, Partitions] = {}
        """Markers that no broker can be sent now."""
        self._unread: dict[str, str] = {}
        """Topics whose partitions could not be read from the metadata store, with the logged reason."""
        self._look_again: TimerTask | None = None
        self._looking: asyncio.Task[None] | None = None
        self.here = here
        """The id of this broker, and the writer for its own partitions. Without it this broker gets requests like the others."""
        self.requests = 0
        self.responses = 0
        self._senders: Senders[int, DueMarkers, None] = Senders("transaction markers", self._channel_to, monotonic)

    @property
    def transactions(self) -> int:
        """Transactions that still lack markers."""
        return len(self._pending)

    @property
    def unknown_destination_queue_size(self) -> int:
        """Transactions with partitions that no broker is known to lead (UnknownDestinationQueueSize)."""
        return len(self._unrouted)

    @property
    def queue_sizes(self) -> dict[int, int]:
        """Requests that wait for the one in flight, by broker."""
        return self._senders.queue_sizes

    def write(self, txn: TransactionMetadata, is_commit: bool, completion: TransitMetadata) -> None:
        """Write a marker to each partition of the transaction, and call `on_written` after the last one."""
        marked = self._pending[txn] = Marked(txn, is_commit, completion)
        if not txn.partitions:
            self._maybe_complete(marked)
            return
        self._begun.append(marked)
        if len(self._begun) == 1:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._begin)  # answers of this turn are written in the next one

    def _begin(self) -> None:
        begin(self._route_begun())

    async def _route_begun(self) -> None:
        """Queue the markers of transactions whose outcome was stored before this turn of the event loop."""
        begun = self._begun
        try:
            for number in range(len(begun)):
                if number:
                    await pause()
                marked = begun.popleft()
                if self._is_pending(marked):
                    self._route(marked, marked.txn.partitions)
        finally:
            if begun:
                asyncio.get_running_loop().call_soon(self._begin)

    def forget_lost(self) -> None:
        """Another coordinator finishes the transactions that this broker does not coordinate any more."""
        for txn in [txn for txn in self._pending if self._coordinator_epoch(txn) is None]:
            del self._pending[txn]

    async def close(self) -> None:
        """Stop sending."""
        if self._look_again is not None:
            self._look_again.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._senders.remove_all()
        self._pending.clear()

    # -- to which broker ---------------------------------------------------------------------------------------------------

    def _route(self, marked: Marked, partitions: Partitions) -> None:
        """Queue the markers of these partitions for their leaders, with pauses."""
        begin(self._route_parts(marked, partitions))

    async def _route_parts(self, marked: Marked, partitions: Partitions) -> None:
        for number, part in enumerate(in_parts(partitions, PARTITIONS_PER_REQUEST)):
            if number:  # most transactions have one part, and need no turn of the loop to end
                await pause()
                if not self._is_pending(marked):
                    break
            self._route_part(marked, part)

    def _route_part(self, marked: Marked, partitions: Partitions) -> None:
        by_leader: dict[int | None, dict[str, list[int]]] = {}
        cluster = self._cluster
        for topic, indexes in partitions.items():
            image = cluster.topics.get(topic)
            for index in indexes:
                state = None if image is None else image.partitions.get(index)
                leader = None if state is None or cluster.endpoint(state.leader, self._listener) is None else state.leader
                by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
        for leader, topics in by_leader.items():
            some = of_pairs(topics.items())
            if leader is None:
                self._put_off(marked, some)
            else:
                self._queue(leader, marked, some)

    def _queue(self, broker_id: int, marked: Marked, partitions: Partitions) -> None:
        self._due.setdefault(broker_id, deque()).append(Due(marked, partitions))
        self._have_flushed(broker_id)

    def _have_flushed(self, broker_id: int) -> None:
        if broker_id in self._flushing:
            return
        self._flushing.add(broker_id)
        if self.here is not None and broker_id == self.here[0]:
            asyncio.get_running_loop().call_soon(self._begin_here, *self.here)
        else:
            self._senders.add(broker_id, broker_id)
            self._senders.send(broker_id, FLUSH, lambda _: None)

    def _put_off(self, marked: Marked, partitions: Partitions) -> None:
        """Look for the leaders of these partitions later."""
        self._unrouted[marked] = union(self._unrouted.get(marked, {}), partitions)
        if self._look_again is None:
            self._look_again = self._timing_wheel.add(RETRY_BACKOFF_MS, self._on_look_again)

    def _on_look_again(self) -> None:
        count = len(self._unrouted)
        unrouted = dict(islice(self._unrouted.items(), PUT_OFF_PER_TURN))
        for marked in unrouted:
            del self._unrouted[marked]
        if self._unrouted:
            pause_ms = max(LEAST_PAUSE_MS, RETRY_BACKOFF_MS * PUT_OFF_PER_TURN // count)
            self._look_again = self._timing_wheel.add(pause_ms, self._on_look_again)
        else:
            self._look_again = None
        unknown = {topic for partitions in unrouted.values() for topic, indexes in partitions.items() if not self._has(topic, indexes)}
        for marked, partitions in unrouted.items():
            if self._is_pending(marked):
                self._route(marked, partitions)
        if unknown and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._drop_deleted(unknown), name="deleted-topics-of-transactions")

    def _has(self, topic: str, indexes: frozenset[int]) -> bool:
        """Whether this broker's metadata has all these partitions."""
        image = self._cluster.topics.get(topic)
        return image is not None and indexes <= image.partitions.keys()

    async def _drop_deleted(self, topics: Iterable[str]) -> None:
        """Continue without partitions that do not exist any more. A topic may have been created again, with fewer partitions."""
        for topic in topics:
            try:
                existing = await self._partitions_of(topic)
            except Exception as error:
                self._report_unread(topic, error)
                continue
            self._unread.pop(topic, None)
            for marked, partitions in list(self._unrouted.items()):
                gone = partitions.get(topic, frozenset()).difference(existing)
                if gone and self._is_pending(marked):
                    logger.info("%s: %d partitions of topic %s were deleted and get no markers", marked.txn, len(gone), topic)
                    deleted = {topic: gone}
                    left = difference(partitions, deleted)
                    if left:
                        self._unrouted[marked] = left
                    else:
                        del self._unrouted[marked]
                    marked.txn.remove_partitions(deleted)
                    self._maybe_complete(marked)

    def _report_unread(self, topic: str, error: Exception) -> None:
        """Log once for each reason that the partitions of a topic are not known: they are looked for ten times a second."""
        reason = f"{type(error).__name__}: {error}"
        if self._unread.get(topic) != reason:
            self._unread[topic] = reason
            unforeseen = None if isinstance(error, StoreError | MalformedZNode) else error
            logger.warning(
                "the partitions of topic %s cannot be read from the metadata store, so their markers wait: %s",
                topic,
                error,
                exc_info=unforeseen,
            )

    def _is_pending(self, marked: Marked) -> bool:
        return self._pending.get(marked.txn) is marked

    # -- this broker -------------------------------------------------------------------------------------------------------

    def _begin_here(self, broker_id: int, write: WriteHere) -> None:
        self.requests += 1
        self.responses += 1
        begin(self._write_here(broker_id, write))

    async def _write_here(self, broker_id: int, write: WriteHere) -> None:
        for marked, (partitions, epoch) in self._take_due(broker_id).items():
            txn = marked.txn
            marker = Marker(txn.producer_id, txn.producer_epoch, marked.is_commit, epoch, txn.client_version)
            named = (TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes)
            try:
                await write(marker, named, "this broker", partial(self._on_marked_here, marked, partitions, broker_id))
            except Exception:
                logger.exception("%s: its markers cannot be written here; they are written again", txn)
                if self._is_pending(marked):
                    self._put_off(marked, partitions)
        self._flushing.discard(broker_id)
        if broker_id in self._due:
            self._have_flushed(broker_id)

    def _on_marked_here(self, marked: Marked, partitions: Partitions, broker_id: int, codes: Mapping[tuple[str, int], int]) -> None:
        if self._is_pending(marked):
            self._take(marked, partitions, codes, broker_id)

    # -- one broker --------------------------------------------------------------------------------------------------------

    def _channel_to(self, broker_id: int) -> _Channel:
        return _Channel(self, broker_id)

    async def flush(self, broker_id: int) -> None:
        """Send some of the due markers to a broker. Raises OSError, if some of the markers are still due for the same broker."""
        await self._flush(broker_id)
        self._flushing.discard(broker_id)
        if broker_id in self._due:
            self._have_flushed(broker_id)

    async def _flush(self, broker_id: int) -> None:
        due = self._take_due(broker_id)
        markers = [_marker(marked, partitions, epoch) for marked, (partitions, epoch) in due.items()]
        if not markers:
            return
        self.requests += 1
        try:
            response = await self._write_markers(broker_id, WriteTxnMarkersRequest(markers=markers))
        except OSError:
            for marked, (partitions, _) in due.items():
                if self._is_pending(marked):
                    self._route(marked, partitions)
            if broker_id in self._due:
                raise
            return
        except Exception:
            logger.exception("broker %d: the request for %d markers failed; they are sent again", broker_id, len(due))
            for marked, (partitions, _) in due.items():
                if self._is_pending(marked):
                    self._put_off(marked, partitions)
            return
        self.responses += 1
        left = dict(due)
        try:
            results = {result.producer_id: result for result in response.markers}
            for marked, (partitions, _) in due.items():
                if self._is_pending(marked):
                    self._take(marked, partitions, _codes(results.get(marked.txn.producer_id)), broker_id)
                del left[marked]
                await pause()
        except Exception:
            logger.exception("the answer of broker %d about %d markers could not be applied; they are sent again", broker_id, len(left))
            for marked, (partitions, _) in left.items():
                if self._is_pending(marked):
                    self._put_off(marked, partitions)

    def _take_due(self, broker_id: int) -> dict[Marked, tuple[Partitions, int]]:
        """The partitions of transactions for one request, and the coordinator epoch of each transaction."""
        waiting = self._due.get(broker_id)
        taken: dict[Marked, tuple[Partitions, int]] = {}
        left = PARTITIONS_PER_REQUEST
        while waiting and left > 0:
            marked, partitions = waiting.popleft()
            epoch = self._coordinator_epoch(marked.txn)
            if epoch is not None and self._is_pending(marked):
                former, _ = taken.get(marked, (NO_PARTITIONS, epoch))
                taken[marked] = union(former, partitions), epoch
                left -= MARKER_WEIGHT + sum(map(len, partitions.values()))
        if not waiting:
            self._due.pop(broker_id, None)
        return taken

    def _take(self, marked: Marked, partitions: Partitions, codes: Mapping[tuple[str, int], int], broker_id: int) -> None:
        """Process the results of the markers of a transaction on one broker."""
        txn = marked.txn
        again: dict[str, list[int]] = {}
        for topic, indexes in partitions.items():
            for index in indexes:
                code = codes.get((topic, index), UNANSWERED)
                if code:
                    self._on_refused(marked, topic, index, ErrorCode.of(code), broker_id)
                    if code not in UNMARKABLE:
                        again.setdefault(topic, []).append(index)
                elif self._denied:
                    self._denied.discard(broker_id)
        if again:
            left = of_pairs(again.items())
            txn.remove_partitions(difference(partitions, left))
            self._put_off(marked, left)
        else:
            txn.remove_partitions(partitions)
        self._maybe_complete(marked)

    def _on_refused(self, marked: Marked, topic: str, index: int, code: ErrorCode, broker_id: int) -> None:
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            if broker_id not in self._denied:
                self._denied.add(broker_id)
                logger.error(
                    "broker %d refuses markers of transactions with %s; give the principal of this broker ClusterAction on the cluster, or "
                    "name it in super.users; the markers are sent again", broker_id, code.name,
                )  # fmt: skip
        elif marked.refusals.get((topic, index)) != code:
            marked.refusals[topic, index] = code
            level = logging.INFO if code in RETRIABLE else logging.WARNING
            logger.log(level, "%s: broker %d did not write its marker to %s-%d (%s)", marked.txn, broker_id, topic, index, code.name)

    def _maybe_complete(self, marked: Marked) -> None:
        if not marked.txn.partitions and self._is_pending(marked):
            del self._pending[marked.txn]
            self._on_written(marked.txn, marked.completion)


@final
class _Channel:
    """The channel to one broker. Implements `ottla.replication.ports.senders.Channel`."""

    __slots__ = ("_broker_id", "_markers")

    def __init__(self, markers: TransactionMarkers, broker_id: int) -> None:
        self._markers = markers
        self._broker_id = broker_id

    async def send(self, request: DueMarkers) -> None:
        """See Channel."""
        await self._markers.flush(self._broker_id)

    async def close(self) -> None:
        """See Channel. Connections belong to `WriteMarkers`."""


def _marker(marked: Marked, partitions: Partitions, coordinator_epoch: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marked.txn.producer_id,
        producer_epoch=marked.txn.producer_epoch,
        transaction_result=marked.is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=sorted(indexes)) for topic, indexes in partitions.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=marked.txn.client_version,
    )


def _codes(result: WritableTxnMarkerResult | None) -> Mapping[tuple[str, int], int]:
    if result is None:
        return {}
    return {(topic.name, each.partition_index): each.error_code for topic in result.topics for each in topic.partitions}
