"""Declares CreateTopics (api 19): a client creates topics.

- 1 can validate without creating.
- 4 allows -1 for partitions and replication factor, which stands for the broker's defaults (KIP-464).
- 5 answers the configuration of the new topics (KIP-525).
- 6 may be throttled (KIP-599).
- 7 answers the topic id (KIP-516).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field()
    broker_ids: Array[Int32] = field()


@struct
class CreatableTopicConfig(Struct):
    name: String = field()
    value: NullableString = field()


@struct
class CreatableTopic(Struct):
    """Has either assignments, or counts (-1: the broker's default) for which the controller chooses the brokers."""

    name: String = field()
    num_partitions: Int32 = field()
    replication_factor: Int16 = field()
    assignments: Array[CreatableReplicaAssignment] = field()
    configs: Array[CreatableTopicConfig] = field()


@request(ApiKey.CREATE_TOPICS)
class CreateTopicsRequest(Message):
    topics: Array[CreatableTopic] = field()
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = since(1)


@struct
class CreatableTopicConfigs(Struct):
    name: String = field()
    value: NullableString = field()
    read_only: Bool = field()
    config_source: Int8 = field(default=-1, ignorable=True)
    is_sensitive: Bool = field()


@struct
class CreatableTopicResult(Struct):
    name: String = field()
    topic_id: Uuid = since(7, ignorable=True)
    error_code: Int16 = field()
    error_message: NullableString = since(1, ignorable=True)
    topic_config_error_code: Int16 = since(5, ignorable=True, tag=0)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: NullableArray[CreatableTopicConfigs] = since(5, ignorable=True)


@response(ApiKey.CREATE_TOPICS)
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: Array[CreatableTopicResult] = field()
