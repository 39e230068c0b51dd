"""Commands and pages that need an answer of every leader name those that do not answer, and show the rest."""

import json
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from ottla.cli.main import main
from ottla.cli.offset_reset import planned_offsets
from ottla.client.connection import Address
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.group_admin import DescribedGroup, ListedGroup
from ottla.client.group_offsets.committed import Committed
from ottla.client.log_dirs import LogDir
from ottla.client.topic_readers import Readers
from ottla.client.transaction_admin import ListedTransaction
from ottla.console import control, group_changes, views
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.topic_partition import TopicPartition
from tests.support.offsets_of_groups import offsets_at
from tests.support.played_leaders import ALIVE, DEAD, LEADERLESS, ClusterOfTest


@pytest.mark.slow
def test_a_look_for_hanging_transactions_names_the_leader_that_does_not_answer() -> None:
    found = control.hanging_transactions(ClusterOfTest(ALIVE, DEAD, LEADERLESS), QueryParams())
    lost = f"t-1: no broker can be reached at 127.0.0.1:{DEAD}"
    assert found == {"held_back": [], "hanging": [], "not_examined": [lost]}
    assert "not_examined" not in control.hanging_transactions(ClusterOfTest(ALIVE), QueryParams())


@pytest.mark.slow
def test_the_pages_of_groups_and_transactions_name_the_coordinators_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterOfTest(ALIVE, DEAD)
    errors: dict[int, ClientError] = {DEAD: ConnectionLost("broker 2: it does not answer")}
    group, transaction = ListedGroup("g", "consumer", "Empty", "", ALIVE), ListedTransaction("x", ALIVE, 7, "Ongoing")
    monkeypatch.setattr(views, "reachable_groups", lambda _: ([group], errors))
    monkeypatch.setattr(control, "reachable_transactions", lambda _, **__: ([transaction], errors))
    lines = ["broker 2: it does not answer"]
    assert views.groups(cluster) == {"groups": [group._asdict()], "not_examined": lines}
    assert control.transactions(cluster, QueryParams()) == {"transactions": [transaction._asdict()], "not_examined": lines}
    lost: dict[int, ClientError] = {}
    monkeypatch.setattr(views, "readers_of", lambda *_: Readers([], [], lost))
    assert views.topic_groups(cluster, "t") == {"groups": [], "not_examined": 0, "missing": lines}
    lost[DEAD] = errors.pop(DEAD)  # after it has listed its groups
    assert views.topic_groups(cluster, "t") == {"groups": [], "not_examined": 0, "missing": lines}
    errors |= lost
    errors[ALIVE] = ConnectionLost("broker 1: it does not answer")
    for page in (views.groups, lambda each: control.transactions(each, QueryParams())):
        with pytest.raises(ConnectionLost):
            page(cluster)
    errors.clear()
    assert views.groups(cluster) == {"groups": [group._asdict()]}


@pytest.mark.slow
@pytest.mark.parametrize("other", [LEADERLESS, DEAD])
@pytest.mark.parametrize(
    ("mode", "offset"), [({"to_latest": True}, 2), ({"to_earliest": True}, 0), ({"to_offset": 1}, 1), ({"to_time_ms": 7}, 2)]
)
def test_a_reset_of_offsets_names_the_partitions_without_a_leader(other: int, mode: dict[str, Any], offset: int) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    found = planned_offsets(ClusterOfTest(ALIVE, other), [first, second], {}, remark=lambda _: None, **mode)
    assert (found.offsets, found.starts, found.ends, list(found.missing)) == ({first: offset}, {first: 0}, {first: 2}, [second])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--dry-run",), ("--execute",)])
def test_a_reset_of_offsets_changes_nothing_unless_every_partition_has_a_leader(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = DescribedGroup("g", "Empty", "Classic", "consumer", "", "", [])
    monkeypatch.setattr("ottla.client.group_admin.describe_group", lambda *_: empty)
    monkeypatch.setattr("ottla.cli.options.Connecting.cluster", lambda _: ClusterOfTest(ALIVE, LEADERLESS))
    monkeypatch.setattr("ottla.client.group_offsets.kinds.requests_of", offsets_at({}))
    with pytest.raises(SystemExit) as ended:
        main(["groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--json", *arguments], standalone_mode=False)
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.err.startswith("ottla: t-1: There is no leader for this topic-partition")
    if arguments == ("--execute",):
        assert printed.out == ""
        assert "no offset was reset" in printed.err
    else:
        assert json.loads(printed.out) == [{"topic": "t", "partition": 0, "before": None, "offset": 2}]


@pytest.mark.slow
def test_the_preview_of_a_reset_has_the_partitions_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_changes, "requests_of", offsets_at({}))
    monkeypatch.setattr(group_changes, "describe_group", lambda *_: DescribedGroup("g", "Empty", "Classic", "consumer", "", "", []))
    query = QueryParams("group=g&to=latest&topic=t")
    found = group_changes.planned_reset(ClusterOfTest(ALIVE, DEAD), query)
    assert found["offsets"] == [{"topic": "t", "partition": 0, "before": None, "offset": 2, "start": 0, "end": 2}]
    assert [(each["partition"], each["error"]) for each in found["missing"]] == [(1, "no broker can be reached at 127.0.0.1:2")]
    assert "missing" not in group_changes.planned_reset(ClusterOfTest(ALIVE), query)


def test_a_reset_to_a_time_before_1970_is_one_to_the_first_record() -> None:
    for query in ("to=ago&value=100000d", "to=time&value=-100000d", "to=time&value=1969-12-31"):
        assert group_changes._mode(QueryParams(query)) == {"to_time_ms": 0}


@pytest.fixture
def one_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands get a cluster in which partition 0 of t has a leader that answers, and partition 1 one that does not."""
    monkeypatch.setattr("ottla.cli.options.Connecting.cluster", lambda _: ClusterOfTest(ALIVE, DEAD))


LOST = "ottla: t-1: no broker can be reached at 127.0.0.1:2\n"


def failed(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"], standalone_mode=False)
    assert ended.value.code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("one_leader")
def test_the_offsets_of_the_leaders_that_answer_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    failed("topics", "offsets", "t", "--time", "now")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == [{"topic": "t", "partition": 0, "earliest": 0, "latest": 2, "at": {"now": 2}}]
    assert printed.err == LOST


@pytest.mark.usefixtures("one_leader")
def test_a_topic_whose_configuration_may_not_be_seen_is_described_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> list[object]:
        raise Refused("topic t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr("ottla.client.config_admin.describe_configs", refused)
    failed("topics", "describe", "t")
    printed = capsys.readouterr()
    (shown,) = json.loads(printed.out)
    assert (len(shown["partitions"]), shown["configs"]) == (2, None)
    assert printed.err == "ottla: the configuration of topic t: Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)\n"


@pytest.mark.slow
@pytest.mark.usefixtures("one_leader")
def test_the_lag_behind_the_leaders_that_answer_is_shown_and_a_missing_group_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = {TopicPartition("t", number): Committed(1, "") for number in range(2)}
    monkeypatch.setattr("ottla.client.group_offsets.kinds.requests_of", offsets_at(offsets, "g"))
    monkeypatch.setattr("ottla.client.group_admin.describe_group", lambda _, name: DescribedGroup(name, "Dead", "", "", "", "", []))
    monkeypatch.setattr("ottla.client.cluster.Cluster.coordinator", lambda *_: Address("127.0.0.1", ALIVE))
    failed("groups", "describe", "none", "g")
    printed = capsys.readouterr()
    (shown,) = json.loads(printed.out)
    assert [(each["offset"], each["end"], each["lag"]) for each in shown["partitions"]] == [(1, 2, 1), (1, None, None)]
    assert printed.err == f"ottla: there is no group none\n{LOST}"


@pytest.mark.usefixtures("one_leader")
@pytest.mark.parametrize("names", [(), ("a", "b", "of another")])
def test_a_coordinator_that_is_lost_is_asked_for_none_of_its_other_groups(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def describe(_: object, name: str) -> DescribedGroup:
        asked.append(name)
        if name != "of another":
            raise ConnectionLost("broker 2: it does not answer")
        return DescribedGroup(name, "Empty", "", "", "", "", [])

    listed = [ListedGroup(name, "consumer", "Empty", "", coordinator) for name, coordinator in (("a", 2), ("b", 2), ("of another", 1))]
    monkeypatch.setattr("ottla.client.group_admin.reachable_groups", lambda *_: (listed, {}))
    monkeypatch.setattr("ottla.client.group_admin.describe_group", describe)
    monkeypatch.setattr("ottla.client.group_offsets.kinds.requests_of", offsets_at({}))
    ports = {each.group: each.coordinator for each in listed}
    monkeypatch.setattr("ottla.client.cluster.Cluster.coordinator", lambda _, name: Address("127.0.0.1", ports[name]))
    failed("groups", "describe", *names)
    printed = capsys.readouterr()
    assert (asked, [each["group"] for each in json.loads(printed.out)]) == (["a", "of another"], ["of another"])
    assert printed.err == "ottla: group a: broker 2: it does not answer\nottla: group b: broker 2: it does not answer\n"


def test_groups_are_deleted_although_the_coordinator_of_others_is_lost_which_is_asked_for_the_first_of_them_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ClusterOfTest(ALIVE)
    cluster.timeout_seconds = 0.05  # less than the pause before a request is repeated
    asked: list[str] = []

    def ask(_: object, request: DeleteGroupsRequest, __: object) -> DeleteGroupsResponse:
        (name,) = request.groups_names
        asked.append(name)
        if name in {"a", "b"}:
            raise ConnectionLost("no broker can be reached at 127.0.0.1:2")
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if name == "loading" else ErrorCode.NONE
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name, error_code=code)])

    monkeypatch.setattr(cluster, "coordinator", lambda name: Address("127.0.0.1", DEAD if name in {"a", "b"} else ALIVE))
    monkeypatch.setattr(cluster, "ask", ask)
    monkeypatch.setattr("ottla.cli.options.Connecting.cluster", lambda _: cluster)
    failed("groups", "delete", "a", "loading", "other", "b")
    printed = capsys.readouterr()
    assert [each["name"] for each in json.loads(printed.out) if each["error"] is None] == ["other"]
    assert asked == ["a", "loading", "other"]
    assert printed.err.splitlines() == [
        "ottla: group a: no broker can be reached at 127.0.0.1:2",
        "ottla: group loading: The coordinator is loading and hence can't process requests. (COORDINATOR_LOAD_IN_PROGRESS)",
        "ottla: group b: no broker can be reached at 127.0.0.1:2",
    ]


def test_the_directories_of_the_brokers_that_answer_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def directories(_: object, broker_id: int, __: object) -> list[LogDir]:
        if broker_id == 1:
            raise Refused("the log directories of broker 1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return [LogDir(broker_id, "/data", None, None, None, [])]

    monkeypatch.setattr("ottla.client.log_dirs.log_dirs", directories)
    monkeypatch.setattr("ottla.client.cluster.Cluster.broker_ids", lambda _: [0, 1])
    failed("log-dirs", "--broker", "0,1")
    printed = capsys.readouterr()
    assert [each["broker"] for each in json.loads(printed.out)] == [0]
    assert printed.err == "ottla: the log directories of broker 1: Cluster authorization failed. (CLUSTER_AUTHORIZATION_FAILED)\n"
