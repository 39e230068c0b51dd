"""Plans of where replicas should be: whole, spread over racks, even, and with few moves."""

import json
from collections import Counter
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.main import main
from ottla.client import reassignments
from ottla.client.cluster import Cluster
from ottla.client.config_admin import ConfigResourceType
from ottla.client.errors import ClientError, ConnectionLost, Refused, SomeRefused
from ottla.client.reassignment_plan import Plan, balanced, from_json, to_json, without
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition

NO_RACKS = dict.fromkeys(range(4))


def placed(*replicas: list[int]) -> Plan:
    return {TopicPartition("t", number): brokers for number, brokers in enumerate(replicas)}


def copies(before: Plan, after: Plan) -> int:
    return sum(len(set(after[name]) - set(before[name])) for name in before)


def load(plan: Plan) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def test_what_is_even_already_stays() -> None:
    current = placed([0, 1], [1, 2], [2, 3], [3, 0])
    assert balanced(current, NO_RACKS) == current


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = placed([0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2])
    plan = balanced(current, NO_RACKS)
    assert load(plan) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert copies(current, plan) == 3


def test_a_broker_that_is_left_out_loses_all() -> None:
    current = placed([0, 1], [1, 2], [2, 3], [3, 0])
    plan = balanced(current, dict.fromkeys([0, 1, 2]))
    assert 3 not in load(plan)
    assert copies(current, plan) == 2


def test_replicas_go_over_all_racks() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b"}
    plan = balanced(placed([0, 1], [2, 3], [0, 1], [2, 3]), racks)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in plan.values())
    assert set(load(plan).values()) == {2}


def test_brokers_without_racks_among_others_make_racks_count_for_nothing() -> None:
    assert balanced(placed([0, 1], [2, 3]), {0: "a", 1: "a", 2: None, 3: "b"}) == placed([0, 1], [2, 3])


def test_leadership_is_spread_by_another_order_alone() -> None:
    current = placed([0, 1, 2], [0, 1, 2], [0, 1, 2])
    plan = balanced(current, dict.fromkeys([0, 1, 2]))
    assert copies(current, plan) == 0
    assert {replicas[0] for replicas in plan.values()} == {0, 1, 2}


def test_the_number_of_replicas_grows_and_shrinks() -> None:
    assert all(len(set(replicas)) == 3 for replicas in balanced(placed([0], [1], [2], [3]), NO_RACKS, 3).values())
    shrunk = balanced(placed([0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]), NO_RACKS, 1)
    assert set(load(shrunk).values()) == {1}


def test_more_replicas_than_brokers_cannot_be() -> None:
    with pytest.raises(ClientError, match="5 replicas need as many brokers; there are 4"):
        balanced(placed([0]), NO_RACKS, 5)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Plan, dict[int, str | None]]:
    brokers = draw(st.integers(1, 7))
    racks = (
        {broker: f"r{broker % draw(st.integers(1, 4))}" for broker in range(brokers)}
        if draw(st.booleans())
        else dict.fromkeys(range(brokers))
    )
    factor = draw(st.integers(1, brokers))
    everywhere = st.lists(st.integers(0, 8), min_size=factor, max_size=factor, unique=True)
    return placed(*draw(st.lists(everywhere, min_size=1, max_size=20))), racks


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_every_plan_is_whole_and_uses_racks(case: tuple[Plan, dict[int, str | None]]) -> None:
    current, racks = case
    plan = balanced(current, racks)
    assert plan.keys() == current.keys()
    names = {broker: rack or str(broker) for broker, rack in racks.items()}
    for name, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[name])
        assert set(replicas) <= racks.keys()
        assert len({names[broker] for broker in replicas}) == min(len(replicas), len(set(names.values())))
    assert from_json(json.dumps(to_json(plan))) == plan


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_what_was_planned_is_left_as_it_is_by_the_next_plan(case: tuple[Plan, dict[int, str | None]]) -> None:
    current, _ = case
    brokers = dict.fromkeys(range(7))
    plan = balanced(current, brokers)
    assert max(load(plan).values()) - min(load(plan)[broker] for broker in brokers) <= 1
    assert balanced(plan, brokers) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a plan in the format of `generate`"),
        ("[]", "not a plan in the format of `generate`"),
        ("[" * 100_000, "not a plan in the format of `generate`: RecursionError"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": "12"}]}', "t-0: the replicas are no list of broker ids"),
        ('{"version": 2, "partitions": []}', "version 2 of plans is not known"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "not a plan in the format of `generate`"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "are not valid replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "name at least one broker, and each once"),
        (json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}), "t-0 is twice"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(ClientError, match=message):
        from_json(text)


def test_log_directories_in_a_plan_are_passed_over() -> None:
    assert from_json('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}') == placed([1])


def test_a_throttle_is_set_on_live_brokers_alone_because_a_plan_may_leave_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[str, str]] = []
    monkeypatch.setattr(reassignments, "alter_configs", lambda _, kind, name, __: changed.append((kind.name, name)))
    where = TopicPartition("t", 0)
    with Cluster("127.0.0.1:1") as cluster:
        monkeypatch.setattr(cluster, "broker_ids", lambda: [0, 1])
        reassignments.throttle(cluster, {where: [0, 2]}, {where: [0, 1]}, 1000)
    assert changed == [("TOPIC", "t"), ("BROKER", "0"), ("BROKER", "1")]


def test_a_throttle_that_cannot_be_removed_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[str, str]] = []

    def alter(_: Cluster, kind: ConfigResourceType, name: str, __: object) -> None:
        if name == "0":
            raise ConnectionLost("broker 0 is registered at there:9092: it does not answer")
        if name == "deleted":
            raise Refused("topic deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        changed.append((kind.name, name))

    monkeypatch.setattr(reassignments, "alter_configs", alter)
    with Cluster("127.0.0.1:1") as cluster:
        monkeypatch.setattr(cluster, "broker_ids", lambda: [0, 1])
        with pytest.raises(SomeRefused, match=r"^broker 0 is registered at there:9092: it does not answer$"):
            reassignments.clear_throttles(cluster, ["t", "deleted", "u", "t"])
    assert changed == [("TOPIC", "t"), ("TOPIC", "u"), ("BROKER", "1")]


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan that moves partition 0 of t; nothing is being moved yet."""
    monkeypatch.setattr(reassignments, "replicas_of", lambda *_: {TopicPartition("t", 0): [0]})
    monkeypatch.setattr(reassignments, "moves", lambda *_: {})
    monkeypatch.setattr("ottla.cli.partitions.reassign.check_brokers", lambda *_: None)
    file = tmp_path / "the plan.json"
    file.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("error", [ConnectionLost("broker 1: it does not answer"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["throttle", "reassign"])
def test_a_move_that_fails_says_how_to_remove_its_throttles(
    step: str, error: BaseException, plan_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(reassignments, "throttle", lambda *_: None)
    monkeypatch.setattr(reassignments, step, fail)
    execute = ["topics", "reassign", "execute", plan_file, "--json"]
    with pytest.raises((SystemExit, KeyboardInterrupt, click.Abort)):
        main([*execute, "--throttle", "1000"], standalone_mode=False)
    told = f"replication throttles may be left; `ottla topics reassign verify '{plan_file}'` removes them once no partition is being moved"
    assert told in capsys.readouterr().err.splitlines()
    if step == "reassign":
        with pytest.raises((SystemExit, KeyboardInterrupt, click.Abort)):
            main(execute, standalone_mode=False)
        assert "throttles" not in capsys.readouterr().err


def test_the_way_back_is_saved_before_a_replica_moves(plan_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []

    def begin(_: Cluster, wanted: Plan) -> dict[TopicPartition, None]:
        saved.append((tmp_path / "back.json").read_text(encoding="utf-8"))
        return dict.fromkeys(wanted)

    monkeypatch.setattr(reassignments, "reassign", begin)
    main(["topics", "reassign", "execute", plan_file, "--save", str(tmp_path / "back.json")], standalone_mode=False)
    assert [from_json(text) for text in saved] == [{TopicPartition("t", 0): [0]}]


def test_a_finished_move_is_reported_although_its_throttles_are_left(
    plan_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def clear(*_: object) -> None:
        raise ConnectionLost("broker 1: it does not answer")

    monkeypatch.setattr(reassignments, "throttle", lambda *_: None)
    monkeypatch.setattr(reassignments, "reassign", lambda _, wanted: dict.fromkeys(wanted))
    monkeypatch.setattr(reassignments, "clear_throttles", clear)
    with pytest.raises(SystemExit) as ended:
        main(["topics", "reassign", "execute", plan_file, "--throttle", "1000", "--wait"], standalone_mode=False)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (1, "t-0: moved\n")
    assert "ottla: broker 1: it does not answer\n" in printed.err
    assert "these replication throttles are left" in printed.err


class TestWithout:
    """The plan that drains brokers."""

    def test_only_replicas_of_the_leaving_broker_move_and_keep_their_place(self) -> None:
        current = {TopicPartition("t", 0): [0, 1], TopicPartition("t", 1): [1, 2], TopicPartition("t", 2): [2, 0]}

        plan = without(current, dict.fromkeys(range(4)), {2})

        assert plan == {TopicPartition("t", 1): [1, 3], TopicPartition("t", 2): [3, 0]}

    def test_a_replica_stays_in_its_rack_if_another_broker_of_it_is_alive(self) -> None:
        racks = {0: "a", 1: "b", 2: "b", 3: "a"}

        plan = without({TopicPartition("t", number): [0, 1] for number in range(4)}, racks, {1})

        assert set(map(tuple, plan.values())) == {(0, 2)}

    def test_too_few_brokers_are_refused(self) -> None:
        with pytest.raises(ClientError, match="t-0 has 3 replicas, and only 2 other brokers are alive"):
            without({TopicPartition("t", 0): [0, 1, 2]}, dict.fromkeys(range(3)), {1})

    def test_fewer_racks_are_refused_unless_racks_are_ignored(self) -> None:
        racks: dict[int, str | None] = {0: "a", 1: "b", 2: "a"}
        with pytest.raises(ClientError, match="t-0 would be on 1 racks instead of 2: a"):
            without({TopicPartition("t", 0): [0, 1]}, racks, {1})
        assert without({TopicPartition("t", 0): [0, 1]}, dict.fromkeys(racks), {1}) == {TopicPartition("t", 0): [0, 2]}

    def test_a_dead_broker_can_be_drained(self) -> None:
        assert without({TopicPartition("t", 0): [0, 7]}, {0: "a", 1: "b"}, {7}) == {TopicPartition("t", 0): [0, 1]}

    @given(st.data())
    def test_every_plan_keeps_the_number_of_replicas_and_racks(self, data: st.DataObject) -> None:
        brokers = data.draw(st.integers(2, 7))
        racks = {broker: data.draw(st.sampled_from("abc")) for broker in range(brokers)}
        replicas = st.permutations(range(brokers)).flatmap(lambda order: st.integers(1, brokers).map(lambda count: list(order[:count])))
        current = {TopicPartition("t", number): data.draw(replicas) for number in range(data.draw(st.integers(1, 8)))}
        leaving = data.draw(st.sets(st.integers(0, brokers - 1), min_size=1, max_size=2))
        try:
            plan = without(current, racks, leaving)
        except ClientError:
            return
        for name, new in plan.items():
            assert len(new) == len(set(new)) == len(current[name])
            assert not leaving & set(new)
            assert len({racks[broker] for broker in new}) >= len({racks[broker] for broker in current[name]})
            assert all(before == after for before, after in zip(current[name], new, strict=True) if before not in leaving)
        assert all(not leaving & set(replicas) for name, replicas in current.items() if name not in plan)
