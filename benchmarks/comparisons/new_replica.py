"""Measures how long a new replica of a tiered partition takes, without and with much old data in the remote store."""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers.clusters import CONFIG, KINDS, Cluster
from benchmarks.comparisons.replication import knows
from benchmarks.loadgen.prepared import Prepared
from benchmarks.loadgen.runner import Load, run_load
from benchmarks.loads import frames
from benchmarks.loads.admin import Admin, BrokerRefusedError
from benchmarks.loads.old_data import EARLIEST_LOCAL, LATEST_TIERED, found_offsets, until
from benchmarks.loads.workloads import RECORDS_OF_16_KIB, batch_of_16_kib
from benchmarks.turns.turn import Plan
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

_BROKERS: Final = 2
_FILL_S: Final = 3600.0
_MEGABYTE: Final = 1_000_000
_INTERVAL: Final = {"remote.log.manager.task.interval.ms": "30000"}
"""The default. With that of the other parts a leader would look at the entries of all its segments ten times a second meanwhile."""


def measure(kind: str, directory: Path, config: Mapping[str, str], plan: Plan) -> tuple[float, float]:
    """Seconds until a second replica is in sync: of a partition with local data only, and of one with old data, too. Raises anything."""
    size = plan.size
    ones = {"default.replication.factor": "1", "min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
    cluster = KINDS[kind](directory, {**CONFIG, **config, **ones, **_INTERVAL}, _BROKERS)
    taken = []
    try:
        cluster.start()
        # The first is not kept: a JIT compiles meanwhile.
        for at, old_megabytes in enumerate((0, 0, size.replica_old_megabytes)):
            topic = f"replica-{at}"
            _fill(cluster, topic, size.replica_megabytes * _MEGABYTE, old_megabytes * _MEGABYTE, size.remote_segment_bytes)
            taken.append(_add_replica(cluster, topic))
            plan.pass_on()
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return taken[1], taken[2]


def _fill(cluster: Cluster, name: str, local: int, old: int, segment_bytes: int) -> None:
    """A topic with one replica, on broker 0, which has `local` bytes itself and `old` bytes in the store only. Nothing is left to copy."""
    config = {
        "segment.bytes": str(segment_bytes),
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "remote.storage.enable": "true",
        "local.retention.bytes": str(local),
    }
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[0]], config=config)], request_timeout=60)[name].result(90)
    until(lambda: knows(cluster.port(0), name, 1), "there is a leader")
    batch = batch_of_16_kib("none")(int(time.time() * 1000))
    prepared = Prepared(frames.produce(name, 0, batch), frames.produce_error_offsets(name), is_shown=True)
    total = (local + old) // len(batch)
    run_load("127.0.0.1", cluster.port(0), Load([prepared], 1, 8, warm_up_s=0, duration_s=_FILL_S, total=total))
    in_segment = segment_bytes // len(batch)
    closed = (total - 1) // in_segment * in_segment * RECORDS_OF_16_KIB
    moved = (old - segment_bytes) // len(batch) * RECORDS_OF_16_KIB
    with Admin("127.0.0.1", cluster.port(0)) as asked:
        topic = asked.described(name)
        until(lambda: found_offsets(asked, topic, LATEST_TIERED)[0] >= closed - 1, "all closed segments are copied")
        if old:
            until(lambda: found_offsets(asked, topic, EARLIEST_LOCAL)[0] >= moved, "old data is in the store only")
    os.sync()  # the disk is not what is measured


def _add_replica(cluster: Cluster, topic: str) -> float:
    """The seconds until broker 1 has a replica in sync."""
    replicas = [ReassignablePartition(partition_index=0, replicas=[0, 1])]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=replicas)])
    with Admin("127.0.0.1", cluster.port(0)) as asked:
        controller = asked.controller_id()
    began = time.monotonic()
    with Admin("127.0.0.1", cluster.port(controller)) as asked:
        answer = asked.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, AlterPartitionReassignmentsResponse, 0)
    if answer.error_code or any(each.error_code for found in answer.responses for each in found.partitions):
        raise BrokerRefusedError(f"AlterPartitionReassignments: {answer}")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs) == _BROKERS, "the new replica is in sync")
    return time.monotonic() - began
