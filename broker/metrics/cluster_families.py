"""Declares the families of kafka.coordinator.group, of kafka.server for the broker as a whole, and Ottla's own for the
build and the event loop."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.build import EMULATES, version
from ottla.broker.logs.setup import dropped_lines
from ottla.broker.metrics.families import Family, Kind, counter, gauge, labelled, single, timer
from ottla.coordination.groups.classic_group import CLASSIC, CLASSIC_STATES
from ottla.coordination.groups.group import GroupState
from ottla.protocol.compiled import IS_COMPILED

if TYPE_CHECKING:
    from ottla.broker.metrics.view import View
    from ottla.controller.store.metadata_store import SessionEvents


def _groups(mbean: str, doc: str, read: Callable[[View], float]) -> Family:
    pattern = f"kafka.coordinator.group:name={mbean},type=GroupMetadataManager"
    return gauge(f"kafka_coordinator_group_groupmetadatamanager_{mbean.lower()}", pattern, doc, read)


def _in_state(state: GroupState) -> Family:
    return _groups(
        f"NumGroups{state.value}", f"Groups of the classic protocol in state {state.value}.", lambda view: view.group_states[CLASSIC][state]
    )


def _session_events(view: View) -> SessionEvents | None:
    return view.services.administration.store.session_events


def _session(mbean: str, doc: str, read: Callable[[SessionEvents], int]) -> Family:
    def value(view: View) -> int | None:
        events = _session_events(view)
        return None if events is None else read(events)

    pattern = f"kafka.server:name={mbean},type=SessionExpireListener"
    return counter(f"kafka_server_sessionexpirelistener_{mbean.removesuffix('PerSec').lower()}_total", pattern, doc, value)


def _disk(mbean: str, key: str, doc: str) -> Family:
    pattern = f"kafka.server:name={mbean},type=KafkaServer"
    return gauge(f"kafka_server_kafkaserver_{mbean.replace('-', '_')}", pattern, doc, lambda _: _process_io().get(key))


def _process_io() -> dict[str, int]:
    """Linux's I/O counters of this process; empty elsewhere, and where they may not be read."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


CLUSTER_FAMILIES: tuple[Family, ...] = (
    _groups("NumGroups", "Groups that this broker coordinates.", lambda view: view.groups),
    *(_in_state(state) for state in CLASSIC_STATES),
    _groups("NumOffsets", "Offsets that those groups have committed.", lambda view: view.committed_offsets),
    labelled(
        "ottla_build_info",
        Kind.GAUGE,
        ("version", "emulates", "python", "hot_path"),
        "",
        "1, with labels for the version of Ottla, the emulated version of Apache Kafka, and whether the hot path is compiled.",
        lambda _: [((version(), EMULATES, platform.python_version(), "compiled" if IS_COMPILED else "pure Python"), 1)],
    ),
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "kafka.server:name=BrokerState,type=KafkaServer",
        "1 while the broker starts, 3 while it serves, 7 while it stops.",
        lambda view: view.state(),
    ),
    _disk("linux-disk-read-bytes", "read_bytes", "Bytes that this process read from disks; only on Linux."),
    _disk("linux-disk-write-bytes", "write_bytes", "Bytes that this process wrote to disks."),
    gauge(
        "kafka_server_metadataloader_currentcontrollerid",
        "kafka.server:name=CurrentControllerId,type=MetadataLoader",
        "The broker that is the active controller; -1 while there is none.",
        lambda view: view.services.cluster.controller.active_controller_id,
    ),
    _session(
        "ZooKeeperSyncConnectsPerSec",
        "Connections to ZooKeeper that were made; only with zookeeper.connect.",
        lambda events: events.connects,
    ),
    _session("ZooKeeperDisconnectsPerSec", "Connections to ZooKeeper that were lost.", lambda events: events.disconnects),
    _session("ZooKeeperExpiresPerSec", "Sessions that ZooKeeper ended.", lambda events: events.expirations),
    _session("ZooKeeperAuthFailuresPerSec", "Connections on which ZooKeeper refused the credentials.", lambda events: events.auth_failures),
    timer(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        "kafka.server:name=ZooKeeperRequestLatencyMs,type=ZooKeeperClientMetrics",
        "Time from a request to ZooKeeper until its answer, in milliseconds.",
        lambda view: None if _session_events(view) is None else view.store_latency.look(),
    ),
    single(
        "ottla_event_loop_lag_seconds",
        Kind.SUMMARY,
        "",
        "Delay of a timer of the event loop, measured ten times a second: the time that all work waited for the longest piece of work.",
        lambda view: view.loop_watch.lag.look(),
        1e-6,
    ),
    counter(
        "ottla_event_loop_cpu_seconds_total", "", "Processor time of the event loop's thread.", lambda view: view.loop_watch.busy_seconds
    ),
    counter(
        "ottla_log_lines_dropped_total",
        "",
        "Lines of the broker's log that were lost, because they came faster than they could be written.",
        lambda _: dropped_lines(),
    ),
)
