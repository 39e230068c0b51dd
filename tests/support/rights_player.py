"""Asks one broker everything in the grid of rights, and brings its answers into a form that does not depend on the broker.

The broker has an authorizer, the super users ADMIN and ANONYMOUS, and a SASL listener with PLAIN (`properties`). CLIENT asks; before each
request ADMIN gives the rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema.registry import api
from ottla.protocol.uuid import ZERO_UUID
from tests.support.acl_requests import ALLOW, AUTHORIZER, EVERYTHING, LITERAL
from tests.support.broker_process import eventually
from tests.support.golden_replay import comparable, request_frame
from tests.support.messages import message
from tests.support.refusals import THE_ID
from tests.support.request_histories import BROKER_LOGGER
from tests.support.rights_grid import CASES, DOOMED_ID, OWNER, Case, Rights
from tests.support.wire_client import WireClient, a_wire_client

ADMIN, CLIENT = "admin", "client"
LISTENER = "CLIENTS"
TOPICS = {"topic": THE_ID, "doomed-by-name": b"", "doomed-by-id": DOOMED_ID}
"""The topics that exist, with what stands for their ids in requests."""
GROUP, TRANSACTION = 0, 1
MEMBER_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JAVA_REQUEST = re.compile(r"Request Request\(.*\) is not authorized\.", re.DOTALL)
DECISION = re.compile(r"Principal = User:client is (?:Allowed|Denied) .* with resourceRefCount = \d+")
TOKEN_ID = re.compile(r"(DelegationToken:LITERAL:)\S+")
CLOSED = "the connection was closed"
SOME = "some"
NOT_COMPARED = frozenset(
    {"cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes", "partition_size", "session_id", "member_id", "last_timestamp"}
    | {"token_id", "hmac", "issue_timestamp", "expiry_timestamp", "max_timestamp"}
    | {"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"}
    | {"producer_id_start", "throttle_time_ms", "broker_epoch", "timestamp_ms"}
)
"""Fields that have another value in every broker, or at every time."""

Answer = Any
"""Nested dicts and lists, or CLOSED."""


def properties(port: int, client_port: int) -> dict[str, str]:
    """The configuration of the broker; `port` is of the listener between brokers. Port 0 takes any."""
    users = " ".join(f'user_{name}="{name}"' for name in (ADMIN, CLIENT))
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},{LISTENER}://127.0.0.1:{client_port}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "broker.id": "0",
        "broker.rack": "r0",
        "delegation.token.secret.key": "secret",
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",
    }


@contextmanager
def a_client(port: int, user: str) -> Iterator[WireClient]:
    """A client that has authenticated."""
    with a_wire_client(port) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2).error_code == 0
        yield client


class Played(NamedTuple):
    """An answer, and the lines of the audit log about it, sorted."""

    case: Case
    rights: Rights
    answer: Answer
    log: list[str]


class RightsPlayer:
    """See the module. `port` is that of the listener with SASL; `new_lines` gives the lines that were logged since it was called last."""

    def __init__(self, port: int, new_lines: Callable[[], list[str]]) -> None:
        self._port = port
        self._new_lines = new_lines
        self._ids: dict[bytes, bytes] = {}

    def play(self) -> Iterator[Played]:
        """All answers, in the order in which the requests are sent."""
        with a_client(self._port, ADMIN) as admin:
            self._prepare(admin)
            for case in CASES:
                for rights in case.sets_of_rights():
                    grant(admin, rights)
                    self._new_lines()
                    answer = self._ask(case)
                    yield Played(case, rights, answer, sorted(self._decisions()))
                    if case.note.startswith("that creates") and rights in case.suffices:
                        topic = case.request["topics"][0]["name"]
                        eventually(lambda topic=topic: self._exists(admin, topic))  # the next question is about it

    def _decisions(self) -> list[str]:
        return [TOKEN_ID.sub(r"\1some", line) for line in DECISION.findall("\n".join(self._new_lines()))]

    def _prepare(self, admin: WireClient) -> None:
        """Create the topics and the internal ones, and wait until the coordinators serve."""
        level = AlterableConfig(name="kafka.authorizer.logger", config_operation=0, value="DEBUG")
        resource = AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="0", configs=[level])
        (changed,) = admin.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert changed.error_code == 0, changed
        new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
        assert all(each.error_code == 0 for each in admin.ask(CreateTopicsRequest(topics=new, timeout_ms=30_000), 7).topics)
        for key, kind in ("g", GROUP), ("t", TRANSACTION):
            eventually(lambda key=key, kind=kind: self._coordinator(admin, key, kind) == 0)
        eventually(lambda: admin.ask(OffsetFetchRequest(group_id="g", topics=None), 7).error_code == 0)
        begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
        eventually(lambda: admin.ask(begin, 4).error_code == 0)
        token = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=OWNER)
        assert admin.ask(token, 3).error_code == 0
        eventually(lambda: len(admin.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens) == 1)
        found = admin.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS]), 12)
        self._ids = {TOPICS[topic.name]: topic.topic_id for topic in found.topics if TOPICS[topic.name]}

    @staticmethod
    def _exists(admin: WireClient, topic: str) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return not admin.ask(request, 12).topics[0].error_code

    @staticmethod
    def _coordinator(admin: WireClient, key: str, kind: int) -> int:
        return int(admin.ask(FindCoordinatorRequest(key=key, key_type=kind), 3).error_code)

    def _ask(self, case: Case) -> Answer:
        frame = request_frame(message(api(case.key).request, case.request), case.key, case.version)[4:]
        for placeholder, topic_id in self._ids.items():
            frame = frame.replace(placeholder, topic_id)
        with a_client(self._port, CLIENT) as client:
            try:
                answer = client.send(frame, api(case.key), case.version)
            except ConnectionError:
                return CLOSED
        return comparable(answer, self._rewrite)

    def _rewrite(self, name: str, value: Any) -> Any:
        if name in NOT_COMPARED and value not in (-1, None, "", b"", 0):
            return SOME
        match name:
            case "topic_id" | "topic_ids[]":
                return "none" if value == ZERO_UUID else next((p.hex() for p, known in self._ids.items() if known == value), SOME)
            case "producer_id" if value not in (-1, 0, 1, 999_999):
                return SOME
            case "error_message" if value:
                return JAVA_REQUEST.sub("Java's text of the request", value)
            case "records" if value is not None:
                return "records" if value else "no records"
            case "configs" if isinstance(value, list):
                return [each.get("name") for each in sorted(value, key=repr)]
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return sorted(value, key=repr)
        return value


def grant(admin: WireClient, rights: Rights) -> None:
    """Give CLIENT just these rights."""
    principal = f"User:{CLIENT}"
    deleted = admin.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**(EVERYTHING | {"principal_filter": principal}))]), 3)
    assert [each.error_code for each in deleted.filter_results] == [0]
    creations = []
    for right in rights:
        operation, resource_type, name = right.split(" ", 2)
        creations.append(
            AclCreation(
                resource_type=ResourceType[resource_type],
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal=principal,
                host="*",
                operation=Operation[operation],
                permission_type=ALLOW,
            )
        )
    if creations:
        created = admin.ask(CreateAclsRequest(creations=creations), 3)
        assert all(each.error_code == 0 for each in created.results), created


def name_of(case: Case, rights: Rights) -> str:
    """The name of a question."""
    return f"{case.name} with {', '.join(rights) or 'no right'}"


def line_of(played: Played) -> Mapping[str, Any]:
    """A line of the recording."""
    return {"question": name_of(played.case, played.rights), "answer": played.answer, "log": played.log}
