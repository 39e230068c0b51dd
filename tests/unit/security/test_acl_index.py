"""What ACLs allow: by table, and against a model that looks at every ACL."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.security import acl_index
from ottla.broker.security.access import Access
from ottla.broker.security.acl_authorizer import MAX_DECISIONS, AclAuthorizer, parse_super_users
from ottla.broker.security.acl_hosts import java_host
from ottla.broker.security.acl_index import AclIndex
from ottla.broker.security.authorizer import LONGEST_REMEMBERED
from ottla.broker.security.client import Client
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALICE = Principal("User", "alice")


def acl(text: str) -> AclBinding:
    """`Allow User:alice * Read LITERAL t`, of a topic."""
    permission, principal, host, operation, pattern_type, name = text.split(" ")
    entry = AccessControlEntry(principal, host, Operation[operation.upper()], PermissionType[permission.upper()])
    return AclBinding(ResourcePattern(TOPIC, name, PatternType[pattern_type]), entry)


def index_of(bindings: Iterable[AclBinding]) -> AclIndex:
    index = AclIndex()
    of_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for binding in bindings:
        of_pattern.setdefault(binding.pattern, []).append(binding.entry)
    for pattern, entries in of_pattern.items():
        index.set(pattern, entries)
    return index


def allowed(acls: str, question: str = "User:alice h Read t", *, without_acls: bool = False) -> bool:
    principal, host, operation, name = question.split(" ")
    index = index_of(map(acl, filter(None, acls.split("; "))))
    return index.decide(principal, host, Operation[operation.upper()], TOPIC, name, without_acls=without_acls)


@pytest.mark.parametrize(
    ("acls", "question", "answer"),
    [
        ("", "User:alice h Read t", False),
        ("Allow User:alice * Read LITERAL t", "User:alice h Read t", True),
        ("Allow User:alice * Read LITERAL t", "User:alice h Write t", False),
        ("Allow User:alice * Read LITERAL t", "User:bob h Read t", False),
        ("Allow User:alice * Read LITERAL t", "User:alice h Read t2", False),
        ("Allow User:alice h Read LITERAL t", "User:alice h Read t", True),
        ("Allow User:alice h Read LITERAL t", "User:alice i Read t", False),
        ("Allow User:* * Read LITERAL t", "User:bob h Read t", True),
        ("Allow User:* * Read LITERAL t", "Role:bob h Read t", True),
        ("Allow Role:* * Read LITERAL t", "Role:bob h Read t", False),
        ("Allow User:alice * All LITERAL t", "User:alice h Write t", True),
        ("Allow User:alice * Read LITERAL *", "User:alice h Read t", True),
        ("Allow User:alice * Read LITERAL *", "User:alice h Read *", True),
        ("Allow User:alice * Read PREFIXED pre-", "User:alice h Read pre-1", True),
        ("Allow User:alice * Read PREFIXED pre-", "User:alice h Read pre-", True),
        ("Allow User:alice * Read PREFIXED pre-", "User:alice h Read pre", False),
        ("Allow User:alice * Read PREFIXED *", "User:alice h Read t", False),
        ("Allow User:alice * Read LITERAL t; Deny User:alice * Read LITERAL t", "User:alice h Read t", False),
        ("Allow User:alice * Read LITERAL t; Deny User:* * All LITERAL *", "User:alice h Read t", False),
        ("Allow User:alice * Read LITERAL t; Deny User:alice i Read LITERAL t", "User:alice h Read t", True),
        ("Allow User:alice * Read LITERAL tt; Deny User:alice * Read PREFIXED t", "User:alice h Read tt", False),
        ("Allow User:alice * Read PREFIXED t; Allow User:bob * Read PREFIXED tt", "User:alice h Read ttt", True),
        *[(f"Allow User:alice * {each} LITERAL t", "User:alice h Describe t", True) for each in ("Read", "Write", "Delete", "Alter")],
        ("Allow User:alice * Create LITERAL t", "User:alice h Describe t", False),
        ("Allow User:alice * Alter_Configs LITERAL t", "User:alice h Describe_Configs t", True),
        ("Allow User:alice * Alter_Configs LITERAL t", "User:alice h Describe t", False),
        ("Allow User:alice * Describe LITERAL t; Deny User:alice * Read LITERAL t", "User:alice h Describe t", True),
        ("Allow User:alice * Read LITERAL t; Deny User:alice * Describe LITERAL t", "User:alice h Describe t", False),
    ],
)
def test_an_operation_is_allowed_by_the_acls_of_its_resource(acls: str, question: str, answer: bool) -> None:
    assert allowed(acls, question) is answer


def test_a_resource_without_acls_is_open_if_configured_so() -> None:
    assert allowed("", without_acls=True)
    assert allowed("Allow User:bob * Read LITERAL other", without_acls=True)
    assert not allowed("Allow User:bob * Read LITERAL t", without_acls=True)
    assert not allowed("Allow User:bob * Read PREFIXED t", without_acls=True)
    assert not allowed("Allow User:bob * Read LITERAL *", without_acls=True)


@pytest.mark.parametrize(
    ("acls", "answer"),
    [
        ("", False),
        ("Allow User:alice * Write LITERAL t", True),
        ("Allow User:alice * All PREFIXED t", True),
        ("Allow User:alice * Read LITERAL t", False),
        ("Allow User:alice * Write LITERAL t; Deny User:alice * Write LITERAL t", False),
        ("Allow User:alice * Write LITERAL t; Deny User:alice * Write LITERAL u", True),
        ("Allow User:alice * Write LITERAL t; Deny User:* * All LITERAL *", False),
        ("Allow User:alice * Write PREFIXED tt; Deny User:alice * Write PREFIXED t", False),
        ("Allow User:alice * Write PREFIXED t; Deny User:alice * Write PREFIXED tt", True),
        ("Allow User:alice * Write PREFIXED t; Deny User:alice * Write PREFIXED t", False),
        ("Allow User:alice * Write PREFIXED t; Deny User:alice * Write LITERAL t", True),
        ("Allow User:alice * Write LITERAL *; Deny User:alice * Write PREFIXED t", True),
    ],
)
def test_some_topic_may_be_written(acls: str, answer: bool) -> None:
    index = index_of(map(acl, filter(None, acls.split("; "))))
    assert index.decide_on_any("User:alice", "h", WRITE, TOPIC, without_acls=False) is answer
    assert not index.decide_on_any("User:alice", "h", WRITE, GROUP, without_acls=False)


def test_the_decision_about_any_resource_looks_at_no_acl_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(acl(f"Allow User:u{n} * Write {('LITERAL', 'PREFIXED')[n % 2]} t{n}") for n in range(100))
    asked: list[str] = []

    def noted(hosts: object, principal: str, *_: object) -> bool:
        asked.append(principal)
        return False

    monkeypatch.setattr(acl_index, "_has", noted)
    assert not index.decide_on_any("User:alice", "h", WRITE, TOPIC, without_acls=False)
    assert asked == []
    assert index.decide_on_any("User:u7", "h", WRITE, TOPIC, without_acls=False)
    assert index.decide_on_any("User:u8", "h", WRITE, TOPIC, without_acls=False)
    assert asked == ["User:u7", "User:u8"]


def test_where_resources_without_acls_are_open_only_a_deny_of_all_names_closes_all() -> None:
    assert index_of([]).decide_on_any("User:alice", "h", WRITE, TOPIC, without_acls=True)
    assert index_of([acl("Deny User:alice * Write PREFIXED t")]).decide_on_any("User:alice", "h", WRITE, TOPIC, without_acls=True)
    assert not index_of([acl("Deny User:alice * Write LITERAL *")]).decide_on_any("User:alice", "h", WRITE, TOPIC, without_acls=True)


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba"])
ENTRIES = st.builds(
    AccessControlEntry,
    st.sampled_from(["User:*", "User:alice", "User:bob", "Role:alice"]),
    st.sampled_from(["*", "h", "i"]),
    st.sampled_from([ALL, READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS]),
    st.sampled_from([PermissionType.ALLOW, PermissionType.DENY]),
)
BINDINGS = st.builds(
    AclBinding, st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED])), ENTRIES
)


def model(acls: Iterable[AclBinding], principal: str, host: str, operation: Operation, name: str, without_acls: bool) -> bool:
    """The decision, as the documentation has it."""

    def covers(pattern: ResourcePattern) -> bool:
        if pattern.resource_type is not TOPIC:
            return False
        return name.startswith(pattern.name) if pattern.pattern_type is PREFIXED else pattern.name in (name, "*")

    def is_for(entry: AccessControlEntry, *operations: Operation) -> bool:
        return entry.principal in (principal, "User:*") and entry.host in (host, "*") and entry.operation in (*operations, ALL)

    entries = [each.entry for each in acls if covers(each.pattern)]
    if not entries:
        return without_acls
    if any(is_for(each, operation) for each in entries if each.permission_type is PermissionType.DENY):
        return False
    implying = {
        DESCRIBE: [DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER],
        Operation.DESCRIBE_CONFIGS: [Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS],
    }.get(operation, [operation])
    return any(is_for(each, *implying) for each in entries if each.permission_type is PermissionType.ALLOW)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(BINDINGS, max_size=12),
    st.lists(BINDINGS, max_size=12),
    st.sampled_from(["User:alice", "User:bob", "Role:alice"]),
    st.sampled_from(["h", "i"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
    st.sampled_from(["a", "ab", "abc", "abcd", "b", "c", "*"]),
    st.booleans(),
)
def test_the_index_decides_as_the_model_before_and_after_a_change(
    before: list[AclBinding],
    after: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    name: str,
    without_acls: bool,
) -> None:
    index = index_of(before)
    assert index.decide(principal, host, operation, TOPIC, name, without_acls=without_acls) is model(
        before, principal, host, operation, name, without_acls
    )
    for pattern in {each.pattern for each in [*before, *after]}:
        index.set(pattern, [each.entry for each in after if each.pattern == pattern])
    assert index.decide(principal, host, operation, TOPIC, name, without_acls=without_acls) is model(
        after, principal, host, operation, name, without_acls
    )
    assert {*index.select(AclFilter(1, None, 1, None, None, 1, 1))} == {*after}


def model_of_any(bindings: list[AclBinding], principal: str, host: str, operation: Operation, without_acls: bool) -> bool:
    """Kafka's authorizeByResourceType, for each ACL in turn."""

    def names(permission: PermissionType, pattern_type: PatternType) -> set[str]:
        return {
            pattern.name
            for pattern, entry in bindings
            if (pattern.resource_type, entry.permission_type, pattern.pattern_type) == (TOPIC, permission, pattern_type)
            and entry.principal in (principal, "User:*")
            and entry.host in (host, "*")
            and entry.operation in (operation, ALL)
        }

    denied, denied_prefixes = names(PermissionType.DENY, LITERAL), names(PermissionType.DENY, PREFIXED)
    if "*" in denied:
        return False
    if without_acls:
        return True

    def is_open(name: str) -> bool:
        return not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

    literals = names(PermissionType.ALLOW, LITERAL)
    return (
        any(is_open(prefix) for prefix in names(PermissionType.ALLOW, PREFIXED))
        or "*" in literals
        or any(name not in denied and is_open(name) for name in literals)
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(BINDINGS, max_size=12),
    st.lists(BINDINGS, max_size=12),
    st.sampled_from(["User:alice", "User:bob", "Role:alice"]),
    st.sampled_from(["h", "i"]),
    st.sampled_from([READ, WRITE]),
    st.booleans(),
)
def test_the_index_decides_about_any_resource_as_the_model_before_and_after_a_change(
    before: list[AclBinding], after: list[AclBinding], principal: str, host: str, operation: Operation, without_acls: bool
) -> None:
    index = index_of(before)
    found = index.decide_on_any(principal, host, operation, TOPIC, without_acls=without_acls)
    assert found is model_of_any(before, principal, host, operation, without_acls)
    for pattern in {each.pattern for each in [*before, *after]}:
        index.set(pattern, [each.entry for each in after if each.pattern == pattern])
    found = index.decide_on_any(principal, host, operation, TOPIC, without_acls=without_acls)
    assert found is model_of_any(after, principal, host, operation, without_acls)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(BINDINGS, max_size=4), st.sampled_from([READ, WRITE, DESCRIBE]), st.sampled_from(["a", "ab", "abc", "b"])),
        max_size=20,
    )
)
def test_a_connection_decides_as_the_acls_do_whatever_changes_between_two_questions(
    steps: list[tuple[list[AclBinding], Operation, str]],
) -> None:
    authorizer = AclAuthorizer()
    access = Access(authorizer, Client("c", "h", 1, "PLAINTEXT", principal=ALICE))
    for changed, operation, name in steps:
        for pattern in {each.pattern for each in changed}:
            authorizer.set_acls(pattern, [each.entry for each in changed if each.pattern == pattern])
        decided = authorizer.index.decide("User:alice", "h", operation, TOPIC, name, without_acls=False)
        for _ in range(2):
            assert access.may(operation, TOPIC, name) is decided


def select(acls: str, **fields: object) -> set[str]:
    everything = {
        "resource_type": 1,
        "name": None,
        "pattern_type": 1,
        "principal": None,
        "host": None,
        "operation": 1,
        "permission_type": 1,
    }
    chosen = AclFilter(**(everything | fields))  # type: ignore[arg-type]  # fields by name
    texts = acls.split("; ")
    return {text for text in texts if acl(text) in [*index_of(map(acl, texts)).select(chosen)]}


def test_a_filter_selects_by_every_field() -> None:
    read, write, prefixed, everything = texts = [
        "Allow User:alice * Read LITERAL t",
        "Deny User:bob h Write LITERAL t",
        "Allow User:alice * All PREFIXED t",
        "Allow User:alice * Describe LITERAL *",
    ]
    acls = "; ".join(texts)
    assert select(acls) == {*texts}
    assert select(acls, resource_type=GROUP) == set()
    assert select(acls, resource_type=99) == set()
    assert select(acls, name="t") == {read, write, prefixed}
    assert select(acls, name="t", pattern_type=LITERAL) == {read, write}
    assert select(acls, name="tt", pattern_type=PatternType.MATCH) == {prefixed, everything}
    assert select(acls, name="t", pattern_type=PatternType.MATCH) == {*texts}
    assert select(acls, principal="User:bob") == {write}
    assert select(acls, principal="User:*") == set()
    assert select(acls, host="h") == {write}
    assert select(acls, operation=READ) == {read}
    assert select(acls, permission_type=PermissionType.DENY) == {write}


def test_a_filter_names_the_patterns_that_it_could_select_at_most() -> None:
    def named(resource_type: int, name: str | None, pattern_type: int) -> list[ResourcePattern]:
        return AclFilter(resource_type, name, pattern_type, None, None, 1, 1).named_patterns()

    assert named(TOPIC, "t", LITERAL) == [ResourcePattern(TOPIC, "t", LITERAL)]
    assert named(TOPIC, "t", PatternType.ANY) == [ResourcePattern(TOPIC, "t", LITERAL), ResourcePattern(TOPIC, "t", PREFIXED)]
    assert named(TOPIC, "t", PatternType.MATCH) == named(TOPIC, None, LITERAL) == named(1, "t", LITERAL) == named(99, "t", LITERAL) == []


def test_super_users_may_do_everything() -> None:
    authorizer = AclAuthorizer(parse_super_users("User:root; User:CN=a,O=b;"))
    denied = acl("Deny User:* * All LITERAL *")
    authorizer.set_acls(denied.pattern, [denied.entry])
    for name in ("root", "CN=a,O=b"):
        assert authorizer.is_authorized(Principal("User", name), "h", READ, TOPIC, "t")
        assert authorizer.is_authorized_on_any(Principal("User", name), "h", READ, TOPIC)
    assert not authorizer.is_authorized(ALICE, "h", READ, TOPIC, "t")
    assert not authorizer.is_authorized_on_any(ALICE, "h", READ, TOPIC)


def test_super_users_are_principals() -> None:
    assert parse_super_users("") == parse_super_users(" ") == frozenset()
    for text in ("root", "User:a;root", "User:a,root;b"):
        with pytest.raises(ValueError, match="expected a string in format principalType:principalName"):
            parse_super_users(text)


def test_a_changed_acl_counts_at_once_and_an_equal_one_changes_no_generation() -> None:
    authorizer = AclAuthorizer()
    granted = acl("Allow User:alice * Read LITERAL t")
    assert not authorizer.is_authorized(ALICE, "h", READ, TOPIC, "t")
    authorizer.set_acls(granted.pattern, [granted.entry])
    assert authorizer.is_authorized(ALICE, "h", READ, TOPIC, "t")
    generation = authorizer.generation
    authorizer.set_acls(granted.pattern, [granted.entry, granted.entry])
    assert authorizer.generation == generation
    authorizer.set_acls(granted.pattern, [])
    assert authorizer.generation > generation
    assert not authorizer.is_authorized(ALICE, "h", READ, TOPIC, "t")


def test_decisions_about_a_million_names_are_not_all_kept() -> None:
    authorizer = AclAuthorizer()
    for number in range(2 * MAX_DECISIONS + 1):
        authorizer.is_authorized(ALICE, "h", READ, TOPIC, f"t{number}")
        assert len(authorizer._decisions) <= MAX_DECISIONS


def test_the_decision_about_any_resource_is_kept_until_the_acls_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look at many patterns, and any client may ask for it."""
    authorizer = AclAuthorizer()
    pattern = ResourcePattern(TOPIC, "t", LITERAL)
    authorizer.set_acls(pattern, [AccessControlEntry("User:alice", "*", WRITE, PermissionType.ALLOW)])
    decide = AclIndex.decide_on_any
    asked: list[str] = []

    def counting(index: AclIndex, principal: str, *rest: Any, **more: Any) -> bool:
        asked.append(principal)
        return decide(index, principal, *rest, **more)

    monkeypatch.setattr(AclIndex, "decide_on_any", counting)
    for _ in range(3):
        assert authorizer.is_authorized_on_any(ALICE, "h", WRITE, TOPIC)
        assert not authorizer.is_authorized_on_any(Principal("User", "bob"), "h", WRITE, TOPIC)
        assert not authorizer.is_authorized_on_any(ALICE, "h", READ, TOPIC)
    assert asked == ["User:alice", "User:bob", "User:alice"]
    authorizer.set_acls(pattern, [])
    assert not authorizer.is_authorized_on_any(ALICE, "h", WRITE, TOPIC)


def test_a_decision_about_a_long_name_is_not_kept() -> None:
    authorizer = AclAuthorizer()
    longer = "t" * (LONGEST_REMEMBERED + 1)
    authorizer.set_acls(ResourcePattern(TOPIC, "t", PREFIXED), [AccessControlEntry("User:alice", "*", READ, PermissionType.ALLOW)])
    assert authorizer.is_authorized(ALICE, "h", READ, TOPIC, longer)
    assert not authorizer.is_authorized(ALICE, "h", WRITE, TOPIC, longer)
    assert not authorizer._decisions


@pytest.mark.parametrize(
    ("host", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff:a0", "2001:db8:0:0:0:0:ff:a0"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_hosts_are_written_as_java_writes_them(host: str, java: str) -> None:
    assert java_host(host) == java
    authorizer = AclAuthorizer()
    pattern = ResourcePattern(TOPIC, "t", LITERAL)
    authorizer.set_acls(pattern, [AccessControlEntry("User:alice", java, WRITE, PermissionType.ALLOW)])
    assert authorizer.is_authorized(ALICE, host, WRITE, TOPIC, "t")
    assert authorizer.is_authorized_on_any(ALICE, host, WRITE, TOPIC)
    assert not authorizer.is_authorized(ALICE, "10.0.0.8", WRITE, TOPIC, "t")


@pytest.mark.parametrize(
    ("written", "client", "matches"),
    [
        ("::1", "::1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("0000:0000:0000:0000:0000:0000:0000:0001", "::1", True),
        ("FE80::A", "fe80::a", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("::ffff:10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "::ffff:10.0.0.7", True),
        ("::1", "::2", False),
        ("::", "127.0.0.1", False),
        ("010.0.0.7", "10.0.0.7", False),
        ("[::1]", "::1", False),
        ("localhost", "127.0.0.1", False),
    ],
)
@pytest.mark.parametrize("permission", [PermissionType.DENY, PermissionType.ALLOW])
def test_the_host_of_an_acl_is_compared_as_an_address_and_listed_as_written(
    written: str, client: str, matches: bool, permission: PermissionType
) -> None:
    authorizer = AclAuthorizer()
    pattern = ResourcePattern(TOPIC, "t", LITERAL)
    entry = AccessControlEntry("User:alice", written, WRITE, permission)
    others = [AccessControlEntry("User:alice", "*", WRITE, PermissionType.ALLOW)] if permission is PermissionType.DENY else []
    authorizer.set_acls(pattern, [entry, *others])
    is_allowed = matches if permission is PermissionType.ALLOW else not matches
    assert authorizer.is_authorized(ALICE, client, WRITE, TOPIC, "t") is is_allowed
    assert authorizer.is_authorized_on_any(ALICE, client, WRITE, TOPIC) is is_allowed
    assert entry in authorizer.index.entries(pattern)


@pytest.mark.parametrize(
    ("written", "client", "is_denied", "is_allowed"),
    [
        ("fe80::1%2", "fe80::1%2", True, True),
        ("fe80:0:0:0:0:0:0:1%2", "fe80::1%2", True, True),
        ("fe80::1%2", "fe80::1%3", True, False),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%2", True, False),
        ("fe80::1%eth0", "fe80::1", True, False),
        ("fe80::1", "fe80::1%2", True, False),
        ("fe80::1%2", "fe80::2%2", False, False),
        ("*%:", "fe80::1%2", False, False),
        ("*%2", "10.0.0.7", False, False),
    ],
)
def test_a_deny_counts_on_every_interface_and_an_allow_only_on_its_own(
    written: str, client: str, is_denied: bool, is_allowed: bool
) -> None:
    """Apache Kafka compares the texts, so that a Deny with another interface, or with its name, never matches."""
    pattern = ResourcePattern(TOPIC, "t", LITERAL)
    denying, allowing = AclAuthorizer(), AclAuthorizer()
    everyone = AccessControlEntry("User:alice", "*", WRITE, PermissionType.ALLOW)
    denying.set_acls(pattern, [AccessControlEntry("User:alice", written, WRITE, PermissionType.DENY), everyone])
    allowing.set_acls(pattern, [AccessControlEntry("User:alice", written, WRITE, PermissionType.ALLOW)])
    for authorizer, expected in ((denying, not is_denied), (allowing, is_allowed)):
        assert authorizer.is_authorized(ALICE, client, WRITE, TOPIC, "t") is expected
        assert authorizer.is_authorized_on_any(ALICE, client, WRITE, TOPIC) is expected
