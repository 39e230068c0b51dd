"""Sends proposed ISRs to the controller: the `IsrProposals` of a broker in a cluster (KIP-497, AlterPartition, api 56).

One request is in flight at a time. Proposals that arrive meanwhile go with the next one, all together. A proposal waits until it is
decided. All undecided proposals are sent again if the controller cannot be reached, has moved, or answers with an error for the whole
request. The first pause is 50 ms; pauses double up to 400 ms. A proposal that is missing in an answer is sent again, too. A decision about
a partition, good or bad, ends the proposal before the leader gets it, so that the leader may propose again at once.

`ask` finds the active controller and sends it a request in the given version. It may take any time, and raises PeerUnavailable after its
last attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.pauses import pause
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.isr_proposals import MAY_BE_OUT_OF_DATE, NOT_CARRIED_OUT, IsrDecision, IsrProposal
from ottla.replication.ports.peer import PeerUnavailable

logger = logging.getLogger(__name__)

LATEST_VERSION = 3
LATEST_VERSION_WITH_NAMES = 1
FIRST_VERSION_WITH_EPOCHS = 3
RETRY_MS = 50
MAX_RETRY_MS = 400
UNKNOWN_BROKER_EPOCH = -1
"""The epoch of every ISR member. In ZooKeeper mode brokers do not know each other's epochs, and the controller ignores them."""

FINAL = {ErrorCode.NONE} | NOT_CARRIED_OUT | MAY_BE_OUT_OF_DATE
"""Answers after which a leader does not propose again. After any other answer it does, and must wait a little."""

RECOVERY_STATES = (0, 1)

Ask = Callable[[ApiKey, int, Message], Awaitable[Message]]
OnDecided = Callable[[IsrDecision], None]
_Sent = tuple[IsrProposal, OnDecided]


class AlterPartition:
    """The proposals of this broker. `requests` counts the requests sent, for metrics and tests."""

    __slots__ = (
        "_ask",
        "_broker_epoch",
        "_broker_id",
        "_proposed",
        "_retry_ms",
        "_sleep",
        "_task",
        "_trouble",
        "_uses_topic_ids",
        "requests",
    )

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        ask: Ask,
        *,
        uses_topic_ids: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`uses_topic_ids` is for inter.broker.protocol.version 2.8 or later."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask
        self._uses_topic_ids = uses_topic_ids
        self._sleep = sleep
        self._proposed: dict[TopicPartition, _Sent] = {}
        self._task: asyncio.Task[None] | None = None
        self._trouble: str | None = None
        """Reason of the last failure, which is logged once, not at every attempt."""
        self._retry_ms = RETRY_MS
        self.requests = 0

    @property
    def undecided(self) -> int:
        """Number of proposals without a decision."""
        return len(self._proposed)

    def propose(self, proposal: IsrProposal, on_decided: OnDecided) -> bool:
        """See IsrProposals."""
        if proposal.topic_partition in self._proposed:
            return False
        self._proposed[proposal.topic_partition] = (proposal, on_decided)
        if self._task is None:
            # It starts in the next turn of the loop, so that other proposals of this turn go with the first request.
            self._task = asyncio.get_running_loop().create_task(self._send_all())
        return True

    async def close(self) -> None:
        """Stop sending requests. Undecided proposals are dropped."""
        self._proposed.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_all(self) -> None:
        try:
            while self._proposed:
                if not await self._try_to_send(list(self._proposed.values())):
                    retry_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, MAX_RETRY_MS)
                    await self._sleep(retry_ms / 1000)
        finally:
            self._task = None

    async def _try_to_send(self, sent: Sequence[_Sent]) -> bool:
        try:
            return await self._send(sent)
        except Exception:
            # A fault of this broker. Without an answer the ISRs would stay unchanged forever, so the request is repeated.
            logger.exception("AlterPartition of %d partitions failed; asking again", len(sent))
            return False

    async def _send(self, sent: Sequence[_Sent]) -> bool:
        """Send one request and apply its answer. Returns False when the next request has to wait."""
        version = self._version([proposal for proposal, _ in sent])
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        await put_proposals(request, [proposal for proposal, _ in sent], version)
        self.requests += 1
        try:
            response = await self._ask(ApiKey.ALTER_PARTITION, version, request)
        except PeerUnavailable as error:
            self._in_trouble(logging.INFO, f"the controller cannot be reached ({error})")
            return False
        assert isinstance(response, AlterPartitionResponse)
        error_code = ErrorCode.of(response.error_code)
        if error_code != ErrorCode.NONE:
            self._refused(error_code, request.broker_epoch)
            return False
        if self._trouble is not None:
            logger.info("AlterPartition: the controller answers again")
            self._trouble = None
        decided = await _decided(response, sent, version)
        at_once = True
        for proposal, on_decided in sent:
            at_once &= self._decide(proposal, on_decided, decided.get(proposal.topic_partition))
            await pause()
        if at_once:
            self._retry_ms = RETRY_MS
        return at_once

    def _decide(self, proposal: IsrProposal, on_decided: OnDecided, answer: AlterPartitionResponsePartitionData | None) -> bool:
        """Apply the decision. Returns False when the leader has to wait before it proposes again."""
        if answer is None:
            logger.warning("%s: the controller's answer does not mention its proposal; asking again", proposal.topic_partition)
            return False
        known = self._proposed.get(proposal.topic_partition)
        if known is None or known[0] is not proposal:
            return True  # it was closed meanwhile
        del self._proposed[proposal.topic_partition]
        decision = _decision(answer, proposal)
        try:
            on_decided(decision)
        except Exception:
            # A fault of this broker, in a task without a caller. The other partitions get their decisions nevertheless.
            logger.exception("%s: cannot apply the decision of the controller (%s)", proposal.topic_partition, decision)
        return decision.error_code in FINAL

    def _version(self, proposals: Sequence[IsrProposal]) -> int:
        has_ids = self._uses_topic_ids and all(proposal.topic_id != ZERO_UUID for proposal in proposals)
        return LATEST_VERSION if has_ids else LATEST_VERSION_WITH_NAMES

    def _refused(self, error_code: ErrorCode, broker_epoch: int) -> None:
        if error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._in_trouble(logging.WARNING, f"the controller knows a later broker epoch than {broker_epoch}")
        elif error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._in_trouble(
                logging.ERROR,
                "this broker is not authorized to ask the controller; give its principal ClusterAction on the cluster",
            )
        elif error_code == ErrorCode.NOT_CONTROLLER:
            self._in_trouble(logging.INFO, "the controller has moved")
        else:
            self._in_trouble(logging.WARNING, f"the controller refused with {error_code.name}")

    def _in_trouble(self, level: int, why: str) -> None:
        if why != self._trouble:
            self._trouble = why
            logger.log(level, "AlterPartition of %d partitions: %s; asking again until it is decided", len(self._proposed), why)


async def put_proposals(request: AlterPartitionRequest, proposals: Sequence[IsrProposal], version: int) -> None:
    """Put proposals into a request, in the form of `version`."""
    topics = {(topic.topic_name, topic.topic_id): topic for topic in request.topics}
    # A deleted topic may have left proposals when another topic has its name already.
    for proposal in proposals:
        name = proposal.topic_partition.topic
        topic = topics.get((name, proposal.topic_id))
        if topic is None:
            topic = topics[name, proposal.topic_id] = AlterPartitionRequestTopicData(topic_name=name, topic_id=proposal.topic_id)
            request.topics.append(topic)
        asked = AlterPartitionRequestPartitionData(
            partition_index=proposal.topic_partition.partition,
            leader_epoch=proposal.leader_epoch,
            leader_recovery_state=proposal.leader_recovery_state,
            partition_epoch=proposal.partition_epoch,
        )
        if version >= FIRST_VERSION_WITH_EPOCHS:
            asked.new_isr_with_epochs = [BrokerState(broker_id=member, broker_epoch=UNKNOWN_BROKER_EPOCH) for member in proposal.isr]
        else:
            asked.new_isr = list(proposal.isr)
        topic.partitions.append(asked)
        await pause()


async def _decided(
    response: AlterPartitionResponse, sent: Sequence[_Sent], version: int
) -> dict[TopicPartition, AlterPartitionResponsePartitionData]:
    """The answers by partition. Topics are found by the ids that were sent, because the metadata may have changed meanwhile."""
    names = {proposal.topic_id: proposal.topic_partition.topic for proposal, _ in sent}
    decided = {}
    for topic in response.topics:
        name = topic.topic_name if version <= LATEST_VERSION_WITH_NAMES else names.get(topic.topic_id)
        if name is None:
            logger.error("AlterPartition: the answer has a topic id %s that was not in the request; ignored", topic.topic_id.hex())
            continue
        for partition in topic.partitions:
            decided[TopicPartition(name, partition.partition_index)] = partition
            await pause()
    return decided


def _decision(answer: AlterPartitionResponsePartitionData, proposal: IsrProposal) -> IsrDecision:
    error_code = ErrorCode.of(answer.error_code)
    if error_code == ErrorCode.NONE and answer.leader_recovery_state not in RECOVERY_STATES:
        logger.error("%s: the controller answers the leader recovery state %d", proposal.topic_partition, answer.leader_recovery_state)
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    if error_code != ErrorCode.NONE:
        return IsrDecision(
            error_code, -1, proposal.leader_epoch, proposal.isr, proposal.leader_recovery_state, proposal.partition_epoch
        )  # fmt: skip
    return IsrDecision(
        error_code, answer.leader_id, answer.leader_epoch, tuple(answer.isr), answer.leader_recovery_state, answer.partition_epoch
    )
