"""Records the answers of Apache Kafka 4.4 to heartbeats of one consumer group: `python -m tests.support.record_consumer_groups PORT`.

It writes `tests/recorded/consumer-group.jsonl`: a line for each step of `SCENARIO`, with the answer. A broker of Apache Kafka 4.4 must
listen on the port; it must have no topic and no group of these names.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ottla.protocol.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.support.wire_client import WireClient, a_wire_client

RECORDING = Path(__file__).parents[1] / "recorded" / "consumer-group.jsonl"
TOPIC = "t"
GROUP = "g"

Step = dict[str, Any]


def join(member: str, version: int = 1, **fields: Any) -> Step:
    """A heartbeat with epoch 0."""
    return beat(member, 0, version=version, **{"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [TOPIC], "held": [], **fields})


def beat(member: str, epoch: int | None = None, *, version: int = 1, **fields: Any) -> Step:
    """A heartbeat, by default with the last epoch that the member got. `held` are partitions of the topic."""
    return {"do": "beat", "member": member, "epoch": epoch, "version": version, **fields}


def commit(member: str, late: int = 0, *partitions: int, version: int = 9) -> Step:
    """A commit with an epoch so many later than the member's."""
    return {"do": "commit", "member": member, "late": late, "partitions": partitions or (0,), "version": version}


DESCRIBE: Step = {"do": "describe"}


def wait(milliseconds: int) -> Step:
    """Let time pass."""
    return {"do": "wait", "ms": milliseconds}


SCENARIO: list[Step] = [
    join(""), join("A", held=None), join("A", rebalance_timeout_ms=-1), join("A", subscribed_topic_names=None), join("A", held=[1]),
    join("A", instance_id=""), join("A", rack_id=" "), join("A", server_assignor="none"), join("A", server_assignor=""),
    join("A", subscribed_topic_names=[]), DESCRIBE, beat("X", -3), beat("", -1), beat("X", -2), beat("", 5), beat("X", 5), beat("X", -1),
    beat("X", -2, instance_id="i"), beat("A", -1), beat("A", 2), DESCRIBE,
    join("A"), DESCRIBE, commit("A"), commit("A", -1), commit("A", 1), commit("A", version=8), commit("nobody"), commit(""),
    join("A"), beat("A"), beat("A", held=[0, 1, 2, 3, 4, 5]),
    beat("A", rebalance_timeout_ms=30_000, subscribed_topic_names=[TOPIC], held=[]),
    wait(1_200), join("B"), DESCRIBE, beat("A"), beat("A"), beat("A", held=[0, 1, 2, 3, 4, 5]), commit("A", 0, 0, 5), DESCRIBE, beat("B"),
    beat("A", held=[0, 1, 2]), commit("A", -1, 0), commit("A", -1, 0, 5), DESCRIBE,
    {"do": "beat", "member": "A", "late": -1, "version": 1}, {"do": "beat", "member": "A", "late": -1, "version": 1, "held": [0, 1, 2]},
    {"do": "beat", "member": "A", "late": -1, "version": 1, "held": [0, 1, 5]}, {"do": "beat", "member": "A", "late": 1, "version": 1},
    {"do": "beat", "member": "A", "late": -2, "version": 1, "held": []}, beat("A", 2**31 - 1),
    beat("B"), beat("B"), DESCRIBE, commit("B", -1, 5), beat("A", held=[0, 1, 2, 2, 99]), beat("A", held=[]),
    beat("A", subscribed_topic_names=[]), DESCRIBE, wait(1_200), beat("A"), beat("A", held=[]), beat("B"), beat("B"), DESCRIBE,
    beat("A", subscribed_topic_names=[TOPIC, "nowhere", TOPIC]), wait(1_200), beat("A"), beat("B"), beat("B", held=[3, 4, 5]), beat("A"),
    beat("B", held=[0, 1, 2]), beat("A"), DESCRIBE,
    beat("A", server_assignor="range"), DESCRIBE, wait(1_200), beat("A"), beat("A", rack_id="r"), DESCRIBE, beat("A", instance_id="late"),
    wait(1_200), {"do": "grow", "partitions": 8}, wait(1_200), beat("A"), DESCRIBE, beat("B", held=[0, 1, 2]), beat("A", held=[]), DESCRIBE,
    beat("B", -1), DESCRIBE, beat("B"), wait(1_200), beat("A", held=[0]), beat("A", held=[0]), DESCRIBE,
    join("S", instance_id="i"), join("S2", instance_id="i"), beat("S", instance_id="other"),
    wait(1_200), beat("S", instance_id="i"), beat("S"),
    beat("S2", 5, instance_id="i"), beat("S2", -2, instance_id="i"), beat("S", -2, instance_id="i"), DESCRIBE,
    beat("S", 9, instance_id="i"),
    join("S2", instance_id="i"), DESCRIBE, beat("S2", -1, instance_id="i"), DESCRIBE, beat("A", -1), DESCRIBE,
]  # fmt: skip
"""Every answer of the protocol that does not wait for long."""


class Player:
    """Sends steps to a broker. Answers have no random part."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._epochs: dict[str, int] = {}
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=6, replication_factor=1)], timeout_ms=10_000), 5)
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
        time.sleep(2)
        self._topic_id = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics[0].topic_id

    def play(self, step: Step) -> Any:
        """The answer to a step; None if it has none."""
        what = {name: value for name, value in step.items() if name != "do"}
        return getattr(self, f"_{step['do']}")(**what)

    def _wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def _grow(self, partitions: int) -> None:
        topics = [CreatePartitionsTopic(name=TOPIC, count=partitions, assignments=None)]
        (answer,) = self._client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=10_000), 3).results
        assert not answer.error_code, answer

    def _beat(
        self, member: str, version: int, epoch: int | None = None, late: int = 0, held: list[int] | None = None, **fields: Any
    ) -> list[Any]:
        owned = None
        if held is not None:
            owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._topic_id, partitions=held)] if held else []
        epoch = self._epochs.get(member, 0) + late if epoch is None else epoch
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, topic_partitions=owned, **fields)
        answer = self._client.ask(request, version)
        if not answer.error_code and answer.member_epoch >= 0:
            self._epochs[member] = answer.member_epoch
        assigned = None if answer.assignment is None else [sorted(each.partitions) for each in answer.assignment.topic_partitions]
        return [answer.error_code, answer.error_message, answer.member_epoch, answer.heartbeat_interval_ms, assigned]

    def _commit(self, member: str, late: int, partitions: tuple[int, ...], version: int) -> list[int]:
        values = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in partitions]
        epoch = self._epochs.get(member, -1) + late
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=values)]
        request = OffsetCommitRequest(group_id=GROUP, member_id=member, generation_id_or_member_epoch=epoch, topics=topics)
        return [each.error_code for each in self._client.ask(request, version).topics[0].partitions]

    def _describe(self) -> list[Any]:
        (group,) = self._client.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        members = [
            [
                *(each.member_id, each.instance_id, each.rack_id, each.member_epoch, sorted(each.subscribed_topic_names)),
                *(each.member_type, _partitions(each.assignment), _partitions(each.target_assignment)),
            ]
            for each in sorted(group.members, key=lambda each: str(each.member_id))
        ]
        facts = [group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name]
        return [group.error_code, group.error_message, *facts, members]


def _partitions(assignment: Assignment) -> list[int]:
    return sorted(index for each in assignment.topic_partitions for index in each.partitions)


def main() -> None:
    """Play the scenario, write the file."""
    with a_wire_client(int(sys.argv[1])) as client:
        player = Player(client)
        lines = [json.dumps([step, player.play(step)]) for step in SCENARIO]
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} answers in {RECORDING}")


if __name__ == "__main__":
    main()
