"""Handles AddPartitionsToTxn (api 24), versions 0-5.

One transaction of a client (KIP-98), from 4 on many transactions of brokers (KIP-890). PRODUCER_FENCED from 2 (KIP-588).

A request of a broker adds the partitions to which transactions of version 2 write, or only verifies that partitions are in their
transactions. The answer is sent when every transaction of the request has its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import final

from ottla.broker.handlers.transactions.end_txn import known_error
from ottla.broker.network.request_channel import Answer
from ottla.broker.request.context import DelayedAnswer, RequestContext
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.coordination.transactions.metadata import VERSION_0, VERSION_2, ProducerIdAndEpoch
from ottla.coordination.transactions.partitions import Partitions
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.schema.message import Message

FIRST_VERSION_FOR_BROKERS = 4

Codes = Callable[[str, int], ErrorCode]
"""(topic, index) -> error code."""


async def handle_add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> Message | Answer:
    """Add partitions to transactions, or verify them."""
    if context.api_version < FIRST_VERSION_FOR_BROKERS:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    elif not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    else:
        transactions = request.transactions
    results = _Results(transactions, context)
    for place, transaction in enumerate(transactions):
        await _serve(place, transaction, results, context)
        await pause()
    return results.answer()


@final
class _Results:
    """The results of the transactions of one request; the last one completes the answer."""

    __slots__ = ("_answer", "_codes", "_left", "_transactions", "_version")

    def __init__(self, transactions: list[AddPartitionsToTxnTransaction], context: RequestContext) -> None:
        self._transactions = transactions
        self._codes: list[Codes] = context.scratch([partial(_same, ErrorCode.UNKNOWN_SERVER_ERROR)] * len(transactions))
        self._left = len(transactions)
        self._version = context.api_version
        self._answer = DelayedAnswer(context)
        if not transactions:
            self._answer.complete(AddPartitionsToTxnResponse())

    def answer(self) -> Message | Answer:
        return self._answer.answer()

    def put(self, place: int, codes: Codes) -> None:
        self._codes[place] = codes
        self._left -= 1
        if not self._left:
            self._answer.complete_by(self._response())

    def put_one(self, place: int, error: ErrorCode) -> None:
        self.put(place, partial(_same, known_error(error, self._version)))

    async def _response(self) -> Message:
        response = AddPartitionsToTxnResponse()
        for transaction, codes in zip(self._transactions, self._codes, strict=True):
            topics = []
            for topic in transaction.topics:
                name = topic.name
                result = AddPartitionsToTxnTopicResult(name=name)
                for index in topic.partitions:
                    code = codes(name, index)
                    result.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
                    await pause()
                topics.append(result)
                await pause()
            await pause()
            if self._version < FIRST_VERSION_FOR_BROKERS:
                response.results_by_topic_v3_and_below = topics
            else:
                response.results_by_transaction.append(
                    AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
                )
        return response


async def _serve(place: int, transaction: AddPartitionsToTxnTransaction, results: _Results, context: RequestContext) -> None:
    transactional_id = transaction.transactional_id
    by_broker = context.api_version >= FIRST_VERSION_FOR_BROKERS
    if not by_broker and not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        results.put_one(place, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    partitions, refused = await _check(transaction, context, by_broker=by_broker)
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    transactions = context.broker.coordinators.transactions
    if refused:
        # One partition that may not be added keeps out all others.
        results.put(place, partial(_refused, context.scratch(refused)))
    elif not transaction.verify_only:
        # Requests of a broker do not wait here: the answer would keep those of other transactions. The broker repeats its question.
        client_version = VERSION_2 if by_broker else VERSION_0
        reply = partial(results.put_one, place)
        transactions.add_partitions(transactional_id, producer, partitions, client_version, reply, may_wait=not by_broker)
    else:
        error, verified = transactions.verify_partitions(transactional_id, producer)
        results.put(place, partial(_same, error) if error else partial(_verified, verified))


# In compiled code a function within `_serve` would refer to all of its variables, and so to the results, which refer to the function. Only
# a pass of the garbage collector over all objects would free them.


def _same(error: ErrorCode, _topic: str, _index: int) -> ErrorCode:
    return error


def _refused(refused: Mapping[tuple[str, int], ErrorCode], topic: str, index: int) -> ErrorCode:
    return refused.get((topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)


def _verified(verified: Partitions, topic: str, index: int) -> ErrorCode:
    return ErrorCode.NONE if index in verified.get(topic, ()) else ErrorCode.TRANSACTION_ABORTABLE


async def _check(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext, *, by_broker: bool
) -> tuple[Partitions, dict[tuple[str, int], ErrorCode]]:
    """The partitions, and those among them that do not exist or may not be written to."""
    cluster = context.broker.metadata
    named: dict[str, set[int]] = context.scratch({})
    refused: dict[tuple[str, int], ErrorCode] = {}
    for topic in transaction.topics:
        name = topic.name
        is_allowed = by_broker or (name not in INTERNAL_TOPICS and context.is_authorized(Operation.WRITE, ResourceType.TOPIC, name))
        indexes = named.setdefault(name, set()) if topic.partitions else set()
        for index in topic.partitions:
            indexes.add(index)
            if not is_allowed:
                refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif cluster.partition(name, index) is None:
                refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await pause()
        await pause()
    partitions: dict[str, frozenset[int]] = {}
    for name, indexes in named.items():
        partitions[name] = frozenset(indexes)
        await pause()
    return partitions, refused
