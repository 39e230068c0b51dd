"""Declares the sizes of a run: lengths and counts of every part, for a quick run, the usual run, and a run of more turns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Lengths of the loads of the load generator.

    `warm_up_limit_s` bounds the warm-up of a fresh broker, which goes in slices, `warm_up_s` comes before every window. `max_bytes` ends a
    produce window early, before the disk would be what is measured.
    """

    warm_up_limit_s: float
    warm_up_s: float
    duration_s: float
    max_bytes: int
    prefill_bytes: int
    warm_up_slice_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Size:
    """All sizes of a run. `repeats` are the turns of the parts with the tightest targets; others take one turn.

    Each load is measured in so many `windows`, between which the sides take turns.
    """

    pace: Pace
    repeats: int
    produce_rates: Sequence[int]
    fetch_rates: Sequence[int]
    topics: int
    connections: int
    old_megabytes: int
    old_s: float
    members: Sequence[int]
    offset_records: int
    long_s: float
    session_partitions: int = 1000
    steady_s: float = 10.0
    client_records: int = 2_000_000
    shared_records: int = 500_000
    remote_segment_bytes: int = 32 * _MIB
    remote_segments: int = 3
    """Closed segments of each partition of old data."""
    replica_megabytes: int = 1_000
    replica_old_megabytes: int = 20_000
    metadata_records: int = 1_000_000
    """Records of the metadata of remote segments."""
    transactional_ids: int = 1_000_000
    transaction_partitions: int = 100_000
    settle_s: float = 2.0
    """Time without load before the idle state of a broker is measured, seconds; work right after its start is not idleness."""
    windows: int = 8
    is_brief: bool = False


NORMAL = Size(
    pace=Pace(warm_up_limit_s=60, warm_up_s=1.5, duration_s=4.0, max_bytes=1024 * _MIB, prefill_bytes=512 * _MIB),
    repeats=2,
    produce_rates=(1000, 4000, 8000, 12000, 16000),
    fetch_rates=(1000, 4000, 8000),
    topics=1000,
    connections=5000,
    old_megabytes=512,
    old_s=5.0,
    members=(100, 1000),
    offset_records=1_000_000,
    long_s=600,
)
QUICK = Size(
    pace=Pace(warm_up_limit_s=0, warm_up_s=0.1, duration_s=0.5, max_bytes=256 * _MIB, prefill_bytes=64 * _MIB, warm_up_slice_s=0.5),
    repeats=1,
    produce_rates=(500, 2000),
    fetch_rates=(500,),
    topics=50,
    connections=500,
    old_megabytes=64,
    old_s=1.0,
    members=(20,),
    offset_records=20_000,
    long_s=5,
    session_partitions=100,
    steady_s=1.0,
    client_records=100_000,
    shared_records=50_000,
    remote_segment_bytes=8 * _MIB,
    remote_segments=2,
    replica_megabytes=32,
    replica_old_megabytes=128,
    metadata_records=50_000,
    transactional_ids=20_000,
    transaction_partitions=10_000,
    settle_s=0.5,
    windows=2,
    is_brief=True,
)
LONG = replace(
    NORMAL,
    pace=replace(NORMAL.pace, duration_s=8.0),
    repeats=3,
    produce_rates=(1000, 2000, 4000, 8000, 12000, 16000),
    steady_s=30.0,
    windows=16,
)
SIZES = {"quick": QUICK, "normal": NORMAL, "long": LONG}
