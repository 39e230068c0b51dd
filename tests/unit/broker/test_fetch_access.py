"""Who may fetch what, and how much: access to topics, to the cluster, and the quota of consumers."""

import logging

import pytest

from ottla.broker.quotas.quota_type import QuotaType
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.audit_log import AuditLog
from ottla.broker.security.authorizer import Authorizer
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import AccessControlEntry, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.support.connections import ClientConnection
from tests.support.grants import Grants
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.replicas import TOPIC_ID, state

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

READS = (Operation.READ, ResourceType.TOPIC)
FOLLOWS = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


def alone(grants: Authorizer) -> HandlerBench:
    bench = HandlerBench()
    bench.replicas.say(*(state(isr=[0], replicas=[0, 1], index=index) for index in range(2)))
    bench.know(p0=0, p1=0)
    bench.connection = ClientConnection(grants)
    return bench


@on_a_loop
async def test_a_consumer_reads_what_it_may_read() -> None:
    grants = Grants()
    bench = alone(grants)
    bench.replicas.append(1, acks=1)
    assert [each.error_code for each in bench.fetch(0, 0).fetched] == [REFUSED, REFUSED]
    grants.change(READS)
    assert bench.fetch(0).fetched[0].records


@on_a_loop
async def test_a_refusal_is_told_last_and_hurries_nobody() -> None:
    grants = Grants(READS)
    bench = alone(grants)
    by_name = FetchTopic(topic="another", partitions=[FetchPartition(partition=0)])
    mine = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=[by_name, mine])
    asked = bench.ask(request, ApiKey.FETCH, 12)
    assert asked.waits
    bench.replicas.append(1, acks=1)
    assert [(each.partition_index, each.error_code) for each in asked.fetched] == [(0, 0), (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    grants.change()
    assert [each.error_code for each in bench.ask(request, ApiKey.FETCH, 12).fetched] == [REFUSED, REFUSED]


@on_a_loop
async def test_a_follower_needs_the_cluster_and_no_topic() -> None:
    grants = Grants(READS)
    bench = alone(grants)
    bench.replicas.append(1, acks=1)
    follower = ReplicaState(replica_id=1, replica_epoch=-1)
    assert [each.error_code for each in bench.fetch(0, 0, replica_state=follower).fetched] == [REFUSED, REFUSED]
    grants.change(FOLLOWS)
    assert [each.error_code for each in bench.fetch(0, 0, replica_state=follower).fetched] == [0, 0]


class CountingGrants(Grants):
    """Counts the questions."""

    questions = 0

    def is_authorized(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.questions += 1
        return super().is_authorized(principal, host, operation, resource_type, name)


@on_a_loop
async def test_a_follower_is_judged_once_and_an_unknown_id_is_told_to_followers_alone() -> None:
    grants = CountingGrants(READS)
    bench = alone(grants)
    topics = [
        FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        for topic_id in (TOPIC_ID, b"an unknown id ..", b"another unknown.")
    ]
    request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics, replica_state=ReplicaState(replica_id=1, replica_epoch=-1))
    assert [each.error_code for each in bench.ask(request, ApiKey.FETCH, 16).fetched] == [REFUSED] * 3
    assert grants.questions == 1
    grants.change(FOLLOWS)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert sorted(each.error_code for each in bench.ask(request, ApiKey.FETCH, 16).fetched) == [ErrorCode.NONE, unknown, unknown]
    assert grants.questions == 2


@on_a_loop
async def test_idle_partitions_of_a_session_are_refused_once_they_may_not_be_read() -> None:
    grants = Grants(READS)
    bench = alone(grants)
    session_id = bench.fetch(0, 0, session_epoch=0, max_wait_ms=0).response.session_id
    (session,) = bench.services.data.fetch_sessions.sessions.values()

    def told(epoch: int) -> list[tuple[int, int]]:
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch)
        return [(each.partition_index, each.error_code) for each in bench.ask(request, ApiKey.FETCH, 16).fetched]

    assert told(1) == []
    assert all(asked.is_idle for asked in session)
    grants.change()
    assert told(2) == [(0, REFUSED), (1, REFUSED)]
    grants.change(READS)
    assert told(3) == [(0, 0), (1, 0)]
    assert told(4) == []


def test_a_refused_topic_is_one_line_of_the_audit_log_for_each_fetch_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    lines: list[str] = []

    @on_a_loop
    async def fetch_twice() -> None:
        authorizer = AclAuthorizer(audit_log=AuditLog(lambda host, line: lines.append(line)))
        readable = AccessControlEntry("User:*", "*", Operation.READ, PermissionType.ALLOW)
        authorizer.set_acls(ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL), [readable])
        bench = alone(authorizer)
        refused = FetchTopic(topic="another", partitions=[FetchPartition(partition=0), FetchPartition(partition=1)])
        for offset in range(2):
            waiting = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)])
            asked = bench.ask(FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=[refused, waiting]), ApiKey.FETCH, 12)
            assert asked.waits
            bench.replicas.append(1, acks=1)
            assert [each.error_code for each in asked.fetched] == [0, REFUSED, REFUSED]

    fetch_twice()
    assert lines == 2 * [
        "Principal = User:ANONYMOUS is Denied Operation = Read from host = host on resource = Topic:LITERAL:another "
        "for request = Fetch with resourceRefCount = 1"
    ]


@on_a_loop
async def test_a_consumer_above_its_quota_is_told_to_wait_and_nothing_else() -> None:
    bench = alone(Grants(READS))
    bench.replicas.append(1, acks=1)
    whole = bench.fetch(0, session_epoch=0)
    size = len(whole.fetched[0].records or b"")
    assert bench.connection.counted == [(QuotaType.FETCH, size)]
    bench.connection.throttle_time_ms = 250
    session_id = whole.response.session_id
    request = FetchRequest(
        session_id=session_id,
        session_epoch=1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    answer = bench.ask(request, ApiKey.FETCH, 16).response
    assert (answer.throttle_time_ms, answer.session_id, answer.responses) == (250, session_id, [])
    answer = bench.fetch(0, session_epoch=0).response
    assert (answer.throttle_time_ms, answer.session_id, answer.responses) == (250, 0, [])
    bench.connection.throttle_time_ms = 0
    request.session_epoch = 2
    assert bench.ask(request, ApiKey.FETCH, 16).fetched[0].records


@on_a_loop
async def test_a_client_that_claims_to_be_a_follower_is_a_client() -> None:
    bench = alone(Grants(READS))
    bench.fetch(0, session_epoch=0, replica_state=ReplicaState(replica_id=1, replica_epoch=-1))
    assert (bench.connection.counted, bench.connection.exempted) == ([(QuotaType.FETCH, 0)], 0)
    assert [each.is_follower for each in bench.services.data.fetch_sessions.sessions.values()] == [False]


@on_a_loop
async def test_followers_do_not_count_against_the_quota_of_clients() -> None:
    bench = alone(Grants(FOLLOWS))
    bench.replicas.append(1, acks=1)
    assert bench.fetch(0, replica_state=ReplicaState(replica_id=1, replica_epoch=-1)).fetched[0].records
    assert bench.connection.counted == []
    assert bench.connection.exempted == 1


@on_a_loop
async def test_a_fetch_whose_session_is_not_known_counts_like_every_other() -> None:
    bench = alone(Grants(FOLLOWS))
    bench.connection.throttle_time_ms = 250
    lost = FetchRequest(session_id=999, session_epoch=1)
    answer = bench.ask(lost, ApiKey.FETCH, 17).response
    assert (answer.error_code, answer.throttle_time_ms) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 250)
    assert (bench.connection.counted, bench.connection.exempted) == ([(QuotaType.FETCH, 0)], 0)
    lost.replica_state = ReplicaState(replica_id=1, replica_epoch=-1)
    answer = bench.ask(lost, ApiKey.FETCH, 17).response
    assert (answer.error_code, answer.throttle_time_ms) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert (len(bench.connection.counted), bench.connection.exempted) == (1, 1)
