"""Lists the modules that are compiled, and hashes their sources. `setup.py` runs this file by its path, without the package."""

from collections.abc import Sequence
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

HOT: Final = (
    "ottla.pauses",
    "ottla.large_table",
    "ottla.protocol.cursors.request_reader",
    "ottla.protocol.cursors.response_writer",
    "ottla.protocol.cursors.produce",
    "ottla.protocol.cursors.fetch",
    "ottla.protocol.cursors.fetch_answer_reader",
    "ottla.protocol.cursors.offset_commit",
    "ottla.protocol.cursors.consumer_heartbeat",
    "ottla.protocol.records.walk",
    "ottla.protocol.records.joined",
    "ottla.protocol.conversion.message_reader",
    "ottla.protocol.conversion.up_converter",
    "ottla.protocol.conversion.down_converter",
    "ottla.storage.disk.real_file",
    "ottla.storage.segment.index_file",
    "ottla.storage.segment.offset_index",
    "ottla.storage.segment.time_index",
    "ottla.storage.segment.log_settings",
    "ottla.storage.segment.file_region",
    "ottla.storage.segment.batch_finder",
    "ottla.storage.segment.segment",
    "ottla.storage.segment.log_segments",
    "ottla.storage.producers.state",
    "ottla.storage.validation.rules",
    "ottla.storage.validation.run",
    "ottla.storage.validation.batch",
    "ottla.storage.validation.replicated",
    "ottla.storage.log.reads",
    "ottla.storage.log.batch_reader",
    "ottla.storage.log.flushes",
    "ottla.storage.log.partition_log",
    "ottla.replication.ports.topic_stats",
    "ottla.replication.ports.waiters",
    "ottla.replication.ports.windowed_sum",
    "ottla.replication.leader.progress",
    "ottla.replication.leader.partition",
    "ottla.replication.reading.asked_partition",
    "ottla.replication.reading.fetch_read",
    "ottla.replication.follower.fetch_session",
    "ottla.replication.follower.fetcher",
    "ottla.replication.waiting.timing_wheel",
    "ottla.replication.waiting.purgatory",
    "ottla.broker.fetching.fetch_session",
    "ottla.broker.security.client",
    "ottla.broker.security.access",
    "ottla.broker.quotas.sensors",
    "ottla.broker.quotas.throttle",
    "ottla.broker.network.handler",
    "ottla.broker.network.request_channel",
    "ottla.broker.network.gather",
    "ottla.broker.network.sendfile",
    "ottla.broker.network.answer_writer",
    "ottla.broker.network.processor",
    "ottla.broker.network.frame_reader",
    "ottla.broker.network.connection",
    "ottla.broker.network.peer_wire",
    "ottla.coordination.appends.delayed_produce",
    "ottla.broker.request.context",
    "ottla.broker.request.running",
    "ottla.broker.serving.route",
    "ottla.broker.serving.dispatch",
    "ottla.coordination.partitions.owned",
    "ottla.coordination.partitions.topic_log",
    "ottla.coordination.partitions.runner",
    "ottla.coordination.groups.record_encoding",
    "ottla.coordination.groups.consumer.heartbeats",
    "ottla.coordination.groups.consumer.machine",
    "ottla.coordination.groups.consumer.coordinator",
    "ottla.broker.handlers.groups.consumer_group_heartbeat",
    "ottla.broker.handlers.groups.offset_commit",
    "ottla.broker.handlers.data.produce",
    "ottla.broker.handlers.data.fetch_writing",
    "ottla.broker.handlers.data.fetch_reading",
    "ottla.broker.handlers.data.delayed_fetch",
    "ottla.broker.handlers.data.fetch",
    "ottla.coordination.transactions.partitions",
    "ottla.coordination.transactions.state",
    "ottla.coordination.transactions.metadata",
    "ottla.coordination.transactions.log_records",
    "ottla.coordination.transactions.markers",
    "ottla.coordination.transactions.coordinator",
    "ottla.broker.handlers.transactions.add_partitions_to_txn",
    "ottla.broker.handlers.transactions.end_txn",
    "ottla.broker.handlers.transactions.marker_writer",
)
"""Modules compiled from the Python file itself; `declarations` finds its C types. Without a compiler the same file is run."""

NATIVE: Final = ("ottla.storage.disk.cached_reads", "ottla.broker.network.native")
"""Modules written in Cython (`.pyx`)."""

SHARED: Final = "ottla.protocol.cython_shared"
"""Module with the code that Cython would otherwise repeat in every compiled module."""

DECLARATIONS: Final = (
    "ottla/protocol/cursors/fields.pxd",
    "ottla/protocol/records/record_step.pxd",
    "ottla/protocol/records/room.pxd",
    "ottla/protocol/conversion/message_fields.pxd",
    "ottla/storage/cached_read.pxd",
)
"""Files that are compiled into modules in other folders."""


def sources() -> list[str]:
    """Every file that goes into a binary, as a path relative to the root."""
    found = list(DECLARATIONS)
    found += [f"{name.replace('.', '/')}.py" for name in HOT]
    for name in NATIVE:
        found += (f"{name.replace('.', '/')}.pyx", f"{name.replace('.', '/')}.pxd")
    return found


def binaries(suffix: str = EXTENSION_SUFFIXES[0]) -> list[str]:
    """Every file that a build makes for this Python, or for that of another suffix, as a path relative to the root."""
    return [f"{name.replace('.', '/')}{suffix}" for name in (SHARED, *HOT, *NATIVE)]


def record(suffix: str = EXTENSION_SUFFIXES[0]) -> str:
    """The file that a complete build leaves, as a path relative to the root.

    Its first line is the `digest`. The others name more files in it: modules with C types, and in a checkout the programs of the build.
    """
    return f"ottla/protocol/compiled{suffix.removesuffix('.so')}.digest"


def digest(root: Path, others: Sequence[str] = ()) -> str:
    """The hash of all sources, and of `others`. Missing files change it, too."""
    hashed = blake2b(digest_size=16)
    for name in (*sources(), *others):
        hashed.update(name.encode() + b"\0")
        try:
            with open(root / name, "rb", buffering=0) as file:
                hashed.update(file.read())
        except FileNotFoundError:
            hashed.update(b"\0")
    return hashed.hexdigest()


def is_current(root: Path, recorded: str) -> bool:
    """Whether the sources are those of the build that left this text in its `record`."""
    of_sources, *others = recorded.splitlines() or [""]
    return of_sources == digest(root, others)
