"""ACLs in the metadata store: the znodes of Apache Kafka, brokers that write at the same time, and what becomes of bad nodes."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security import acl_admin
from ottla.broker.security.acl_admin import AclAdmin, _Deletion
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.principals import Principal
from ottla.controller.admin.acl_store import AclStore, StoredPattern
from ottla.controller.errors import BadVersion, StoreError
from ottla.controller.store.metadata_store import Multi, Request, Result, SetData
from ottla.controller.znodes.security import AclEntry
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.acls import AccessControlEntry, AclFilter, Operation, PatternType, PermissionType, ResourceType
from tests.support.acl_brokers import BODY, EVERYTHING, RECORDED, T_READ, Brokers, acl, acls_of, create, run
from tests.support.controlled_cluster import until
from tests.support.pauses import without_pauses

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper" / "security.json"
ALICE = Principal("User", "alice")


def test_znodes_are_those_of_apache_kafka() -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        for binding in RECORDED:
            await create(admin, binding)
        group = AclFilter(ResourceType.GROUP, "g", PatternType.LITERAL, None, None, 1, 1)
        none = group._replace(name="none")
        assert await admin.delete([group, none]) == [[(RECORDED[5], None)], []]
        await create(admin, RECORDED[5])
        recorded = {node["path"]: node["data"] for node in json.loads(GOLDEN.read_text())["tree"] if node["path"].startswith("/kafka-acl")}
        assert brokers.acl_nodes() == recorded

    run(scenario)


def test_a_broker_reads_the_acls_of_apache_kafka() -> None:
    async def scenario(brokers: Brokers) -> None:
        store = brokers.ensemble.store()
        await store.open_session()
        for node in json.loads(GOLDEN.read_text())["tree"]:
            if node["path"].startswith("/kafka-acl"):
                await store.create(node["path"], None if node["data"] is None else node["data"].encode())
        admin = await brokers.add()
        assert acls_of(admin) == {*RECORDED}

    run(scenario)


def test_every_broker_learns_of_changes() -> None:
    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await create(one, *RECORDED)
        assert acls_of(one) == {*RECORDED}
        await until(lambda: acls_of(other) == {*RECORDED})
        generation = one.authorizer.generation
        await other.delete([EVERYTHING])
        await until(lambda: not acls_of(one))
        assert one.authorizer.generation > generation
        assert [path for path in brokers.acl_nodes() if path.startswith("/kafka-acl/Topic/")] == []

    run(scenario)


def test_a_change_is_not_missed_while_the_acls_are_read_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.add()
        read_all = AclStore.read_all

        async def slow(store: AclStore, _: object) -> list[tuple[StoredPattern, list[AclEntry]]]:
            found = await read_all(store)
            await create(one, T_READ, RECORDED[2])
            return found

        monkeypatch.setattr(AclStore, "read_all", slow)
        other = await brokers.add()
        await until(lambda: acls_of(other) == {T_READ, RECORDED[2]})

    run(scenario)


@pytest.mark.slow
def test_brokers_that_add_to_one_pattern_at_the_same_time_lose_nothing() -> None:
    async def scenario(brokers: Brokers) -> None:
        admins = [await brokers.add() for _ in range(4)]
        added = [acl("TOPIC", "t", "LITERAL", f"User:u{number}", "*", "READ", "ALLOW") for number in range(4)]
        await asyncio.gather(*(create(admin, binding) for admin, binding in zip(admins, added, strict=True)))
        await until(lambda: all(acls_of(admin) == {*added} for admin in admins))

    run(scenario)


def test_an_acl_that_exists_is_not_written_again() -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        await create(admin, T_READ, T_READ)
        before = brokers.acl_nodes()
        await create(admin, T_READ)
        assert brokers.acl_nodes() == before
        assert sum(path.startswith("/kafka-acl-changes/") for path in before) == 1

    run(scenario)


@pytest.mark.slow
def test_patterns_of_one_request_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        store = brokers.stores[0]
        pipeline, sizes = store.pipeline, []

        async def counted(requests: Sequence[Request]) -> list[Result | StoreError]:
            sizes.append(len(requests))
            return await pipeline(requests)

        monkeypatch.setattr(store, "pipeline", counted)
        added = [acl("TOPIC", f"t{number}", "LITERAL", "User:u", "*", "READ", "ALLOW") for number in range(1000)]
        await create(admin, *added)
        assert acls_of(admin) == {*added}
        assert len(sizes) < 100  # some look for notifications
        (deleted,) = await admin.delete([EVERYTHING])
        assert deleted == [(binding, None) for binding in added]

    run(scenario)


def test_an_acl_belongs_to_the_first_filter_that_selects_it() -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        await create(admin, *RECORDED)
        match = AclFilter(ResourceType.TOPIC, "pre-1", PatternType.MATCH, None, None, 1, 1)
        first, second, third = await admin.delete([match, EVERYTHING, EVERYTHING])
        assert {binding for binding, _ in first} == {RECORDED[2], RECORDED[3]}
        assert {binding for binding, _ in second} == {*RECORDED} - {RECORDED[2], RECORDED[3]}
        assert third == []

    run(scenario)


def test_filters_that_each_name_a_resource_are_not_compared_with_each_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1

        filters = [AclFilter(ResourceType.TOPIC, f"t{number}", PatternType.ANY, None, None, 1, 1) for number in range(200)]
        monkeypatch.setattr(acl_admin, "pause", pause)
        assert await admin.delete(filters) == [[] for _ in filters]
        assert 0 < pauses < 10 * len(filters)

    run(scenario)


PRINCIPALS = st.sampled_from(["User:a", "User:b"])
HOSTS = st.sampled_from(["*", "1.2.3.4"])


@given(
    st.lists(
        st.builds(
            AccessControlEntry, PRINCIPALS, HOSTS, st.sampled_from([Operation.READ, Operation.ALL]), st.sampled_from([*PermissionType][2:])
        ),
        unique=True,
    ),
    st.lists(
        st.builds(
            AclFilter,
            st.just(1),
            st.none(),
            st.just(1),
            st.none() | PRINCIPALS,
            st.none() | HOSTS,
            st.sampled_from([Operation.ANY, Operation.READ, Operation.WRITE, 99]),
            st.sampled_from([*PermissionType][1:]),
        ),
        max_size=4,
    ),
)
def test_the_first_filter_that_selects_an_entry_deletes_it(entries: list[AccessControlEntry], filters: list[AclFilter]) -> None:
    deletion = _Deletion(enumerate(filters))
    kept = deletion.change(entries)
    first = {entry: [number for number, each in enumerate(filters) if each.matches_entry(entry)] for entry in entries}
    assert deletion.selected == {entry: numbers[0] for entry, numbers in first.items() if numbers}
    assert kept == [entry for entry, numbers in first.items() if not numbers]


def test_a_filter_that_names_a_resource_deletes_what_this_broker_has_not_heard_of() -> None:
    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await other.close()
        await create(one, T_READ)
        assert acls_of(other) == set()
        named = AclFilter(ResourceType.TOPIC, "t", PatternType.ANY, None, None, 1, 1)
        assert await other.delete([EVERYTHING, named]) == [[(T_READ, None)], []]

    run(scenario)


def test_a_principal_without_a_type_fails_alone() -> None:
    async def scenario(brokers: Brokers) -> None:
        admin = await brokers.add()
        bad = acl("GROUP", "g", "LITERAL", "alice", "*", "READ", "ALLOW")
        failure, success = await admin.create([bad, T_READ])
        assert isinstance(failure, ValueError)
        assert success is None
        assert acls_of(admin) == {T_READ}

    run(scenario)


def test_a_write_that_others_always_forestall_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        without_pauses()  # the broker's own look at the changed node would be counted, too
        admin = await brokers.add()
        store = brokers.stores[0]
        pipeline, count = store.pipeline, 0

        async def forestalled(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal count
            outcomes = await pipeline(requests)
            if len(requests) == 1 and getattr(requests[0], "path", "") == "/kafka-acl/Topic/t":
                count += 1
                body = f'{{"acls":[{{"principal":"User:{count}","permissionType":"Allow","host":"*","operation":"Read"}}],"version":1}}'
                (stat,) = await pipeline([SetData("/kafka-acl/Topic/t", body.encode())])
                assert stat is not None
            return outcomes

        await create(admin, T_READ)
        monkeypatch.setattr(store, "pipeline", forestalled)
        (failure,) = await admin.create([RECORDED[0]])
        assert isinstance(failure, BadVersion)
        assert count == 11

    run(scenario)


@pytest.mark.parametrize(("random", "pause_s"), [(0.0, 0.1), (1.0, 0.15)])
def test_a_write_that_others_forestall_is_repeated_after_the_pause_of_apache_kafka(
    monkeypatch: pytest.MonkeyPatch, random: float, pause_s: float
) -> None:
    async def scenario(brokers: Brokers) -> None:
        store = brokers.ensemble.store()
        await store.open_session()
        admin = AclAdmin(store, brokers.clock, AclAuthorizer(), lambda: random)
        await admin.load()
        pipeline, sleep = store.pipeline, asyncio.sleep
        pauses: list[float] = []

        async def refusing(requests: Sequence[Request]) -> list[Result | StoreError]:
            if isinstance(requests[0], Multi) and not pauses:
                return [BadVersion("/kafka-acl/Topic/t")]
            return await pipeline(requests)

        async def noting(seconds: float) -> None:
            if seconds:
                pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(store, "pipeline", refusing)
        with monkeypatch.context() as patches:
            patches.setattr(asyncio, "sleep", noting)
            await create(admin, T_READ)
        assert pauses == [pytest.approx(pause_s)]
        await admin.close()

    run(scenario)


@pytest.mark.parametrize(
    ("permission", "operation"), [("Allow", "IdempotentWrite"), ("ALLOW", "IDEMPOTENTWRITE"), ("allow", "idempotentwrite")]
)
def test_names_of_operations_and_permissions_are_read_in_any_case(permission: str, operation: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        await create(await brokers.add(), T_READ)
        await brokers.stores[0].set("/kafka-acl/Topic/t", (BODY % (permission, operation)).encode())
        assert acls_of(await brokers.add()) == {acl("TOPIC", "t", "LITERAL", "User:a", "*", "IDEMPOTENT_WRITE", "ALLOW")}

    run(scenario)


NO_TEXT = '{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":%s}]}'


@pytest.mark.parametrize(
    "body",
    ["", "x", "[]", '{"acls":[{}]}', BODY % ("Allow", "Fly"), BODY % ("Maybe", "Read"), NO_TEXT % "3", NO_TEXT % "[]", NO_TEXT % "null"],
)
def test_acls_that_cannot_be_read_stop_the_start(body: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        await create(await brokers.add(), T_READ)
        await brokers.stores[0].set("/kafka-acl/Topic/t", body.encode())
        with pytest.raises(MalformedZNode, match="/kafka-acl/Topic/t"):
            await brokers.add()

    run(scenario)


@pytest.mark.parametrize("notification", [b"x", b"FISH:t", b"\xff:t", b""])
def test_a_bad_notification_is_passed_over(notification: bytes) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await brokers.stores[0].create("/kafka-acl-changes/acl_changes_", notification, sequential=True)
        await brokers.stores[0].create("/kafka-acl-extended-changes/acl_changes_", notification, sequential=True)
        await create(one, T_READ, RECORDED[2])
        await until(lambda: acls_of(other) == {T_READ, RECORDED[2]})

    run(scenario)


def test_a_changed_node_that_cannot_be_read_leaves_what_was_known(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, other = await brokers.add(), await brokers.add()
        await create(one, T_READ)
        await until(lambda: acls_of(other) == {T_READ})
        await brokers.stores[0].set("/kafka-acl/Topic/t", b"x")
        await brokers.stores[0].create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
        await until(lambda: "a change of ACLs is lost" in caplog.text)
        assert acls_of(other) == {T_READ}
        assert not other.authorizer.is_authorized(ALICE, "h", Operation.WRITE, ResourceType.TOPIC, "t")

    run(scenario)


def test_nodes_of_unknown_resource_types_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(brokers: Brokers) -> None:
        await create(await brokers.add(), T_READ)
        await brokers.stores[0].ensure_path("/kafka-acl/Fish/f")
        assert acls_of(await brokers.add()) == {T_READ}
        assert "ignoring the ACLs of the unknown resource type Fish" in caplog.text

    run(scenario)
