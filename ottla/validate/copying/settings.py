"""Holds what a run tells each copier, as JSON in the first line of its standard input."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one copier. `mark` and `aborted_mark` are the marks of rows that it commits, and of those that it aborts."""

    bootstrap: str
    number: int
    topic: str
    output: str
    group: str
    transactional_id: str
    transaction_timeout_ms: int
    transaction_rows: int
    aborted_percent: int
    mark: str
    aborted_mark: str
    seed: int
    codec: str
    largest_batch: int
    batch_bytes: int
    security: Mapping[str, str] = field(default_factory=dict)
    """Keys of librdkafka for TLS and SASL. They may be secrets, so they are in no command line."""
