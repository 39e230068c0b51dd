"""Answers whose message quotes a request, and would be longer than a string may be: the message is cut, and the answer can be written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.handlers.configs.describe_client_quotas import handle_describe_client_quotas
from ottla.broker.handlers.configs.describe_user_scram_credentials import handle_describe_user_scram_credentials
from ottla.broker.handlers.topics.alter_partition_reassignments import handle_alter_partition_reassignments
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.controller.admin.config_admin import Malformed
from ottla.controller.errors import ControllerError, InvalidReplicaAssignment
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import MAX_STRING_BYTES
from ottla.protocol.topic_partition import TopicPartition
from tests.support.connections import ClientConnection
from tests.support.services import services_with

LONG = "x" * MAX_STRING_BYTES


class NoConfigurations:
    """A store without any entity."""

    async def read_many(self, entity_type: str, entities: Sequence[str], malformed: Malformed | None = None) -> dict[str, dict[str, str]]:
        return {}


class Refusing:
    """A controller that quotes the brokers to which a partition should be moved."""

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, may_change_factor: bool
    ) -> dict[TopicPartition, ControllerError | None]:
        return {partition: InvalidReplicaAssignment(f"Duplicate replica ids: {replicas}") for partition, replicas in targets.items()}


def ask(handler: Any, key: ApiKey, request: Message) -> Any:
    services = services_with(config_admin=NoConfigurations(), controller=Refusing())
    return asyncio.run(handler(request, RequestContext(key, 0, 0, None, ClientConnection(), services, lambda _, __: CLOSE)))


def test_an_unknown_kind_of_quota_entity() -> None:
    components = [ComponentData(entity_type=LONG, match_type=2, match=None)]
    response = ask(handle_describe_client_quotas, ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=components))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.error_message.startswith("Custom entity type 'xxx")
    assert response.encode(0)


def test_users_without_credentials_and_users_that_are_named_twice() -> None:
    users = [UserName(name=name) for name in (LONG, f"y{LONG[1:]}", f"y{LONG[1:]}")]
    response = ask(
        handle_describe_user_scram_credentials,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest(users=users),
    )
    assert [result.error_code for result in response.results] == [ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.DUPLICATE_RESOURCE]
    assert response.encode(0)


def test_a_move_to_very_many_brokers() -> None:
    topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1] * MAX_STRING_BYTES)])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    response = ask(handle_alter_partition_reassignments, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert response.encode(0)
