"""Lists the authorizer's questions of the APIs of share groups, and the answers to a client without any rights; see `refusals`.

The refusals are those of Apache Kafka 4.4.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.api_keys import ApiKey
from tests.support.refusals import CLUSTER_ACTION, CLUSTER_REFUSED, CLUSTER_TEXT, GROUP_REFUSED, GROUP_TEXT, THE_ID, Row

READ, DESCRIBE, DELETE = (f"{operation} GROUP g" for operation in ("READ", "DESCRIBE", "DELETE"))
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def _state(key: ApiKey, version: int, partition: dict[str, Any], answered: dict[str, Any]) -> Row:
    """A request of another broker to a share coordinator about one partition."""
    refused = {"partition": 0, "error_code": CLUSTER_REFUSED, "error_message": CLUSTER_TEXT, **answered}
    return Row(
        key,
        version,
        {"group_id": "g", "topics": [{"topic_id": THE_ID, "partitions": [{"partition": 0, **partition}]}]},
        [CLUSTER_ACTION],
        {"results": [{"topic_id": THE_ID, "partitions": [refused]}]},
    )


SHARES = [
    Row(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        {"group_id": "g", "member_id": MEMBER, "subscribed_topic_names": ["topic"]},
        [READ],
        {"error_code": GROUP_REFUSED},
    ),
    Row(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        {"group_ids": ["g"]},
        [DESCRIBE],
        {"groups": [{"error_code": GROUP_REFUSED, "group_id": "g"}]},
    ),
    Row(ApiKey.SHARE_FETCH, 2, {"group_id": "g", "member_id": MEMBER}, [READ], {"error_code": GROUP_REFUSED}),
    Row(
        ApiKey.SHARE_ACKNOWLEDGE,
        2,
        {"group_id": "g", "member_id": MEMBER, "share_session_epoch": 1},
        [READ],
        {"error_code": GROUP_REFUSED},
    ),
    _state(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, {}, {}),
    _state(ApiKey.READ_SHARE_GROUP_STATE, 0, {}, {}),
    _state(ApiKey.WRITE_SHARE_GROUP_STATE, 1, {}, {}),
    _state(ApiKey.DELETE_SHARE_GROUP_STATE, 0, {}, {}),
    _state(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, {}, {}),
    Row(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {"groups": [{"group_id": "g", "topics": None}]},
        [DESCRIBE],
        {"groups": [{"group_id": "g", "error_code": GROUP_REFUSED, "error_message": GROUP_TEXT}]},
    ),
    Row(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        {"group_id": "g", "topics": [{"topic_name": "topic", "partitions": [{"partition_index": 0, "start_offset": 0}]}]},
        [READ],
        {"error_code": GROUP_REFUSED, "error_message": GROUP_TEXT},
    ),
    Row(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        {"group_id": "g", "topics": [{"topic_name": "topic"}]},
        [DELETE],
        {"error_code": GROUP_REFUSED, "error_message": GROUP_TEXT},
    ),
]
