"""Reads the segments of a partition's directory without a broker."""

from pathlib import Path

from ottla.protocol.records.batch import BatchHeader, iter_batches


def batch_headers(partition_directory: Path) -> list[BatchHeader]:
    """The headers of all its batches in order of offset."""
    found: list[BatchHeader] = []
    for segment in sorted(partition_directory.glob("*.log")):
        found += [header for _, header in iter_batches(segment.read_bytes())]
    return found
