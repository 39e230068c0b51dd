"""The life of the recorded cluster, played again: at every moment the tree is the one that Apache Kafka's controllers left."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.controller.state.channels import ControlRequest
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.recorded_history import ComparableNode, RecordedHistory, recorded_tree

SEQUENCE = Path(__file__).parents[2] / "golden" / "wire" / "sequence.jsonl"
MOVES = ("reassign-during", "reassign-cancelled", "reassign-after", "legacy-reassign-after")


@cache
def played() -> list[tuple[str, dict[str, ComparableNode], dict[int, list[tuple[str, str]]]]]:
    """For each moment its name, our tree, and what each broker had been told about the topics that are moved."""

    async def play() -> list[tuple[str, dict[str, ComparableNode], dict[int, list[tuple[str, str]]]]]:
        history = RecordedHistory()
        moments = []
        async for moment in history.moments():
            told = {broker_id: said(peer.requests) for broker_id, peer in history.cluster.peers.items()} if moment in MOVES else {}
            moments.append((moment, history.tree(), told))
        await history.stop()
        return moments

    return asyncio.run(play())


@pytest.mark.slow
def test_the_tree_is_that_of_apache_kafka_at_every_moment() -> None:
    for moment, tree, _ in played():
        recorded = recorded_tree(moment)
        different = {path: (recorded.get(path), tree.get(path)) for path in recorded.keys() | tree.keys()}
        assert not {path: pair for path, pair in different.items() if pair[0] != pair[1]}, moment
    assert len(played()) == 28


@pytest.mark.parametrize("broker_id", [0, 1, 2])
def test_brokers_are_told_of_moves_what_apache_kafka_told_them_in_the_same_order(broker_id: int) -> None:
    recorded = recorded_requests(broker_id)
    for moment, _, told in played():
        if moment in MOVES:
            assert told[broker_id] == recorded[: len(told[broker_id])], moment
        if moment == MOVES[-1]:
            assert len(told[broker_id]) == len(recorded)


def recorded_requests(broker_id: int) -> list[tuple[str, str]]:
    """What a broker of the recorded cluster was told from the first move to the last."""
    told: list[tuple[str, str]] = []
    begun = False
    for line in SEQUENCE.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        begun = begun or entry.get("event", "").startswith("reassign-start")
        if entry.get("event", "").startswith("legacy-preferred"):
            break
        if begun and entry.get("to") == str(broker_id) and "p" in entry:
            told += [(entry["api"], partition) for partition in entry["p"] if "move" in partition]
    return told


def said(requests: Sequence[ControlRequest]) -> list[tuple[str, str]]:
    """What requests say of the topics that are moved, in the words of the recording, but for their creation."""
    lines = [line for request in requests for line in _lines(request)]
    return [(api, text) for api, text in lines if text.startswith("move") and " E0 PE0 " not in text]


def _lines(request: ControlRequest) -> Iterator[tuple[str, str]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            name = f"{topic.topic_name}-{state.partition_index}"
            if isinstance(request, LeaderAndIsrRequest):
                epochs = f"L{state.leader} E{state.leader_epoch} PE{state.partition_epoch} isr{list(state.isr)}"
                replicas = f"rep{list(state.replicas)} add{list(state.adding_replicas)} rem{list(state.removing_replicas)}"
                yield "LeaderAndIsr", f"{name} {epochs} {replicas} new={state.is_new} rec={state.leader_recovery_state}"
            elif isinstance(request, UpdateMetadataRequest):
                epochs = f"L{state.leader} E{state.leader_epoch} PE{state.zk_version} isr{list(state.isr)}"
                yield "UpdateMetadata", f"{name} {epochs} off{list(state.offline_replicas)}"
            else:
                yield "StopReplica", f"{name} E{state.leader_epoch} del={state.delete_partition}"
