"""AddPartitionsToTxn (api 24), versions 0-5: one transaction of a client (KIP-98), from 4 many, asked by brokers (KIP-890).

There is no transaction coordinator here, so no transactional id is known: INVALID_PRODUCER_ID_MAPPING.
"""

from broker.request.context import RequestContext
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

FIRST_VERSION_FOR_BROKERS = 4


def handle_add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> Steps[AddPartitionsToTxnResponse]:
    """Refuse, saying of each partition why."""
    if context.api_version >= FIRST_VERSION_FOR_BROKERS:
        if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        transactions = []
        for each in request.transactions:
            results = yield from _results(each.topics, context)
            transactions.append(AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results))
        return AddPartitionsToTxnResponse(results_by_transaction=transactions)
    topics = request.v3_and_below_topics
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        results = yield from _all(topics, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        results = yield from _results(topics, context)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _results(topics: list[AddPartitionsToTxnTopic], context: RequestContext) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    """One partition that does not exist, or may not be written to, keeps all from being added."""
    by_broker = context.api_version >= FIRST_VERSION_FOR_BROKERS
    cluster = context.broker.metadata
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in topics:
        is_allowed = by_broker or (
            topic.name not in INTERNAL_TOPICS and context.is_authorized(Operation.WRITE, ResourceType.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if not is_allowed:
                codes[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif cluster.partition(topic.name, index) is None:
                codes[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield
    return (yield from _all(topics, codes, ErrorCode.OPERATION_NOT_ATTEMPTED if codes else ErrorCode.INVALID_PRODUCER_ID_MAPPING))


def _all(
    topics: list[AddPartitionsToTxnTopic], codes: dict[tuple[str, int], ErrorCode], otherwise: ErrorCode
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        for index in topic.partitions:
            code = codes.get((topic.name, index), otherwise)
            result.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            yield
        results.append(result)
        yield
    return results
