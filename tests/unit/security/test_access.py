"""What a connection remembers of its authorizer's decisions, and what is known of its client."""

from ottla.broker.security import access
from ottla.broker.security.access import Access
from ottla.broker.security.authorizer import LONGEST_REMEMBERED
from ottla.broker.security.client import Client
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import Operation, ResourceType
from tests.support.connections import ClientConnection

READ, WRITE, DESCRIBE, CLUSTER_ACTION = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CLUSTER_ACTION
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


class Asked:
    """An authorizer that allows what is in `allowed`, and keeps what it was asked."""

    audit_log = None

    def __init__(self) -> None:
        self.generation = 0
        self.allowed: set[tuple[Operation, ResourceType, str]] = set()
        self.asked: list[tuple[str, str, Operation, ResourceType, str]] = []

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((str(principal), host, operation, resource_type, name))
        return (operation, resource_type, name) in self.allowed

    def on_log_levels_changed(self) -> None: ...

    def is_authorized_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        return any((operation, resource_type) == each[:2] for each in self.allowed)


def test_the_authorizer_learns_who_asks_from_where_and_for_what() -> None:
    authorizer = Asked()
    connection = ClientConnection(authorizer, client_host="10.0.0.7")
    assert not connection.access.may(WRITE, TOPIC, "t")
    assert not connection.access.may(CLUSTER_ACTION, CLUSTER)
    assert authorizer.asked == [
        ("User:ANONYMOUS", "10.0.0.7", WRITE, TOPIC, "t"),
        ("User:ANONYMOUS", "10.0.0.7", CLUSTER_ACTION, CLUSTER, "kafka-cluster"),
    ]


def test_whether_a_client_may_act_as_a_broker_is_asked_each_time() -> None:
    authorizer = Asked()
    access_ = ClientConnection(authorizer).access
    assert not access_.acts_for_cluster()
    authorizer.allowed = {(CLUSTER_ACTION, CLUSTER, "kafka-cluster")}
    assert access_.acts_for_cluster()


def test_what_may_be_read_or_written_is_asked_for_once() -> None:
    authorizer = Asked()
    authorizer.allowed = {(READ, TOPIC, "t")}
    may = ClientConnection(authorizer).access.may
    for _ in range(3):
        assert may(READ, TOPIC, "t")
        assert not may(WRITE, TOPIC, "t")
        assert not may(READ, GROUP, "t")
        assert not may(READ, TOPIC, "u")
    assert len(authorizer.asked) == 4


def test_what_may_be_described_is_not_remembered() -> None:
    authorizer = Asked()
    may = ClientConnection(authorizer).access.may
    assert not may(DESCRIBE, TOPIC, "t")
    authorizer.allowed = {(DESCRIBE, TOPIC, "t")}
    assert may(DESCRIBE, TOPIC, "t")


def test_a_decision_holds_until_the_generation_moves() -> None:
    authorizer = Asked()
    may = ClientConnection(authorizer).access.may
    assert not may(READ, TOPIC, "t")
    authorizer.allowed = {(READ, TOPIC, "t")}
    assert not may(READ, TOPIC, "t")
    authorizer.generation += 1
    assert may(READ, TOPIC, "t")
    authorizer.allowed = set()
    authorizer.generation += 1
    assert not may(READ, TOPIC, "t")


def test_another_principal_is_asked_about_anew() -> None:
    authorizer = Asked()
    connection = ClientConnection(authorizer)
    assert not connection.access.may(READ, TOPIC, "t")
    connection.client.principal = Principal("User", "alice")
    connection.access.forget()
    assert not connection.access.may(READ, TOPIC, "t")
    assert [principal for principal, *_ in authorizer.asked] == ["User:ANONYMOUS", "User:alice"]


def test_a_client_that_names_a_million_topics_costs_no_more_memory_than_one_that_names_a_few_thousand() -> None:
    authorizer = Asked()
    its_access = ClientConnection(authorizer).access
    for number in range(3 * access.MAX_DECISIONS):
        its_access.may(READ, TOPIC, f"t-{number}")
        assert sum(len(names) for names in its_access.decisions.values()) <= access.MAX_DECISIONS
    assert len(authorizer.asked) == 3 * access.MAX_DECISIONS


def test_decisions_about_long_names_are_not_remembered() -> None:
    authorizer = Asked()
    longest, longer = "t" * LONGEST_REMEMBERED, "t" * (LONGEST_REMEMBERED + 1)
    authorizer.allowed = {(READ, TOPIC, longest), (READ, TOPIC, longer)}
    its_access = ClientConnection(authorizer).access
    for _ in range(2):
        assert its_access.may(READ, TOPIC, longest)
        assert its_access.may(READ, TOPIC, longer)
    assert [name for *_, name in authorizer.asked] == [longest, longer, longer]


def test_authorized_operations_are_bits() -> None:
    authorizer = Asked()
    authorizer.allowed = {(READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DESCRIBE, CLUSTER, "kafka-cluster")}
    its_access = ClientConnection(authorizer).access
    assert its_access.operations(GROUP, "g") == 1 << 3 | 1 << 8
    assert its_access.operations(CLUSTER) == 1 << 8
    assert its_access.operations(TOPIC, "t") == 0


def test_any_resource_of_a_type_is_for_the_authorizer_to_find() -> None:
    authorizer = Asked()
    its_access = ClientConnection(authorizer).access
    assert not its_access.may_on_any(WRITE, TOPIC)
    authorizer.allowed = {(WRITE, TOPIC, "t")}
    assert its_access.may_on_any(WRITE, TOPIC)


def test_a_client_id_is_decoded_once_and_kept_while_it_is_the_same() -> None:
    client = Client("c", "host", 1, "PLAINTEXT")
    assert client.client_id is None
    client.identify(b"producer-1")
    first = client.client_id
    assert first == "producer-1"
    client.identify(bytes(bytearray(b"producer-1")))
    assert client.client_id is first
    client.identify(b"")
    assert client.client_id == ""
    client.identify(b"\xff")
    assert client.client_id == "\ufffd"
    client.identify(None)
    assert client.client_id is None


def test_an_access_is_of_one_client() -> None:
    authorizer = Asked()
    authorizer.allowed = {(READ, TOPIC, "t")}
    one, other = (Access(authorizer, Client("c", host, 1, "PLAINTEXT")) for host in ("a", "b"))
    assert one.may(READ, TOPIC, "t")
    assert other.may(READ, TOPIC, "t")
    assert [host for _, host, *_ in authorizer.asked] == ["a", "b"]
