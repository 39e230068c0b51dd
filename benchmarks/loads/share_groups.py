"""Begins and ends share groups on a broker: their configuration, and a member that has their state initialized."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from benchmarks.loads.admin import GROUP, Admin, BrokerRefusedError, Topic
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.uuid import to_text

_GROUP_RESOURCE: Final = 32
_VERSION: Final = 1
_LEAVES: Final = -1
_TIMEOUT_S: Final = 120.0
_AGAIN_S: Final = 0.05


@contextmanager
def a_share_group(port: int, group_id: str, topic: Topic) -> Iterator[None]:
    """The group reads the topic from its first record on. Its one member, which fetches nothing, leaves afterwards.

    Raises BrokerRefusedError.
    """
    with Admin("127.0.0.1", port) as admin:
        _begin_at_first_record(admin, group_id)
        admin.coordinator_port(GROUP, group_id)  # the coordinator is ready afterwards
        member_id = to_text(uuid4().bytes)
        _join(admin, group_id, member_id, topic)
        try:
            yield
        finally:
            _heartbeat(admin, ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=_LEAVES))


def _begin_at_first_record(admin: Admin, group_id: str) -> None:
    change = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group_id, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse).responses
    if answer.error_code:
        raise BrokerRefusedError(f"group {group_id}: {ErrorCode.of(answer.error_code).name}: {answer.error_message}")


def _join(admin: Admin, group_id: str, member_id: str, topic: Topic) -> None:
    """Join, and wait for an assignment with all partitions, whose state is initialized then."""
    deadline = time.monotonic() + _TIMEOUT_S
    request = ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=0, subscribed_topic_names=[topic.name])
    while True:
        answer = _heartbeat(admin, request)
        assigned = 0 if answer.assignment is None else sum(len(each.partitions) for each in answer.assignment.topic_partitions)
        if not answer.error_code and assigned == topic.partitions:
            return
        if time.monotonic() > deadline:
            raise BrokerRefusedError(f"group {group_id} has {assigned} of {topic.partitions} partitions: {answer.error_message}")
        time.sleep(_AGAIN_S)
        if not answer.error_code:
            request = ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=answer.member_epoch)


def _heartbeat(admin: Admin, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    return admin.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request, ShareGroupHeartbeatResponse, _VERSION)
