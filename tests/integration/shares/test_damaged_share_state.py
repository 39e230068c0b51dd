"""What cannot be read in `__share_group_state` gets a line in the log each, and costs no group its state or its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.coordination.partitions.topic_log import encode_pairs
from ottla.coordination.shares.state.stored_state import SharePartitionKey, StoredState, encode_value, snapshot_key, update_key
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import CRC_OFFSET, iter_batches
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.share_members import ShareMember, create_topic, initialize, produce
from tests.support.wire_client import WireClient, a_wire_client

ACCEPT = 1
SEGMENT = Path("__share_group_state-0", f"{0:020d}.log")
CONFIG: dict[str, Any] = {"share_coordinator_state_topic_num_partitions": 1, "offsets_topic_num_partitions": 1}


def accept(client: WireClient, topic_id: bytes, group: str, last: int) -> None:
    """A member acquires all records, accepts those up to this one, and ends its session."""
    member = ShareMember(client, topic_id, group=group)
    member.acquire(0)
    assert member.acknowledge((0, last, ACCEPT)) == ErrorCode.NONE
    member.acknowledge_all({}, epoch=-1)


def append(broker: InProcessBroker, pairs: list[tuple[bytes, bytes | None]]) -> None:
    """Write records behind all others of `__share_group_state`, and wait for their end."""
    stored: list[ErrorCode] = []
    log = broker.services.coordinators.shares._log
    broker.run(lambda: log.append(0, encode_pairs(pairs), len(pairs), lambda error, _: stored.append(error)))
    eventually(lambda: stored == [ErrorCode.NONE])


def damage_the_last_batch(segment: Path) -> None:
    """Change its checksum, as a failing disk may do."""
    data = bytearray(segment.read_bytes())
    *_, (position, _) = iter_batches(bytes(data))
    data[position + CRC_OFFSET] ^= 1
    segment.write_bytes(data)


def test_a_state_topic_with_garbage_delivers_the_records_of_all_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        topic_id = create_topic(client, "t")
        for group in ("g", "h"):
            initialize(client, group, topic_id)
        produce(client, "t", 10)
        accept(client, topic_id, "g", 3)
        accept(client, topic_id, "h", 5)
        key = SharePartitionKey("g", topic_id, 0)
        skips = encode_value(StoredState(key).initialized(0, 9, 0))
        garbage: list[tuple[bytes, bytes | None]] = [
            (b"", skips),
            (b"\xff" * 40, skips),
            (b"\0\7" + snapshot_key(key)[2:], skips),
            (snapshot_key(key)[:-2], skips),
            (snapshot_key(key), b"\0\1" + skips[2:]),
            (snapshot_key(key), skips[:-2]),
            (snapshot_key(key), b"\xff" * 40),
            (update_key(key), b""),
            (update_key(SharePartitionKey("unknown", topic_id, 0)), encode_value(StoredState(key).led(3))),
        ]
        append(broker, garbage)
        append(broker, [(snapshot_key(key), skips)])
    damage_the_last_batch(tmp_path / SEGMENT)
    caplog.clear()
    with a_broker_in_process(tmp_path, **CONFIG) as broker, a_wire_client(broker.port) as client:
        eventually(lambda: broker.run(lambda: len(list(broker.services.coordinators.shares.states))) == 2)
        said = [record.message for record in caplog.records if record.message.endswith("left out")]
        assert len(said) == len(garbage) + 1
        assert [line for line in said if "the batch at offset" in line and "its checksum is wrong" in line]
        assert not [record for record in caplog.records if record.exc_info]
        for group, first in (("g", 4), ("h", 6)):
            member = ShareMember(client, topic_id, group=group)
            assert member.acquire(0, max_wait_ms=30_000) == [(first, 9, 2)]
            assert member.acknowledge((first, 9, ACCEPT)) == ErrorCode.NONE
