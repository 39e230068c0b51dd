"""Commands and pages that need an answer of every leader name those that do not answer, and show the rest."""

import json
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from broker.cli.console import control, group_changes
from broker.cli.main import main
from broker.cli.offset_reset import planned_offsets
from broker.client.cluster import TopicPartition
from broker.client.group_admin import DescribedGroup
from tests.support.played_leaders import ALIVE, DEAD, LEADERLESS, ClusterOfTest


def test_a_look_for_hanging_transactions_names_the_leader_that_does_not_answer() -> None:
    found = control.hanging_transactions(ClusterOfTest(ALIVE, DEAD, LEADERLESS), QueryParams())
    lost = f"t-1: no broker can be reached at 127.0.0.1:{DEAD}"
    assert found == {"held_back": [], "hanging": [], "not_examined": [lost]}
    assert "not_examined" not in control.hanging_transactions(ClusterOfTest(ALIVE), QueryParams())


@pytest.mark.parametrize("other", [LEADERLESS, DEAD])
@pytest.mark.parametrize(
    ("mode", "offset"), [({"to_latest": True}, 2), ({"to_earliest": True}, 0), ({"to_offset": 1}, 1), ({"to_time_ms": 7}, 2)]
)
def test_a_reset_of_offsets_names_the_partitions_without_a_leader(other: int, mode: dict[str, Any], offset: int) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    found = planned_offsets(ClusterOfTest(ALIVE, other), [first, second], {}, remark=lambda _: None, **mode)
    assert (found.offsets, found.starts, found.ends, list(found.missing)) == ({first: offset}, {first: 0}, {first: 2}, [second])


@pytest.mark.parametrize("arguments", [("--dry-run",), ("--execute",)])
def test_a_reset_of_offsets_changes_nothing_unless_every_partition_has_a_leader(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("broker.cli.options.Connecting.cluster", lambda _: ClusterOfTest(ALIVE, LEADERLESS))
    monkeypatch.setattr("broker.client.committed.committed_offsets", lambda *_: {})
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


def test_the_preview_of_a_reset_has_the_partitions_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_changes, "committed_offsets", lambda *_: {})
    monkeypatch.setattr(group_changes, "describe_group", lambda *_: DescribedGroup("g", "Empty", "Classic", "consumer", "", "", []))
    query = QueryParams("group=g&to=latest&topic=t")
    found = group_changes.planned_reset(ClusterOfTest(ALIVE, DEAD), query)
    assert found["offsets"] == [{"topic": "t", "partition": 0, "before": None, "offset": 2, "start": 0, "end": 2}]
    assert [(each["partition"], each["error"]) for each in found["missing"]] == [(1, "no broker can be reached at 127.0.0.1:2")]
    assert "missing" not in group_changes.planned_reset(ClusterOfTest(ALIVE), query)
