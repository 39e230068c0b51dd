"""Reads the log directories in tests/golden/log with their manifests, batch by batch."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LOGS = Path(__file__).parents[1] / "golden" / "log"


class GoldenBatch(NamedTuple):
    """One batch of a recorded log: the bytes of its file, where it stands, and what the manifest says of it."""

    place: str
    log: bytes
    position: int
    manifest: dict[str, Any]


@cache
def golden_batches() -> tuple[GoldenBatch, ...]:
    """Every batch of every recorded log, 675 of them."""
    return tuple(_golden_batches())


def _golden_batches() -> Iterator[GoldenBatch]:
    for manifest in sorted(LOGS.glob("*/*.json")):
        directory = manifest.with_suffix("") if manifest.with_suffix("").is_dir() else manifest.parent / manifest.name[: -len(".json")]
        for name, described in json.loads(manifest.read_text())["files"].items():
            if name.endswith(".log") and described.get("batches"):
                log = (directory / name).read_bytes()
                for batch in described["batches"]:
                    yield GoldenBatch(f"{manifest.parent.name}/{directory.name}/{name}@{batch['position']}", log, batch["position"], batch)
