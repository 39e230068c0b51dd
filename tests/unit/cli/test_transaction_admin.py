"""What the client asks coordinators and leaders about transactions, and what it makes of their answers."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ottla.cli.doctor.kinds import reasons
from ottla.cli.main import main
from ottla.client.cluster import Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.hanging import HangingSearch, OpenTransaction, find_hanging, hanging, late_transactions
from ottla.client.transaction_admin import (
    DescribedTransaction,
    ListedTransaction,
    Marker,
    Producer,
    UnknownTransactionalId,
    abort_transaction,
    describe_producers,
    describe_transaction,
    forget_transaction,
    list_transactions,
    marker_of_transaction,
    reachable_producers,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import describe_producers as producers_api
from ottla.protocol.messages import describe_transactions as describe_api
from ottla.protocol.messages import list_transactions as list_api
from ottla.protocol.messages import write_txn_markers as markers_api
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000

Answer = Callable[[int, Any], Message]


class ScriptedConnection(Connection):
    """Knows only which version of an API it would speak."""

    def __init__(self, version: int) -> None:
        self.address = Address("there", 9092)
        self._version = version

    def version_of(self, key: ApiKey) -> int:
        return self._version

    def close(self) -> None:
        """There is nothing to close."""


class ScriptedCluster(Cluster):
    """A cluster of brokers 1 and 2; broker 2 leads and coordinates everything. `answers` is called for every request with the broker that
    it goes to; `asked` has all of them. Brokers in `silent` do not answer; `unanswered` has one of them for each request."""

    def __init__(self, *answers: Answer, version: int = 1) -> None:
        super().__init__("there:9092", timeout_seconds=2)
        self.asked: list[tuple[int, Any]] = []
        self.coordinator_id = 2
        self.leaders: dict[TopicPartition, int] = {}
        self.silent: set[int] = set()
        self.unanswered: list[int] = []
        self._answers = list(answers)
        self._speaks = version

    def broker(self, broker_id: int) -> Connection:
        return ScriptedConnection(self._speaks)

    def any_connection(self) -> Connection:
        return ScriptedConnection(self._speaks)

    def broker_ids(self) -> list[int]:
        return [1, 2]

    def leader(self, topic_partition: TopicPartition) -> int:
        return self.leaders.get(topic_partition, 2)

    def led(self, partitions: Iterable[TopicPartition]) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        return self.by_leader(partitions), []

    def ask(self, find: object, request: Message, response: type[Any], **_: object) -> Any:
        return FindCoordinatorResponse(error_code=0, node_id=self.coordinator_id, host="there", port=9092)

    def ask_broker(self, broker_id: int, request: Message, response: type[Any]) -> Any:
        if broker_id in self.silent:
            self.unanswered.append(broker_id)
            raise ConnectionLost(f"broker {broker_id}: the broker at there:9092 did not answer in time")
        self.asked.append((broker_id, request))
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        found = answer(broker_id, request)
        assert isinstance(found, response)
        return found


def described(error: int = 0, partitions: tuple[int, ...] = (), start_ms: int = -1, timeout_ms: int = 60_000) -> Answer:
    """The coordinator's answer about one transactional id."""

    def answer(_: int, request: describe_api.DescribeTransactionsRequest) -> Message:
        state = describe_api.TransactionState(
            error_code=error,
            transactional_id=request.transactional_ids[0],
            transaction_state="Ongoing",
            transaction_timeout_ms=timeout_ms,
            transaction_start_time_ms=start_ms,
            producer_id=7,
            producer_epoch=3,
            topics=[describe_api.TopicData(topic="orders", partitions=list(partitions))],
        )
        return describe_api.DescribeTransactionsResponse(transaction_states=[state])

    return answer


def remembered(*producers: producers_api.ProducerState, error: int = 0) -> Answer:
    """A replica's answer: the same producers for every partition."""

    def answer(_: int, request: producers_api.DescribeProducersRequest) -> Message:
        return producers_api.DescribeProducersResponse(
            topics=[
                producers_api.TopicResponse(
                    name=topic.name,
                    partitions=[
                        producers_api.PartitionResponse(partition_index=number, error_code=error, active_producers=list(producers))
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def listed(by_broker: dict[int, list[str]], error: int = 0) -> Answer:
    """A coordinator's list; all ids have producer 7."""

    def answer(broker_id: int, _: list_api.ListTransactionsRequest) -> Message:
        states = [
            list_api.TransactionState(transactional_id=name, producer_id=7, transaction_state="Ongoing")
            for name in by_broker.get(broker_id, [])
        ]
        return list_api.ListTransactionsResponse(error_code=error, transaction_states=states)

    return answer


def marked(error: int) -> Answer:
    def answer(_: int, request: markers_api.WriteTxnMarkersRequest) -> Message:
        results = [
            markers_api.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    markers_api.WritableTxnMarkerTopicResult(
                        name="orders", partitions=[markers_api.WritableTxnMarkerPartitionResult(partition_index=0, error_code=error)]
                    )
                ],
            )
            for marker in request.markers
        ]
        return markers_api.WriteTxnMarkersResponse(markers=results)

    return answer


def fenced(error: int) -> Answer:
    return lambda _broker, _request: InitProducerIdResponse(error_code=error, producer_id=7, producer_epoch=4)


def open_of(producer_id: int) -> producers_api.ProducerState:
    """A producer with a transaction that is open since an hour."""
    return producers_api.ProducerState(
        producer_id=producer_id,
        producer_epoch=3,
        last_sequence=9,
        last_timestamp=NOW_MS - HOUR_MS,
        coordinator_epoch=-1,
        current_txn_start_offset=40,
    )


OPEN = open_of(7)
LISTED = listed({2: ["t"]})
CLOSED = producers_api.ProducerState(producer_id=8, producer_epoch=0, last_sequence=1, last_timestamp=5, coordinator_epoch=2)


def test_the_lists_of_all_coordinators_are_one() -> None:
    cluster = ScriptedCluster(listed({1: ["b"], 2: ["a"]}))
    assert list_transactions(cluster, states=["Ongoing"], producer_ids=[7], longer_than_ms=5) == [
        ListedTransaction("a", 2, 7, "Ongoing"),
        ListedTransaction("b", 1, 7, "Ongoing"),
    ]
    filters = [(broker, asked.state_filters, asked.producer_id_filters, asked.duration_filter) for broker, asked in cluster.asked]
    assert sorted(filters) == [(1, ["Ongoing"], [7], 5), (2, ["Ongoing"], [7], 5)]


def test_a_coordinator_that_loads_is_asked_again() -> None:
    def loading(broker_id: int, request: Any) -> Message:
        is_loading = [broker for broker, _ in cluster.asked].count(1) == 1 and broker_id == 1
        return listed({1: ["a"]}, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else 0)(broker_id, request)

    cluster = ScriptedCluster(loading)
    assert list_transactions(cluster) == [ListedTransaction("a", 1, 7, "Ongoing")]
    assert sorted(broker for broker, _ in cluster.asked) == [1, 1, 2]


def test_a_broker_that_cannot_filter_by_duration_is_named() -> None:
    with pytest.raises(ClientError, match="the broker at there:9092 cannot filter transactions by duration"):
        list_transactions(ScriptedCluster(listed({}), version=0), longer_than_ms=0)
    assert list_transactions(ScriptedCluster(listed({}), version=0)) == []


def test_a_transaction_is_described_by_its_coordinator() -> None:
    cluster = ScriptedCluster(described(partitions=(1, 0), start_ms=12))
    assert describe_transaction(cluster, "t") == DescribedTransaction("t", 2, 7, 3, "Ongoing", 60_000, 12, [P0, P1])
    assert describe_transaction(ScriptedCluster(described()), "t").start_time_ms is None


def test_a_transaction_whose_coordinator_moves_is_described_by_the_new_one() -> None:
    cluster = ScriptedCluster()

    def moved(broker_id: int, request: Any) -> Message:
        cluster.coordinator_id = 1
        return described(ErrorCode.NOT_COORDINATOR if broker_id == 2 else 0)(broker_id, request)

    cluster._answers = [moved]
    assert describe_transaction(cluster, "t").coordinator == 1
    assert [broker for broker, _ in cluster.asked] == [2, 1]


def test_an_unknown_transactional_id_is_not_asked_for_again() -> None:
    cluster = ScriptedCluster(described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    with pytest.raises(UnknownTransactionalId, match="transactional id t: there is no such transactional id"):
        describe_transaction(cluster, "t")
    assert len(cluster.asked) == 1


def test_producers_are_described_by_leaders_or_by_the_named_replica() -> None:
    known = [Producer(7, 3, -1, 9, NOW_MS - HOUR_MS, 40), Producer(8, 0, 2, 1, 5, None)]
    cluster = ScriptedCluster(remembered(OPEN, CLOSED))
    assert describe_producers(cluster, [P1, P0]) == {P1: known, P0: known}
    assert describe_producers(cluster, [P0], broker_id=1) == {P0: known}
    assert [broker for broker, _ in cluster.asked] == [2, 1]


def test_a_broker_is_asked_for_at_most_500_partitions_at_once() -> None:
    cluster = ScriptedCluster(remembered())
    wanted = [TopicPartition("orders", number) for number in range(1001)]
    assert list(describe_producers(cluster, wanted)) == wanted
    assert [sum(len(topic.partition_indexes) for topic in request.topics) for _, request in cluster.asked] == [500, 500, 1]


def test_only_transactions_without_a_record_for_longer_than_the_timeout_are_late() -> None:
    at_the_limit = Producer(1, 0, 0, 0, NOW_MS - 1000, 5)
    over_it = at_the_limit._replace(last_timestamp=NOW_MS - 1001)
    earlier = over_it._replace(producer_id=2, start_offset=4)
    ended = over_it._replace(start_offset=None)
    found = late_transactions({P1: [over_it], P0: [over_it, at_the_limit, ended, earlier]}, max_timeout_ms=1000, now_ms=NOW_MS)
    assert found == [OpenTransaction(P0, earlier), OpenTransaction(P0, over_it), OpenTransaction(P1, over_it)]


def test_a_transaction_hangs_where_its_coordinator_will_write_no_marker() -> None:
    known, unknown = Producer(7, 0, 0, 0, 0, 5), Producer(8, 0, 0, 0, 0, 6)
    late = [OpenTransaction(P0, known), OpenTransaction(P1, known), OpenTransaction(P0, unknown)]
    describes = {7: DescribedTransaction("t", 1, 7, 0, "Ongoing", 60_000, 1, [P0])}
    assert hanging(late, describes) == [OpenTransaction(P1, known, "t"), OpenTransaction(P0, unknown)]
    assert hanging(late, {}) == late


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((remembered(OPEN), listed({}), listed({})), [None]),
        ((remembered(OPEN), LISTED, LISTED, described(partitions=(1,))), ["t"]),
        ((remembered(OPEN), LISTED, LISTED, described(partitions=(0,))), []),
        ((remembered(OPEN), LISTED, LISTED, described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)), [None]),
        ((remembered(CLOSED),), []),
    ],
    ids=["unknown producer", "other partition", "known transaction", "id expired meanwhile", "nothing open"],
)
def test_hanging_transactions_are_looked_up_at_their_coordinators(answers: tuple[Answer, ...], expected: list[str | None]) -> None:
    found = find_hanging(ScriptedCluster(*answers), [P0], max_timeout_ms=HOUR_MS - 1, now_ms=NOW_MS)
    assert [each.transactional_id for each in found.hanging] == expected
    assert (found.undecided, found.missing, found.coordinators) == ([], {}, [])


def test_a_leader_that_does_not_answer_hides_no_hanging_transaction_of_the_others() -> None:
    cluster = ScriptedCluster(remembered(OPEN), listed({}))
    cluster.timeout_seconds = 0.05
    cluster.leaders = {P0: 1}
    cluster.silent = {1}
    found = find_hanging(cluster, [P0, P1], max_timeout_ms=HOUR_MS - 1, now_ms=NOW_MS)
    assert reasons(found.missing) == ["orders-0: broker 1: the broker at there:9092 did not answer in time"]
    assert ([each.partition for each in found.undecided], found.hanging) == ([P1], [])


def test_a_transaction_that_a_silent_coordinator_may_know_is_not_called_hanging() -> None:
    cluster = ScriptedCluster(remembered(OPEN), listed({}))
    cluster.timeout_seconds = 0.05
    cluster.silent = {1}
    found = find_hanging(cluster, [P0], max_timeout_ms=HOUR_MS - 1, now_ms=NOW_MS)
    assert (found.hanging, [each.producer.start_offset for each in found.undecided], found.missing) == ([], [40], {})
    assert list(map(str, found.coordinators)) == ["broker 1: the broker at there:9092 did not answer in time"]
    known = ScriptedCluster(remembered(OPEN), listed({2: ["t"]}), described(partitions=(1,)))
    known.timeout_seconds = 0.05
    known.silent = {1}
    found = find_hanging(known, [P0], max_timeout_ms=HOUR_MS - 1, now_ms=NOW_MS)
    assert ([each.transactional_id for each in found.hanging], found.undecided) == (["t"], [])


def test_a_coordinator_that_is_lost_after_it_listed_its_transactions_is_asked_for_the_first_of_them_alone() -> None:
    def listed_and_lost(broker_id: int, request: list_api.ListTransactionsRequest) -> Message:
        if broker_id == 2:
            cluster.silent = {2}
        states = [
            list_api.TransactionState(transactional_id=f"t{number}", producer_id=number, transaction_state="Ongoing")
            for number in request.producer_id_filters
        ]
        return list_api.ListTransactionsResponse(transaction_states=states if broker_id == 2 else [])

    cluster = ScriptedCluster(remembered(*(open_of(number) for number in range(3))), listed_and_lost)
    cluster.timeout_seconds = 0.05  # less than the pause before a request is repeated
    found = find_hanging(cluster, [P0], max_timeout_ms=HOUR_MS - 1, now_ms=NOW_MS)
    assert ([each.producer.producer_id for each in found.undecided], found.hanging) == ([0, 1, 2], [])
    assert list(map(str, found.coordinators)) == ["broker 2: the broker at there:9092 did not answer in time"]
    assert cluster.unanswered == [2]


def test_a_partition_that_is_refused_hides_no_producer_of_the_others() -> None:
    def half(broker_id: int, request: Any) -> Any:
        answer: Any = remembered(CLOSED)(broker_id, request)
        answer.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer

    found, errors = reachable_producers(ScriptedCluster(half), [P0, P1])
    assert (list(found), list(errors)) == ([P1], [P0])
    assert reasons(errors) == ["orders-0: Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)"]
    with pytest.raises(Refused, match="orders-0: Topic authorization failed"):
        describe_producers(ScriptedCluster(half), [P0, P1])


def test_the_command_shows_what_hangs_and_names_the_broker_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ConnectionLost("broker 1: the broker at there:9092 did not answer in time")
    hangs, may_hang = OpenTransaction(P1, Producer(7, 3, -1, 9, NOW_MS, 40)), OpenTransaction(P1, Producer(8, 3, -1, 9, NOW_MS, 50))
    found = HangingSearch([hangs], [may_hang], {P0: lost}, [lost])
    monkeypatch.setattr("ottla.client.hanging.find_hanging", lambda *_, **__: found)
    monkeypatch.setattr("ottla.cli.transactions._named_partitions", lambda *_: [P0, P1])
    with pytest.raises(SystemExit) as ended:
        main(["transactions", "find-hanging", "orders", "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert [(each["partition"], each["producer_id"]) for each in json.loads(printed.out)] == [(1, 7)]
    assert printed.err.splitlines() == [
        "ottla: orders-0: broker 1: the broker at there:9092 did not answer in time",
        "ottla: broker 1: the broker at there:9092 did not answer in time",
        "ottla: orders-1: whether the transaction of producer 8 from offset 50 on hangs is unknown, because a coordinator did not answer",
    ]


def test_the_transactions_of_brokers_that_answer_are_listed_although_another_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(cluster: Cluster, broker_id: int, _: Message, __: type[Message]) -> Message:
        if broker_id == 1:
            raise Refused("broker 1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return listed({2: ["t"]})(broker_id, None)

    monkeypatch.setattr(Cluster, "broker", lambda *_: ScriptedConnection(1))
    monkeypatch.setattr(Cluster, "broker_ids", lambda _: [1, 2])
    monkeypatch.setattr(Cluster, "ask_broker", asked)
    with pytest.raises(SystemExit) as ended:
        main(["transactions", "list", "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert [each["transactional_id"] for each in json.loads(printed.out)] == ["t"]
    assert printed.err == "ottla: broker 1: Cluster authorization failed. (CLUSTER_AUTHORIZATION_FAILED)\n"


@pytest.mark.parametrize("command", ["describe", "forget"])
def test_a_coordinator_that_does_not_answer_is_asked_for_the_first_of_its_transactional_ids_alone(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ScriptedCluster(described(), fenced(0))
    cluster.timeout_seconds = 0.05  # less than the pause before a request is repeated
    cluster.silent = {2}
    monkeypatch.setattr(cluster, "transaction_coordinator", lambda name: 1 if name == "alive" else 2)
    monkeypatch.setattr("ottla.cli.options.Connecting.cluster", lambda _: cluster)
    with pytest.raises(SystemExit) as ended:
        main(["transactions", command, "lost", "alive", "gone", "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert (ended.value.code, cluster.unanswered) == (1, [2])
    lines = [f"ottla: transactional id {each}: broker 2: the broker at there:9092 did not answer in time" for each in ("lost", "gone")]
    assert printed.err.splitlines() == lines
    shown = json.loads(printed.out)
    assert [each["transactional_id"] if command == "describe" else each["name"] for each in shown if not each.get("error")] == ["alive"]


def test_the_marker_of_a_transaction_is_found_by_its_start_offset() -> None:
    assert marker_of_transaction(ScriptedCluster(remembered(CLOSED, OPEN)), P0, 40) == Marker(7, 3, -1)
    with pytest.raises(ClientError, match="orders-0 has no open transaction that begins at offset 41"):
        marker_of_transaction(ScriptedCluster(remembered(CLOSED, OPEN)), P0, 41)


def test_an_abort_goes_to_the_leader_again_until_it_is_written() -> None:
    cluster = ScriptedCluster(marked(ErrorCode.NOT_LEADER_OR_FOLLOWER), marked(0))
    abort_transaction(cluster, P0, Marker(7, 3, -1))
    (first, request), (second, _) = cluster.asked
    (marker,) = request.markers
    assert (first, second) == (2, 2)
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (7, 3, 0, False)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]


def test_an_abort_that_is_refused_is_not_repeated() -> None:
    cluster = ScriptedCluster(marked(ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    with pytest.raises(Refused, match="TRANSACTION_COORDINATOR_FENCED"):
        abort_transaction(cluster, P0, Marker(7, 3, 5))
    assert len(cluster.asked) == 1
    assert cluster.asked[0][1].markers[0].coordinator_epoch == 5


def test_to_forget_waits_for_the_transaction_to_be_aborted() -> None:
    cluster = ScriptedCluster(described(timeout_ms=1234), fenced(ErrorCode.CONCURRENT_TRANSACTIONS), fenced(0))
    forget_transaction(cluster, "t")
    request = cluster.asked[-1][1]
    assert (request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch) == ("t", 1234, -1, -1)
    assert len(cluster.asked) == 3


def test_a_transaction_with_a_longer_timeout_than_is_allowed_now_can_be_forgotten() -> None:
    cluster = ScriptedCluster(described(timeout_ms=HOUR_MS), fenced(ErrorCode.INVALID_TRANSACTION_TIMEOUT), fenced(0))
    forget_transaction(cluster, "t")
    assert [request.transaction_timeout_ms for _, request in cluster.asked[1:]] == [HOUR_MS, 1]


def test_to_forget_does_not_create_a_transactional_id() -> None:
    cluster = ScriptedCluster(described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    with pytest.raises(UnknownTransactionalId):
        forget_transaction(cluster, "t")
    assert len(cluster.asked) == 1
