"""Log directories that Apache Kafka 3.9.1 wrote, read through a broker by a real client: record for record what their manifests say."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.adopted_directory import adopt
from tests.support.broker_process import a_broker
from tests.support.clients import ConfluentClient, Record, read_all
from tests.support.golden_logs import LOGS

Expected = dict[tuple[str, int], list[Record]]


def manifests(name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((LOGS / name).glob("*.json")) if path.with_suffix("").is_dir()]


def start_offsets(name: str) -> dict[tuple[str, int], int]:
    lines = (LOGS / name / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in (line.split() for line in lines)}


def as_bytes(told: Any) -> bytes | None:
    if told is None:
        return None
    return bytes.fromhex(told["hex"]) if isinstance(told, dict) else told.encode()


def a_record(batch: dict[str, Any], told: dict[str, Any]) -> Record:
    timestamp = batch["max_timestamp"] if batch["timestamp_type"] == "LogAppendTime" else told["timestamp"]
    headers = tuple((name, as_bytes(value)) for name, value in told["headers"])
    return Record(as_bytes(told["value"]), as_bytes(told["key"]), headers, timestamp, told["offset"])


def batches_of(manifest: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for file in sorted(manifest["files"]):
        if file.endswith(".log"):
            yield from manifest["files"][file].get("batches", ())


def expected_of(name: str) -> Expected:
    """What a consumer that reads everything has to see: no markers, nothing before the log start offset."""
    starts = start_offsets(name)
    found: Expected = {}
    for manifest in manifests(name):
        partition = (manifest["topic"], manifest["partition"])
        records = [a_record(batch, told) for batch in batches_of(manifest) if not batch["control"] for told in batch["records"]]
        found[partition] = [record for record in records if (record.offset or 0) >= starts.get(partition, 0)]
    return found


def committed_of(name: str) -> tuple[Expected, dict[tuple[str, int], int]]:
    """What a read_committed consumer has to see, and the last stable offset of each partition, which may move on later."""
    found, stable = expected_of(name), {}
    for manifest in manifests(name):
        partition = (manifest["topic"], manifest["partition"])
        open_since: dict[int, int] = {}
        aborted: set[int] = set()
        pending: dict[int, set[int]] = {}
        end = 0
        for batch in batches_of(manifest):
            end, producer = batch["last_offset"] + 1, batch["producer_id"]
            if batch["control"]:
                open_since.pop(producer, None)
                offsets = pending.pop(producer, set())
                if batch["records"][0]["control_type"] == "ABORT":
                    aborted |= offsets
            elif batch["transactional"]:
                open_since.setdefault(producer, batch["base_offset"])
                pending.setdefault(producer, set()).update(told["offset"] for told in batch["records"])
        stable[partition] = min(open_since.values(), default=end)
        found[partition] = [r for r in found[partition] if r.offset not in aborted and (r.offset or 0) < stable[partition]]
    return found, stable


@pytest.mark.parametrize("name", ["clean", "killed", "expired"])
def test_every_record_of_a_recorded_directory_is_served(tmp_path: Path, name: str) -> None:
    configs = {manifest["topic"]: manifest.get("topic_config") or {} for manifest in manifests(name)}
    properties = adopt(LOGS / name, tmp_path / "data", configs)
    expected = expected_of(name)
    assert len(expected) > 5

    keep = {"log_cleaner_enable": "false", "log_retention_ms": -1}
    with a_broker(tmp_path, **keep, broker_id=properties["broker.id"]) as broker:
        assert read_all(broker.bootstrap, expected, "read_uncommitted") == expected

        committed, stable = committed_of(name)
        seen = read_all(broker.bootstrap, expected, "read_committed")
        assert {at: [r for r in records if (r.offset or 0) < stable[at]] for at, records in seen.items()} == committed

        client = ConfluentClient(broker.bootstrap)
        client.produce("log-plain" if name != "expired" else "new", [Record(b"one more")])
        assert broker.stop() == 0
        broker.start()
        again = read_all(broker.bootstrap, expected, "read_uncommitted")
        if name != "expired":
            assert again["log-plain", 0].pop().value == b"one more"
        assert {p: records for p, records in again.items() if not p[0].startswith("__")} == {
            p: records for p, records in expected.items() if not p[0].startswith("__")
        }
