"""Heartbeats, commits and descriptions get the answers that Apache Kafka 4.4 gives, epoch by epoch and text by text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.coordination.groups.consumer.members import MemberState, indexes_of
from ottla.coordination.groups.consumer.settings import WAITING_INTERVAL_MS, GroupTimes
from ottla.coordination.groups.consumer.subscriptions import preferred
from ottla.coordination.groups.group import Committer, GroupState
from ottla.protocol.errors import ErrorCode
from tests.support.consumer_groups import ConsumerDriver, topic_id
from tests.support.record_consumer_groups import RECORDING, SCENARIO, TOPIC

Answers = list[tuple[dict[str, Any], Any]]


class Player:
    """Plays the steps on the state machine. Answers have the form of the recording."""

    def __init__(self) -> None:
        self.driver = ConsumerDriver({TOPIC: 6}, times=GroupTimes())
        self.epochs: dict[str, int] = {}

    def play(self, step: dict[str, Any]) -> Any:
        what = {name: value for name, value in step.items() if name != "do"}
        return getattr(self, step["do"])(**what)

    def wait(self, ms: int) -> None:
        self.driver.pass_time(ms)

    def grow(self, partitions: int) -> None:
        self.driver.grow(TOPIC, partitions)

    def beat(self, member: str, version: int, epoch: int | None = None, late: int = 0, **fields: Any) -> list[Any]:
        held = fields.pop("held", None)
        names = fields.pop("subscribed_topic_names", None)
        epoch = self.epochs.get(member, 0) + late if epoch is None else epoch
        answer = self.driver.beat(
            member,
            epoch,
            requires_id=version >= 1,
            topics=None if names is None else tuple(sorted(set(names))),
            held=None if held is None else {topic_id(TOPIC): set(held)} if held else {},
            assignor=fields.pop("server_assignor", None),
            **fields,
        )
        if not answer.error and answer.epoch >= 0:
            self.epochs[member] = answer.epoch
        assigned = None if answer.assignment is None else [sorted(indexes) for indexes in answer.assignment.values()]
        interval_ms = answer.heartbeat_interval_ms
        if interval_ms == WAITING_INTERVAL_MS:
            group = self.driver.group
            waits = group.members[member].state is MemberState.UNRELEASED_PARTITIONS or group.state is GroupState.ASSIGNING
            assert waits, "no other member is asked so soon"
            interval_ms = self.driver.times.heartbeat_interval_ms
        return [answer.error, answer.message, answer.epoch, interval_ms, assigned]

    def commit(self, member: str, late: int, partitions: list[int], version: int) -> list[int]:
        committer = Committer(member, None, self.epochs.get(member, -1) + late, False, version, lambda: [(topic_id(TOPIC), partitions)])
        error, _ = self.driver.group.on_commit(committer)
        return [error] * len(partitions)

    def describe(self) -> list[Any]:
        group = self.driver.group
        members = []
        for member_id, member in sorted(group.members.items()):
            has = sorted(
                index for owned in (member.assigned, member.revoking) for indexes in indexes_of(owned).values() for index in indexes
            )
            target = sorted(index for indexes in group.target.get(member_id, {}).values() for index in indexes)
            members.append([member_id, member.instance_id, member.rack_id, member.epoch, list(member.topics), 1, has, target])
        assignor = preferred(group.assignors, "uniform")
        return [ErrorCode.NONE, None, group.state.value, group.epoch, group.target_epoch, assignor, members]


def recorded() -> Answers:
    return [tuple(json.loads(line)) for line in RECORDING.read_text(encoding="utf-8").splitlines()]


def test_the_recording_is_that_of_the_scenario() -> None:
    assert [step for step, _ in recorded()] == json.loads(json.dumps(SCENARIO))


def test_every_answer_is_that_of_apache_kafka() -> None:
    player = Player()
    for number, (step, answer) in enumerate(recorded(), 1):
        assert json.loads(json.dumps(player.play(step))) == answer, f"line {number}: {step}"


@pytest.mark.parametrize("field", ["members", "target", "owner_epochs"])
def test_the_group_of_the_scenario_is_empty_in_the_end(field: str) -> None:
    player = Player()
    for step, _ in recorded():
        player.play(step)
    assert not getattr(player.driver.group, field)
