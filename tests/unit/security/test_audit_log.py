"""The lines of the audit log: Kafka's words, levels, the limit of refusals, and that cached decisions are logged, too."""

import logging
from collections.abc import Iterator

import pytest

from ottla.broker.network.offenders import LINES_PER_WINDOW, Offenders
from ottla.broker.security.access import Access
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.audit_log import TRACE, AuditLog, logger
from ottla.broker.security.client import Client
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import AccessControlEntry, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.api_keys import ApiKey

DENIED_READ = (
    "Principal = User:eve is Denied Operation = Read from host = 10.0.0.9 on resource = Topic:LITERAL:secret "
    "for request = Fetch with resourceRefCount = 1"
)


@pytest.fixture(autouse=True)
def the_level_is_restored() -> Iterator[None]:
    before = logger.level
    yield
    logger.setLevel(before)


class Audited:
    """A connection of User:eve, who may read the topic `open` and describe all topics."""

    def __init__(self, host: str = "10.0.0.9", *super_users: Principal) -> None:
        self.refusals: list[str] = []
        offenders = Offenders(self.refusals.append, "requests were refused")
        self.authorizer = AclAuthorizer(frozenset(super_users), audit_log=AuditLog(lambda host, line: offenders.report(host, line, 1.0)))
        self.allow(Operation.READ, "open")
        self.client = Client("c", host, 1, "PLAINTEXT", principal=Principal("User", "eve"))
        self.client.api_key = ApiKey.FETCH
        self.access = Access(self.authorizer, self.client)

    def allow(self, operation: Operation, topic: str) -> None:
        entry = AccessControlEntry("User:eve", "*", operation, PermissionType.ALLOW)
        self.authorizer.set_acls(ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL), [entry])

    def reads(self, topic: str) -> bool:
        return self.access.may(Operation.READ, ResourceType.TOPIC, topic)


def test_a_refusal_is_a_line_in_the_words_of_apache_kafka() -> None:
    logger.setLevel(logging.INFO)
    connection = Audited()
    assert not connection.reads("secret")
    assert connection.refusals == [DENIED_READ]


def test_every_refused_request_is_logged_although_the_decision_is_cached() -> None:
    logger.setLevel(logging.INFO)
    connection = Audited()
    for _ in range(3):
        assert not connection.reads("secret")
    assert connection.refusals == [DENIED_READ] * 3


def test_refusals_of_a_host_are_limited_and_counted() -> None:
    logger.setLevel(logging.INFO)
    connection = Audited()
    for _ in range(1000):
        assert not connection.reads("secret")
    assert connection.refusals[:LINES_PER_WINDOW] == [DENIED_READ] * LINES_PER_WINDOW
    assert len(connection.refusals) == LINES_PER_WINDOW + 1


def test_a_permission_is_a_line_at_debug_for_every_request(caplog: pytest.LogCaptureFixture) -> None:
    logger.setLevel(logging.DEBUG)
    connection = Audited()
    for _ in range(2):
        assert connection.reads("open")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == 2 * [
        (
            logging.DEBUG,
            "Principal = User:eve is Allowed Operation = Read from host = 10.0.0.9 on resource = Topic:LITERAL:open "
            "for request = Fetch with resourceRefCount = 1",
        )
    ]


def test_the_level_may_change_while_decisions_are_cached(caplog: pytest.LogCaptureFixture) -> None:
    logger.setLevel(logging.INFO)
    connection = Audited()
    assert connection.reads("open")
    logger.setLevel(logging.DEBUG)
    connection.authorizer.on_log_levels_changed()
    assert connection.reads("open")
    assert len(caplog.records) == 1
    logger.setLevel(logging.INFO)
    connection.authorizer.on_log_levels_changed()
    assert connection.reads("open")
    assert len(caplog.records) == 1


def test_nothing_is_formatted_while_the_level_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(value: object) -> str:
        raise AssertionError(value)

    monkeypatch.setattr("ottla.broker.security.audit_log.camel_case", fail)
    logger.setLevel(logging.WARNING)
    connection = Audited()
    assert not connection.reads("secret")
    assert connection.reads("open")
    assert connection.access.operations(ResourceType.TOPIC, "open") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert not connection.access.may_on_any(Operation.WRITE, ResourceType.TOPIC)
    assert connection.refusals == []


def test_what_no_client_asked_for_is_logged_at_trace_alone(caplog: pytest.LogCaptureFixture) -> None:
    logger.setLevel(logging.DEBUG)
    connection = Audited()
    assert not connection.access.may(Operation.DESCRIBE, ResourceType.TOPIC, "secret", False)
    connection.access.operations(ResourceType.TOPIC, "open")
    assert (connection.refusals, caplog.records) == ([], [])
    logger.setLevel(TRACE)
    connection.authorizer.on_log_levels_changed()
    assert not connection.access.may(Operation.DESCRIBE, ResourceType.TOPIC, "secret", False)
    connection.access.operations(ResourceType.GROUP, "g")
    assert connection.refusals == []
    assert [record.levelno for record in caplog.records] == 4 * [TRACE]
    assert "is Denied Operation = Describe from host = 10.0.0.9 on resource = Topic:LITERAL:secret" in caplog.messages[0]


def test_the_right_to_any_topic_is_logged_without_a_name() -> None:
    logger.setLevel(logging.INFO)
    connection = Audited()
    connection.client.api_key = ApiKey.INIT_PRODUCER_ID
    assert not connection.access.may_on_any(Operation.WRITE, ResourceType.TOPIC)
    assert connection.refusals == [
        "Principal = User:eve is Denied Operation = Write from host = 10.0.0.9 on resource = Topic:UNKNOWN:NONE "
        "for request = InitProducerId with resourceRefCount = 0"
    ]


def test_hosts_are_written_as_in_acls_and_names_cannot_forge_lines() -> None:
    logger.setLevel(logging.INFO)
    connection = Audited("::1")
    assert not connection.access.may(Operation.READ, ResourceType.GROUP, "g\nPrincipal = User:eve is Allowed")
    assert not connection.access.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    forged, plain = connection.refusals
    assert "\n" not in forged
    assert "from host = 0:0:0:0:0:0:0:1 on resource = Cluster:LITERAL:kafka-cluster for request = Fetch" in plain
