"""Every API that is served, asked by a client that may do nothing: what the authorizer is asked, and what the refusal looks like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handlers.table import SERVED
from ottla.broker.network.request_channel import Pending
from ottla.broker.security.principals import Principal
from ottla.controller.admin.topic_admin import NewTopic
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.registry import api
from ottla.protocol.uuid import ZERO_UUID
from ottla.storage.segment.file_region import FileRegion
from tests.support.broker_process import eventually
from tests.support.connections import ClientConnection
from tests.support.golden_replay import decode, request_frame
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.messages import message
from tests.support.refusals import (
    CLUSTER,
    CLUSTER_ACTION,
    DATA,
    THE_ID,
    TOPIC_REFUSED,
    TOPICS,
    Row,
    of_cluster,
    of_topics,
    two,
)
from tests.support.refusals_of_groups_and_administration import (
    CHANGE,
    CONFIGS,
    CONTROL,
    GROUPS,
    LATER,
    SECURITY,
    TOPIC_RESOURCE,
    TRANSACTIONS,
)
from tests.support.refusals_of_share_groups import SHARES

ROWS = [*DATA, *TOPICS, *GROUPS, *TRANSACTIONS, *CONFIGS, *CONTROL, *SECURITY, *LATER, *SHARES]


class Grants:
    """An authorizer that allows what is in `allowed`, and keeps what it was asked."""

    audit_log = None

    def __init__(self, *allowed: str) -> None:
        self.generation = 0
        self.allowed = set(allowed)
        self.asked: list[str] = []

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append(f"{operation.name} {resource_type.name} {name}")
        return self.asked[-1] in self.allowed

    def on_log_levels_changed(self) -> None: ...

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        return self.is_authorized(principal, host, operation, resource_type, "any")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("data"), broker_id=0) as running:
        created = running.run(
            lambda: running.services.administration.topic_admin.create_topics([NewTopic("topic", 1, 1)], timeout_ms=10_000)
        )
        assert created["topic"].topic_id != ZERO_UUID
        yield running


def ask(broker: InProcessBroker, row: Row, authorizer: Grants) -> Any:
    """The decoded answer of the broker."""
    known = api(row.key)
    topic_id = broker.run(lambda: broker.services.metadata.topics["topic"].topic_id)
    frame = request_frame(message(known.request, row.request), row.key, row.version)[4:].replace(THE_ID, topic_id)

    connection: Any = ClientConnection(authorizer)

    def handle() -> object:
        handled = broker.broker.dispatcher.handle(memoryview(bytearray(frame)), connection)
        if isinstance(handled, Pending):
            handled.connection = connection  # one without a connection is never completed
        return handled

    answer = broker.run(handle)
    if isinstance(answer, Pending):
        eventually(lambda: answer.completed)
        answer = answer.answer
    parts = answer if isinstance(answer, list) else [answer]
    data = b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)
    return decode(data.replace(topic_id, THE_ID), row.key, row.version)


def expected(row: Row, answer: Any) -> Any:
    """The answer that the row has; what it says nothing of, as a broker of its own would say it anyway, is as it came."""
    wanted = message(api(row.key).response, row.answer)
    if row.key in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER):
        wanted.brokers, wanted.controller_id, wanted.cluster_id = answer.brokers, answer.controller_id, answer.cluster_id
    if row.key is ApiKey.API_VERSIONS:
        return answer
    return decode(bytes(4 + row_has_flexible_header(row)) + wanted.encode(row.version), row.key, row.version)


def row_has_flexible_header(row: Row) -> bool:
    return api(row.key).response_header_version(row.version) >= 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_client_that_may_do_nothing_is_refused(broker: InProcessBroker, row: Row) -> None:
    authorizer = Grants()
    answer = ask(broker, row, authorizer)
    assert answer == expected(row, answer)
    assert authorizer.asked == row.asked


def test_there_is_a_row_for_every_api_that_is_answered() -> None:
    assert {row.key for row in ROWS} | {ApiKey.ENVELOPE} == SERVED


ROW_BY_NAME = {row.name: row for row in ROWS}


def asked_with(broker: InProcessBroker, name: str, *allowed: str) -> Any:
    """The answer to the request of a row, when these are allowed."""
    return ask(broker, ROW_BY_NAME[name], Grants(*allowed))


def test_a_topic_that_may_be_described_and_not_created_is_refused_where_it_would_be_created(broker: InProcessBroker) -> None:
    row = Row(ApiKey.METADATA, 9, {"topics": two(), "allow_auto_topic_creation": True}, [], {})
    authorizer = Grants("DESCRIBE TOPIC topic", "DESCRIBE TOPIC missing")
    answer = ask(broker, row, authorizer)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("topic", 0), ("missing", TOPIC_REFUSED)]
    assert authorizer.asked == [*of_topics("DESCRIBE"), *of_cluster("CREATE"), "CREATE TOPIC missing"]
    assert "missing" not in broker.run(lambda: set(broker.services.metadata.topics))


def test_version_0_of_elections_has_the_refusal_at_the_partitions_alone(broker: InProcessBroker) -> None:
    row = Row(ApiKey.ELECT_LEADERS, 0, {"topic_partitions": [{"topic": "topic", "partitions": [0]}], "timeout_ms": 1000}, [], {})
    (result,) = ask(broker, row, Grants()).replica_election_results
    assert [(each.partition_id, each.error_code) for each in result.partition_result] == [(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]


def test_authorized_operations_are_what_may_be_done(broker: InProcessBroker) -> None:
    allowed = ("DESCRIBE TOPIC topic", "READ TOPIC topic", f"DESCRIBE CLUSTER {CLUSTER}", f"ALTER CLUSTER {CLUSTER}")
    answer = asked_with(broker, "METADATA v9 by name", *allowed)
    assert answer.topics[0].topic_authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.READ
    assert answer.cluster_authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.ALTER


def test_an_id_that_nobody_has_is_no_secret(broker: InProcessBroker) -> None:
    row = Row(ApiKey.METADATA, 12, {"topics": [{"topic_id": bytes(range(16)), "name": None}]}, [], {})
    assert ask(broker, row, Grants()).topics[0].error_code == 100


def test_a_broker_may_ask_for_the_ends_of_epochs_without_rights_to_the_topics(broker: InProcessBroker) -> None:
    answer = asked_with(broker, "OFFSET_FOR_LEADER_EPOCH v4", CLUSTER_ACTION)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, 3]


def test_what_is_refused_comes_behind_what_is_not(broker: InProcessBroker) -> None:
    answer = asked_with(broker, "LIST_OFFSETS v6", "DESCRIBE TOPIC missing")
    assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == [("missing", 3), ("topic", TOPIC_REFUSED)]
    answer = asked_with(broker, "DESCRIBE_CONFIGS v4", f"DESCRIBE_CONFIGS CLUSTER {CLUSTER}")
    assert [(each.resource_type, each.error_code) for each in answer.results] == [(4, 0), (8, 0), (2, TOPIC_REFUSED)]


def test_an_idempotent_producer_needs_one_topic_to_write_to(broker: InProcessBroker) -> None:
    assert asked_with(broker, "INIT_PRODUCER_ID v5 idempotent", "WRITE TOPIC any").error_code == 0
    assert asked_with(broker, "INIT_PRODUCER_ID v5 idempotent", f"IDEMPOTENT_WRITE CLUSTER {CLUSTER}").error_code == 0


def test_one_topic_that_may_not_be_written_to_keeps_all_out_of_a_transaction(broker: InProcessBroker) -> None:
    row = Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {"v3_and_below_transactional_id": "t", "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in ("topic", "secret")]},
        [],
        {},
    )
    answer = ask(broker, row, Grants("WRITE TRANSACTIONAL_ID t", "WRITE TOPIC topic"))
    codes = [topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below]
    assert codes == [55, TOPIC_REFUSED]


def test_a_topic_is_created_by_the_right_to_it_and_its_configuration_shown_by_another(broker: InProcessBroker) -> None:
    row = Row(
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000, "validate_only": True},
        [],
        {},
    )
    (result,) = ask(broker, row, Grants("CREATE TOPIC new")).topics
    assert (result.error_code, result.topic_config_error_code, result.num_partitions) == (0, TOPIC_REFUSED, -1)
    (result,) = ask(broker, row, Grants("CREATE TOPIC new", "DESCRIBE_CONFIGS TOPIC new")).topics
    assert (result.error_code, result.topic_config_error_code, result.num_partitions) == (0, 0, 1)


@pytest.mark.parametrize("is_beyond_3_9", [False, True])
@pytest.mark.parametrize(("key", "version"), [(ApiKey.ALTER_CONFIGS, 2), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)])
def test_client_metrics_that_may_not_be_changed_keep_no_other_resource_back(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, is_beyond_3_9: bool
) -> None:
    metrics = {"resource_type": 16, "resource_name": "m", "configs": [{"name": "interval.ms", "value": "1000"}]}
    resources = [metrics, {**TOPIC_RESOURCE, "configs": CHANGE}]
    authorizer = Grants("ALTER_CONFIGS TOPIC topic")
    monkeypatch.setattr(broker.services.listed, "is_beyond_3_9", is_beyond_3_9)
    answer = ask(broker, Row(key, version, {"resources": resources, "validate_only": True}, [], {}), authorizer)
    in_3_9 = ErrorCode.INVALID_REQUEST, "Unexpected resource type CLIENT_METRICS for resource m"
    assert [(each.error_code, each.error_message) for each in answer.responses] == [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None) if is_beyond_3_9 else in_3_9,
        (ErrorCode.NONE, None),
    ]
    assert authorizer.asked == [*of_cluster("ALTER_CONFIGS"), "ALTER_CONFIGS TOPIC topic"]


def test_nothing_is_done_for_a_client_that_may_do_nothing(broker: InProcessBroker) -> None:
    services = broker.services

    def end_offset() -> Any:
        return services.data.replica_manager.partitions["topic"][0].log.log_end_offset

    before = broker.run(end_offset)
    for row in ROWS:
        ask(broker, row, Grants())
    assert broker.run(lambda: list(services.metadata.topics)) == ["topic"]
    assert broker.run(end_offset) == before
    assert broker.run(lambda: services.administration.config_admin.read_all("topics")) == {"topic": {}}
