"""Measures how a broker takes in many records of `__remote_log_metadata`: `python -m benchmarks.comparisons.remote_metadata [--records
1000000]`.

    read      all records, as after a start without a snapshot
    snapshot  the same from the snapshot that the first reader has left

The reader and all below it are real. The broker that leads the topic answers at once, with 1 MiB as to a reader of one partition, and files
are in memory. Half of the records begin a copy, the others finish one. Both lists of turns are those of the event loop in processor time.
`--json FILE` writes the numbers that the part `tiered` of `benchmarks.bench` shows.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final

from benchmarks.stalls.long_turns import Turns
from ottla.broker.loop.collector import collector_paused_for_tables
from ottla.broker.remote.metadata.fetching import FETCH_VERSION, LIST_OFFSETS_VERSION, MAX_PARTITION_BYTES
from ottla.broker.server import COLLECTOR_THRESHOLDS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.compiled import describe
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import fetch
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.storage.remote.entries import SegmentState, TopicIdPartition
from ottla.storage.remote.metadata.partitions import metadata_partition
from ottla.storage.remote.metadata.records import encode_entry, encode_update
from tests.support.fake_peers import Asked, FakePeers
from tests.support.filesystems import MemoryFileSystem
from tests.support.metadata_topic import PARTITIONS, PlayedMetadata, PlayedTopic
from tests.support.peers import until
from tests.support.remote_metadata import an_entry, an_update

USER_PARTITIONS: Final = 10
_FOLLOWED: Final = 0
"""The partition of the metadata topic that has all of them."""
_SEGMENT_RECORDS: Final = 1_000
_CUSTOM: Final = bytes(24)
"""As long as the checksums of indexes that this broker adds to an entry."""
_PATIENCE_S: Final = 600.0

Numbers = dict[str, float]
"""The results by name."""


class DistantPeers(FakePeers):
    """The broker that leads the topic: requests and answers arrive in a later turn, and its own codecs are compiled."""

    def __init__(self, answer: Callable[[Asked], Message]) -> None:
        super().__init__(answer)
        for types, version in ((api(ApiKey.FETCH), FETCH_VERSION), (api(ApiKey.LIST_OFFSETS), LIST_OFFSETS_VERSION)):
            types.request.decoder(version)
            types.response.encoder(version)

    async def travel(self) -> None:
        await asyncio.sleep(0)


class LongTopic(PlayedTopic):
    """A topic whose partition 0 has this many records. Answers are made before anyone asks for them."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.peers = DistantPeers(self._answer)
        self.create()
        self._answers: dict[int, bytes] = {}
        named = (TopicIdPartition(bytes(range(16)), "orders", number) for number in count())
        wanted = (each for each in named if metadata_partition(each, PARTITIONS) == _FOLLOWED)
        self.partitions = list(islice(wanted, USER_PARTITIONS))
        parts: list[bytes] = []
        size = begun = 0
        for offset, value in enumerate(islice(self._values(), records)):
            parts.append(bytes(build_batch([Record(offset, 1_700_000_000_000, None, value)], partition_leader_epoch=0)))
            size += len(parts[-1])
            if size + len(parts[-1]) > MAX_PARTITION_BYTES or offset == records - 1:
                self._answers[begun] = b"".join(parts)
                parts, size, begun = [], 0, offset + 1
        self.ends[_FOLLOWED] = records

    def _values(self) -> Iterator[bytes]:
        chosen = random.Random(7)
        for number in count():
            partition = self.partitions[number % USER_PARTITIONS]
            start = number // USER_PARTITIONS * _SEGMENT_RECORDS
            entry = an_entry(chosen.getrandbits(128), start, start + _SEGMENT_RECORDS - 1, partition=partition)
            yield encode_entry(entry)
            yield encode_update(an_update(entry, SegmentState.COPY_SEGMENT_FINISHED, custom=_CUSTOM))

    def _fetch(self, request: fetch.FetchRequest, broker_id: int, fault: ErrorCode) -> Message:
        (asked,) = request.topics[0].partitions
        records = self._answers.get(asked.fetch_offset, b"")
        data = fetch.PartitionData(partition_index=asked.partition, high_watermark=self.ends[asked.partition], records=records)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[data])])


async def take_in(topic: LongTopic, filesystem: MemoryFileSystem, name: str, turns: Turns) -> Numbers:
    """Print and return how long it takes until lookups are answered, and the longest turn meanwhile."""
    metadata = PlayedMetadata(topic, filesystem, while_loading=collector_paused_for_tables)
    gc.collect()
    gc.freeze()  # the broker of the topic is in this process, too
    await asyncio.sleep(0)
    turns.turns.clear()
    began, began_cpu = time.monotonic(), time.process_time()
    metadata.start()
    for partition in topic.partitions:
        metadata.follow(partition)
    async with asyncio.timeout(_PATIENCE_S):
        await until(lambda: all(metadata.is_ready(partition) for partition in topic.partitions))
    took, cpu = time.monotonic() - began, time.process_time() - began_cpu
    asyncio.get_running_loop().call_soon(gc.collect, 1)
    await asyncio.sleep(0)  # the next pass of the collector is a turn, too
    longest_ms = turns.longest_ms()
    print(f"{name}: {topic.ends[_FOLLOWED]} records: {took:.2f} s, {cpu:.2f} s of processor time", flush=True)
    turns.report(name)
    found = sum(len(metadata.all_entries(partition)) for partition in topic.partitions)
    assert found == (topic.ends[_FOLLOWED] + 1) // 2, found
    await asyncio.sleep(0)
    turns.turns.clear()
    await metadata.close()
    turns.report(f"{name}, the end with a snapshot")
    return {f"metadata_{name}_s": took, f"metadata_{name}_cpu_s": cpu, f"metadata_{name}_turn_ms": longest_ms}


def main() -> None:
    """Run both, print, and write the numbers where they are wanted."""
    parser = argparse.ArgumentParser(description="The metadata of many remote segments.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--where", action="store_true", help="show the lines of the longest turns")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    arguments = parser.parse_args()
    print(describe())
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    topic, filesystem = LongTopic(arguments.records), MemoryFileSystem()
    numbers: Numbers = {}
    turns = Turns(where=arguments.where)
    for name in ("read", "snapshot"):
        numbers |= asyncio.run(take_in(topic, filesystem, name, turns))
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers), encoding="ascii")


if __name__ == "__main__":
    main()
