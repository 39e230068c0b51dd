"""Declares DeleteTopics (api 20): a client deletes topics.

- 3 may answer that deletion is disabled (KIP-322).
- 5 gives the reason of a failure, and may be throttled (KIP-599).
- 6 deletes by name or by id (KIP-516).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class DeleteTopicState(Struct):
    name: NullableString = field(default=None)
    topic_id: Uuid = field()


@request(ApiKey.DELETE_TOPICS)
class DeleteTopicsRequest(Message):
    topics: Array[DeleteTopicState] = since(6)
    topic_names: Array[String] = until(5, ignorable=True)
    timeout_ms: Int32 = field()


@struct
class DeletableTopicResult(Struct):
    name: NullableString = field(nullable_since=6)
    topic_id: Uuid = since(6, ignorable=True)
    error_code: Int16 = field()
    error_message: NullableString = since(5, default=None, ignorable=True)


@response(ApiKey.DELETE_TOPICS)
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    responses: Array[DeletableTopicResult] = field()
