"""Handles Metadata (api 3), versions 0-13.

The controller from 1, cluster id from 2, auto creation as the client's choice from 4, leader epochs from 7, authorized operations 8-10
(KIP-430; those of topics in later versions, too), topic ids from 10, requests by topic id from 12 (KIP-516), an error for the
whole answer from 13 (KIP-1102), which is never needed.

A missing topic is created when the client allows it and `auto.create.topics.enable` is on. The answer is then LEADER_NOT_AVAILABLE, and the
client retries, as with Apache Kafka.

An answer about all topics leaves out topics that the client may not describe. A request for such a topic by name or id is refused in the
same way, whether the topic exists or not.

A broker that has just started delays its answer until it has the cluster's metadata. If that takes too long, the connection closes.
"""

from __future__ import annotations

from ottla.broker.request.context import RequestContext
from ottla.broker.request.first_metadata import after_first_metadata
from ottla.controller.znodes.topic_names import is_valid_topic_name
from ottla.coordination.internal_topics import INTERNAL_TOPICS
from ottla.pauses import each, move, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.update_metadata import UpdateMetadataPartitionState
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import LEADER_NONE, TopicImage

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_CHOICE_OF_CREATION = 4
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
FIRST_VERSION_BY_TOPIC_ID = 12
NOT_ASKED = -(2**31)
"""The authorized operations of a response to a request that did not ask for them."""


@after_first_metadata
async def handle_metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """List brokers and topics. Waits for the controller to create topics, or to send the first metadata."""
    cluster = context.broker.metadata
    topics = request.topics
    if topics is None or (not topics and context.api_version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        return _response(await _topics(list(cluster.topics.values()), request, context), request, context)
    names: dict[str, None] = context.scratch({})
    topic_ids: set[bytes] = set()
    for topic in topics:
        if topic.topic_id != ZERO_UUID:
            topic_ids.add(topic.topic_id)
        if context.api_version < FIRST_VERSION_BY_TOPIC_ID and (topic_ids or topic.name is None):
            return await _refused(topics)
        names[topic.name or ""] = None
        await pause()
    if topic_ids:
        return _response(await _by_id(topic_ids, request, context), request, context)
    return await _by_name(list(names), request, context)


async def _by_name(names: list[str], request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    found: list[MetadataResponseTopic] = []
    missing: list[str] = context.scratch([])
    refused: list[MetadataResponseTopic] = []
    for name in names:
        await pause()
        if not _may_describe(name, context):
            refused.append(_denied(name, ZERO_UUID))
        elif (image := context.broker.metadata.topics.get(name)) is not None:
            found.append(await _topic(image, request, context))
        else:
            missing.append(name)
    wants_creation = context.api_version < FIRST_VERSION_WITH_CHOICE_OF_CREATION or request.allow_auto_topic_creation
    creates = bool(missing) and wants_creation and context.broker.administration.auto_topics.enabled
    if creates and not context.is_authorized(Operation.CREATE, ResourceType.CLUSTER, log_if_denied=False):
        missing = await _without_uncreatable(missing, refused, context)
    new = []
    for name in missing:
        await pause()
        if not is_valid_topic_name(name):
            found.append(_absent(ErrorCode.INVALID_TOPIC_EXCEPTION, name, operations=_operations(name, request, context)))
        elif creates:
            new.append(name)
        else:
            found.append(_absent(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, operations=_operations(name, request, context)))
    if new:
        return await _create(new, found, refused, request, context)
    await move(refused, found)
    return _response(found, request, context)


async def _without_uncreatable(missing: list[str], refused: list[MetadataResponseTopic], context: RequestContext) -> list[str]:
    """The missing topics that the client may create. The other missing topics are added to `refused`."""
    creatable = []
    for name in missing:
        await pause()
        if context.is_authorized(Operation.CREATE, ResourceType.TOPIC, name):
            creatable.append(name)
        else:
            refused.append(_absent(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
    return creatable


def _may_describe(topic: str, context: RequestContext) -> bool:
    return context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _denied(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    """The answer about a topic that the client may not describe, existing or not."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id, topic_authorized_operations=NOT_ASKED
    )


async def _refused(topics: list[MetadataRequestTopic]) -> MetadataResponse:
    """Versions 10 and 11 have a field for the topic id, but may not use it."""
    refused = await each(
        topics,
        lambda topic: MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, topic_authorized_operations=NOT_ASKED
        ),
    )
    return MetadataResponse(topics=refused, controller_id=-1, cluster_authorized_operations=NOT_ASKED)


async def _by_id(topic_ids: set[bytes], request: MetadataRequest, context: RequestContext) -> list[MetadataResponseTopic]:
    """The answer by topic ids. A request with at least one topic id is answered by ids alone; names in it are ignored."""
    cluster = context.broker.metadata
    found = []
    unknown = []
    refused = []
    for topic_id in topic_ids:
        image = cluster.topics.get(cluster.names_by_id.get(topic_id, ""))
        if image is None:
            unknown.append(_absent(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        elif not _may_describe(image.name, context):
            refused.append(_denied(None, topic_id))
        else:
            found.append(await _topic(image, request, context))
        await pause()
    return unknown + found + refused


async def _topics(images: list[TopicImage], request: MetadataRequest, context: RequestContext) -> list[MetadataResponseTopic]:
    """The topics among `images` that the client may describe."""
    found = []
    for image in images:
        if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, image.name, log_if_denied=False):
            found.append(await _topic(image, request, context))
        await pause()
    return found


async def _create(
    missing: list[str],
    found: list[MetadataResponseTopic],
    refused: list[MetadataResponseTopic],
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse:
    # As in Apache Kafka, the partitions count, and the throttle time does not include them.
    quota = context.connection.mutation_quota(is_strict=False)
    codes = await context.broker.administration.auto_topics.create(missing, quota.take)
    for name in missing:
        found.append(_absent(codes[name], name, operations=_operations(name, request, context)))
        await pause()
    return _response(found + refused, request, context)


def _response(topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    broker = context.broker
    listener = context.client.listener_name
    brokers = [
        MetadataResponseBroker(node_id=live.broker_id, host=endpoint.host, port=endpoint.port, rack=live.rack)
        for live in broker.metadata.brokers.values()
        if (endpoint := live.endpoints.get(listener)) is not None
    ]
    response = MetadataResponse(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=NOT_ASKED,
    )
    if request.include_cluster_authorized_operations:
        may_describe = context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER)
        response.cluster_authorized_operations = context.access.operations(ResourceType.CLUSTER) if may_describe else 0
    return response


def _absent(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID, *, operations: int = NOT_ASKED) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=operations
    )


def _operations(name: str, request: MetadataRequest, context: RequestContext) -> int:
    """The authorized operations of the client on a topic name, whether the topic exists or not."""
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.access.operations(ResourceType.TOPIC, name)


async def _topic(image: TopicImage, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.name in INTERNAL_TOPICS,
        partitions=await each(image.partitions.values(), lambda state: visible_partition(state, context)),
        topic_authorized_operations=_operations(image.name, request, context),
    )


def visible_partition(state: UpdateMetadataPartitionState, context: RequestContext) -> MetadataResponsePartition:
    """A partition as a client of this listener may see it. Version 0 leaves out replicas that the listener cannot reach."""
    brokers = context.broker.metadata.brokers
    listener = context.client.listener_name
    replicas = list(state.replicas)
    isr = list(state.isr)
    if context.api_version == 0:
        replicas = [replica for replica in replicas if replica in brokers and listener in brokers[replica].endpoints]
        isr = [replica for replica in isr if replica in brokers and listener in brokers[replica].endpoints]
    code = ErrorCode.NONE
    leader = brokers.get(state.leader)
    leader_id = state.leader
    if leader is None:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        leader_id = LEADER_NONE
    elif listener not in leader.endpoints:
        known = context.api_version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        code = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
        leader_id = LEADER_NONE
    elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=list(state.offline_replicas),
    )
