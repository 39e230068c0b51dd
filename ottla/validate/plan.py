"""Defines the plan of a run, and the two errors with which a run ends without a report."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from ottla.broker.security.client_security import ConfiguredSecurity
from ottla.protocol.client_security import PLAINTEXT, ClientSecurity

ROWS_PER_STREAM = 100_000
MAX_STREAMS = 999_999
MAX_ROWS = 10**12 - 1
_LEAST_STREAMS = 4
_SEGMENTS = 100
_FEWEST_SEGMENTS = 20
_MOST_SEGMENT_BYTES = 1 << 30
_BATCH_BYTES = 16_384
_COPIER_BATCH_BYTES = 1_000_000
_AROUND_RECORD = 100


class Unusable(Exception):
    """The user's input, or something that the machine lacks, makes the run impossible: one line, exit status 2."""


class DidNotFinish(Exception):
    """The run began and could not come to a verdict: one line, exit status 1."""


@dataclass(frozen=True, slots=True)
class Copies:
    """How rows get from the topic to the one that Spark reads: in transactions of so many copiers, some of which are aborted on purpose.

    With `faults` copiers are killed, stopped and paused. `module` is what a copier runs.
    """

    copiers: int = 3
    transaction_rows: int = 500
    aborted_percent: int = 10
    faults: bool = False
    module: str = "ottla.validate.copying.copier"


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of all stages. `rows`, `record_bytes` and `key_bytes` are those of the user's file, once that has been read."""

    bootstrap: str
    topic: str
    rows: int
    report: Path
    partitions: int = 4
    replication_factor: int = -1
    record_bytes: int = 100
    key_bytes: int | None = None
    codec: str = "none"
    acks: str = "all"
    master: str = "local[*]"
    mode: str = "stream"
    seed: int = 1
    keys: int = 10_000
    key_kind: str = "both"
    input: Path | None = None
    key_column: str | None = None
    generates: bool = True
    keeps_topic: bool = False
    work: str | None = None
    chaos: Path | None = None
    copies: Copies | None = None
    mark: str = ""
    stall_s: float = 120.0
    max_offsets_per_trigger: int | None = None
    producer: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    tiered: bool = False
    """Whether Spark reads only when most records are in the remote store alone."""
    security: ClientSecurity = PLAINTEXT
    """Of the connections of all clients of the run."""

    @property
    def java_security(self) -> Mapping[str, str]:
        """The keys of Java's clients for TLS and SASL."""
        return self.security.properties.java if isinstance(self.security, ConfiguredSecurity) else {}

    @property
    def run(self) -> str:
        """Eight characters that mark the records of this run, the same for the same seed; with a mark, others."""
        written = f"{self.seed & 0xFFFFFFFF:08x}"
        return f"{zlib.crc32(f'{written} {self.mark}'.encode()):08x}" if self.mark else written

    @property
    def output(self) -> "Plan":
        """The plan for the topic that Spark reads: that of the copiers, or the one with the rows when there are none."""
        return self if self.copies is None or self.mark else replace(self, topic=f"{self.topic}-copied", mark="copied")

    @property
    def topics(self) -> list[str]:
        """The topics that the run writes to."""
        return list(dict.fromkeys([self.topic, self.output.topic]))

    @property
    def aborted_run(self) -> str:
        """Marks the records of transactions that are aborted on purpose."""
        return replace(self, mark="aborted").run

    @property
    def longest_key(self) -> int:
        """Bytes of the longest generated key, or of the key of the file's largest row."""
        return len(f"u-{self.keys - 1}") if self.key_bytes is None else self.key_bytes

    @property
    def is_measured(self) -> bool:
        """Whether the size of the records is known."""
        return self.input is None or self.key_bytes is not None

    @property
    def topic_configs(self) -> dict[str, str]:
        """Configuration of a new topic. With faults, acknowledged records must be on two brokers."""
        tiered = {
            "remote.storage.enable": "true",
            "segment.bytes": str(self.segment_bytes),
            "local.retention.bytes": "1",
        }
        return self.least_configs | (tiered if self.tiered else {})

    @property
    def least_configs(self) -> dict[str, str]:
        """The least values that an existing topic must have."""
        return {"min.insync.replicas": "2"} if self.chaos is not None else {}

    @property
    def segment_bytes(self) -> int:
        """Size of the segments of a new topic with tiered storage: the active one, which stays on its broker, is a hundredth or less."""
        wanted = self.rows * (self.record_bytes + self.longest_key) // self.partitions // _SEGMENTS
        return max(min(wanted, _MOST_SEGMENT_BYTES), self._least_segment_bytes)

    @property
    def copier_batch_bytes(self) -> int:
        """Largest batch of a copier, which has to fit into a segment of the topic that it writes to."""
        return self.segment_bytes // 2 if self.tiered else _COPIER_BATCH_BYTES

    @property
    def _least_segment_bytes(self) -> int:
        """Two batches of a producer."""
        return 2 * max(int(self.producer.get("batch.size", _BATCH_BYTES)), self.record_bytes + self.longest_key + _AROUND_RECORD)

    @property
    def streams(self) -> int:
        """The number of producers of generated rows, one after the other or side by side; each keeps the order of its own rows."""
        return max(1, min(self.rows, max(_LEAST_STREAMS, -(-self.rows // ROWS_PER_STREAM)), MAX_STREAMS))


def check_tiered(plan: Plan) -> None:
    """Raises Unusable when nine tenths of the rows cannot be in the remote store, because each partition has an active segment."""
    if not plan.tiered or not plan.generates:
        return
    needed = _FEWEST_SEGMENTS * plan.segment_bytes * plan.partitions // (plan.record_bytes + plan.longest_key)
    if plan.rows < needed:
        raise Unusable(
            f"--tiered: {plan.rows:,} rows fill too few segments to be moved away; it needs about {needed:,}, or fewer partitions"
        )


def check_client(plan: Plan) -> None:
    """Raises Unusable when copiers are wanted and their client is not installed."""
    if plan.copies is not None and find_spec("confluent_kafka") is None:
        raise Unusable("confluent-kafka is not installed; pip install 'ottla[spark]'")


def check_input(plan: Plan) -> None:
    """Check that the user's file exists, and that Spark would read it. Raises Unusable."""
    if plan.input is None:
        return
    if not plan.input.exists():
        raise Unusable(f"{plan.input}: there is no such file")
    if plan.input.is_file() and (plan.input.name.startswith(("_", ".")) or ":" in plan.input.name):
        raise Unusable(f"{plan.input}: Spark reads no file whose name begins with _ or . or has a colon; give it another name")
