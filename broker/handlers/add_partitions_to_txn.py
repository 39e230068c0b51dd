"""AddPartitionsToTxn (api 24), versions 0-5: one transaction of a client (KIP-98), from 4 many, asked by brokers (KIP-890).

There is no transaction coordinator here, so no transactional id is known: INVALID_PRODUCER_ID_MAPPING.
"""

from broker.request_context import RequestContext
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


def handle_add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    """Refuse, saying of each partition why."""
    if context.api_version >= FIRST_VERSION_FOR_BROKERS:
        if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_results(each.topics, context))
                for each in request.transactions
            ]
        )
    topics = request.v3_and_below_topics
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        results = _all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        results = _results(topics, context)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _results(topics: list[AddPartitionsToTxnTopic], context: RequestContext) -> list[AddPartitionsToTxnTopicResult]:
    """One partition that does not exist, or may not be written to, keeps all from being added."""
    by_broker = context.api_version >= FIRST_VERSION_FOR_BROKERS
    cluster = context.broker.cluster
    codes: dict[tuple[str, int], ErrorCode] = {}
    for topic in topics:
        is_allowed = by_broker or context.is_authorized(Operation.WRITE, ResourceType.TOPIC, topic.name)
        for index in topic.partitions:
            if not is_allowed:
                codes[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif cluster.partition(topic.name, index) is None:
                codes[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not codes:
        return _all(topics, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    results = _all(topics, ErrorCode.OPERATION_NOT_ATTEMPTED)
    for result in results:
        for each in result.results_by_partition:
            each.partition_error_code = codes.get((result.name, each.partition_index), each.partition_error_code)
    return results


def _all(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )
        for topic in topics
    ]
