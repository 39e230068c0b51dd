"""Answers of handlers of administration that no test of a whole broker meets."""

import asyncio
import inspect
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.configs.alter_user_scram_credentials import _refused
from ottla.broker.handlers.control.update_features import handle_update_features
from ottla.broker.handlers.topics.create_topics import handle_create_topics
from ottla.broker.handlers.transactions import list_transactions
from ottla.broker.handlers.transactions.describe_transactions import handle_describe_transactions
from ottla.broker.handlers.transactions.list_transactions import handle_list_transactions
from ottla.broker.network.request_channel import CLOSE
from ottla.broker.request.context import RequestContext
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.authorizer import AllowAll, Authorizer
from ottla.config.broker import BrokerConfig
from ottla.controller.errors import AdminTimeout
from ottla.coordination.groups.consumer.regexes import RegexThreads
from ottla.protocol.acls import AccessControlEntry, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.uuid import ZERO_UUID
from tests.support.admin_requests import a_topic, said
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.pauses import at_once, steps_of
from tests.support.services import services_with

TOPIC_ID = b"the id of topic "


def ask(handler: Any, request: object, version: int, authorizer: Authorizer | None = None, **parts: Any) -> Any:
    """The answer of a broker whose controller is active."""
    services = services_with(controller=SimpleNamespace(is_active=True), **parts)
    context = RequestContext(0, version, 0, None, ClientConnection(authorizer), services, lambda _, __: CLOSE)

    async def answer() -> Any:
        response = handler(request, context)
        return await response if inspect.isawaitable(response) else response

    return asyncio.run(answer())


class LateTopics:
    """Creates topics whose partitions get no leader in time."""

    async def create_topics(self, topics: list[Any], **_: object) -> dict[str, AdminTimeout]:
        return {topic.name: AdminTimeout("", TOPIC_ID) for topic in topics}


@pytest.mark.parametrize(
    ("rights", "topic_id"),
    [([], ZERO_UUID), ([(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)], TOPIC_ID)],
)
def test_who_may_not_describe_a_topic_does_not_learn_its_id(rights: list[tuple[Operation, ResourceType]], topic_id: bytes) -> None:
    grants = Grants((Operation.CREATE, ResourceType.CLUSTER), *rights)
    response = ask(handle_create_topics, CreateTopicsRequest(topics=[a_topic("t")]), 7, grants, topic_admin=LateTopics())
    (result,) = response.topics
    assert (result.error_code, result.topic_id) == (ErrorCode.REQUEST_TIMED_OUT, topic_id)


def test_a_transaction_is_described_without_the_topics_that_the_client_may_not_describe() -> None:
    transaction = SimpleNamespace(
        producer_id=7,
        producer_epoch=0,
        state=SimpleNamespace(label="Ongoing"),
        timeout_ms=60_000,
        start_ms=1,
        partitions={"secret": {0}, "topic": {2, 0}},
    )
    authorizer = AclAuthorizer()
    for resource_type, name in (ResourceType.TRANSACTIONAL_ID, "t"), (ResourceType.TOPIC, "topic"):
        describe = AccessControlEntry("User:*", "*", Operation.DESCRIBE, PermissionType.ALLOW)
        authorizer.set_acls(ResourcePattern(resource_type, name, PatternType.LITERAL), [describe])
    coordinator = SimpleNamespace(describe=lambda _: (ErrorCode.NONE, transaction))
    request = DescribeTransactionsRequest(transactional_ids=["t"])
    (described,) = ask(handle_describe_transactions, request, 0, authorizer, transactions=coordinator).transaction_states
    assert (described.error_code, described.producer_id) == (ErrorCode.NONE, 7)
    assert [(each.topic, each.partitions) for each in described.topics] == [("topic", [0, 2])]


def test_features_need_the_version_of_all_brokers_that_knows_them() -> None:
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=1)])
    response = ask(handle_update_features, request, 1, config=BrokerConfig({"inter.broker.protocol.version": "2.6"}))
    assert said(response) == ("INVALID_REQUEST", "Feature versioning system is disabled.")
    assert response.results == []


class Transactions:
    """A coordinator of the transactions `a-1` and `b-a-1`. `waits` counts the requests that gave their slots back."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self.workers = workers
        self.waits = 0

    def found(self) -> tuple[ErrorCode, list[SimpleNamespace]]:
        """What a coordinator lists."""
        state = SimpleNamespace(label="Ongoing")
        ids = ("a-1", "b-a-1")
        return ErrorCode.NONE, [SimpleNamespace(transactional_id=each, producer_id=1, state=state, start_ms=0) for each in ids]

    def on_wait(self) -> None:
        """See RunningRequests."""
        self.waits += 1

    def listed(self, pattern: str | None, authorizer: Authorizer) -> tuple[ErrorCode, list[str]]:
        """The error and the ids of the answer to a request with a pattern."""
        parts: dict[str, Any] = {
            "transactions": SimpleNamespace(list=self.found),
            "groups": SimpleNamespace(regex_threads=RegexThreads(self.workers)),
            "running": self,
            "clock": SimpleNamespace(now_ms=lambda: 0),
        }
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        response = ask(handle_list_transactions, request, 2, authorizer, **parts)
        return ErrorCode.of(response.error_code), [each.transactional_id for each in response.transaction_states]


@pytest.fixture
def transactions() -> Iterator[Transactions]:
    with ThreadPoolExecutor(1) as workers:
        yield Transactions(workers)


@pytest.mark.parametrize(("pattern", "ids"), [(None, ["a-1", "b-a-1"]), ("", ["a-1", "b-a-1"]), ("a-[0-9]+", ["a-1"]), ("nothing", [])])
def test_transactions_whose_id_matches_as_a_whole_are_listed(transactions: Transactions, pattern: str | None, ids: list[str]) -> None:
    pytest.importorskip("re2")
    assert transactions.listed(pattern, AllowAll()) == (ErrorCode.NONE, ids)
    assert transactions.waits == (1 if pattern else 0)


@pytest.mark.parametrize("pattern", ["(", "(?:[!-}]?){1000}" * 160])
def test_a_pattern_of_transactional_ids_that_cannot_be_used_is_named_without_any_right(transactions: Transactions, pattern: str) -> None:
    pytest.importorskip("re2")
    assert transactions.listed(pattern, Grants()) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


@pytest.mark.parametrize(("grants", "ids"), [(Grants(), []), (AllowAll(), ["a-1", "b-a-1"])])
def test_a_thread_matches_the_ids_that_the_client_may_describe(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch, grants: Authorizer, ids: list[str]
) -> None:
    calls: list[tuple[str, list[str], bool]] = []

    def matching_of(regex: str, names: Iterable[str]) -> list[str]:
        calls.append((regex, list(names), threading.current_thread() is threading.main_thread()))
        return ["a-1", "b-a-1"]

    monkeypatch.setattr(list_transactions, "matching_of", matching_of)
    assert transactions.listed(".*", grants) == (ErrorCode.NONE, ids)
    assert calls == [(".*", ids, False)]


def test_very_many_users_are_refused_in_steps_and_in_order() -> None:
    deletions = [ScramCredentialDeletion(name=f"u{number % 10}", mechanism=1) for number in range(50)]
    upsertions = [ScramCredentialUpsertion(name=name, mechanism=1) for name in ("z", "a")]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    assert steps_of(_refused(request, ErrorCode.NOT_CONTROLLER))[0] > len(deletions)
    refused = at_once(_refused(request, ErrorCode.NOT_CONTROLLER)).results
    assert [each.user for each in refused] == ["a", *(f"u{number}" for number in range(10)), "z"]
