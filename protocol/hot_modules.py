"""Lists the modules that are compiled, and hashes their sources. `setup.py` runs this file by its path, without the package."""

from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

HOT: Final = (
    "protocol.cursors.request_reader",
    "protocol.cursors.response_writer",
    "protocol.cursors.produce",
    "protocol.cursors.fetch",
    "protocol.cursors.fetch_answer_reader",
    "protocol.cursors.offset_commit",
    "protocol.conversion.message_reader",
    "protocol.conversion.up_converter",
    "protocol.conversion.down_converter",
    "storage.disk.real_file",
    "storage.segment.index_file",
    "storage.segment.offset_index",
    "storage.segment.time_index",
    "storage.segment.log_settings",
    "storage.segment.file_region",
    "storage.segment.batch_finder",
    "storage.segment.segment",
    "storage.producers.state",
    "storage.validation.rules",
    "storage.validation.run",
    "storage.validation.batch",
    "storage.validation.replicated",
    "storage.log.reads",
    "storage.log.batch_reader",
    "storage.log.flush_progress",
    "storage.log.partition_log",
    "replication.ports.topic_stats",
    "replication.ports.waiters",
    "replication.ports.windowed_sum",
    "replication.leader.progress",
    "replication.leader.partition",
    "replication.reading.asked_partition",
    "replication.reading.fetch_read",
    "replication.follower.fetch_session",
    "replication.follower.fetcher",
    "broker.loop.deadlines",
    "broker.loop.purgatory",
    "broker.fetching.fetch_session",
    "broker.security.client",
    "broker.security.access",
    "broker.quotas.sensors",
    "broker.quotas.throttle",
    "broker.network.handler",
    "broker.network.request_channel",
    "broker.network.gather",
    "broker.network.sendfile",
    "broker.network.answer_writer",
    "broker.network.processor",
    "broker.network.frame_reader",
    "broker.network.connection",
    "broker.network.peer_wire",
    "broker.request.delayed_produce",
    "broker.request.context",
    "broker.request.turns",
    "broker.serving.route",
    "broker.serving.message_requests",
    "broker.serving.dispatch",
    "broker.coordination.large_table",
    "broker.coordination.owned",
    "broker.coordination.record_encoding",
    "broker.coordination.runner",
    "broker.coordination.topic_log",
    "broker.groups.record_encoding",
    "broker.handlers.groups.offset_commit",
    "broker.handlers.data.produce",
    "broker.handlers.data.fetch_writing",
    "broker.handlers.data.fetch_reading",
    "broker.handlers.data.delayed_fetch",
    "broker.handlers.data.fetch",
    "broker.transactions.partitions",
    "broker.transactions.state",
    "broker.transactions.metadata",
    "broker.transactions.log_records",
    "broker.transactions.markers",
    "broker.transactions.machines",
    "broker.transactions.coordinator",
    "broker.handlers.delayed_answer",
    "broker.handlers.transactions.add_partitions_to_txn",
    "broker.handlers.transactions.end_txn",
    "broker.handlers.transactions.marker_writer",
)
"""Modules compiled from the Python file itself, with the `.pxd` beside it. Without a compiler the same file is run."""

NATIVE: Final = ("storage.disk.cached_reads", "broker.network.native")
"""Modules written in Cython (`.pyx`)."""

SHARED: Final = "protocol.cython_shared"
"""Module with the code that Cython would otherwise repeat in every compiled module."""

DECLARATIONS: Final = (
    "protocol/cursors/fields.pxd",
    "protocol/conversion/message_fields.pxd",
    "storage/cached_read.pxd",
)
"""Files that are compiled into modules in other folders."""


def sources() -> list[str]:
    """Every file that goes into a binary, as a path relative to the root."""
    found = list(DECLARATIONS)
    for name in HOT:
        found += (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}.pxd")
    for name in NATIVE:
        found += (f"{name.replace('.', '/')}.pyx", f"{name.replace('.', '/')}.pxd")
    return found


def binaries(suffix: str = EXTENSION_SUFFIXES[0]) -> list[str]:
    """Every file that a build makes for this Python, or for that of another suffix, as a path relative to the root."""
    return [f"{name.replace('.', '/')}{suffix}" for name in (SHARED, *HOT, *NATIVE)]


def record(suffix: str = EXTENSION_SUFFIXES[0]) -> str:
    """The file that a complete build leaves, as a path relative to the root. It holds the `digest` of the sources."""
    return f"protocol/compiled{suffix.removesuffix('.so')}.digest"


def digest(root: Path) -> str:
    """The hash of all sources. Missing files change it, too."""
    hashed = blake2b(digest_size=16)
    for name in sources():
        hashed.update(name.encode() + b"\0")
        try:
            with open(root / name, "rb", buffering=0) as file:
                hashed.update(file.read())
        except FileNotFoundError:
            hashed.update(b"\0")
    return hashed.hexdigest()
