"""Counts the files that one request enters, from the socket to the answer: `OTTLA_PURE_PYTHON=1 python -m benchmarks.paths.trips`.

A broker in this process, as Python; a client in a thread. A file is counted when a call enters it before the answer is sent. Timers of the
broker may enter others: of several equal requests, the files that all of them entered are counted. Prints the number for each kind of
request: all files, those outside of `broker/network`, and those of them that are not entered by the append to the log (`APPEND`). With
`--files` it prints the files in the order in which they were entered.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import ottla
from benchmarks.loads.batches import batch_of_values, of_producer, values_like_text
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.compiled import describe
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.message import Message
from tests.support.wire_client import WireClient

REQUESTS: Final = 5
_TOPIC: Final = "travelled"
_TRIES: Final = 200
_PACKAGE: Final = str(Path(ottla.__file__).parent) + "/"
_NETWORK: Final = "broker/network/"
_MEMBER_ID_REQUIRED: Final = 79

APPEND: Final = (
    "storage/",
    "protocol/records/",
    "replication/leader/partition",
    "replication/control/replica_manager",
    "coordination/partitions/topic_log",
)
"""The modules that append a batch to a log. The last two build and place the batch of a coordinator."""

Trip = tuple[Message, int]
"""A request and its version."""


class Trips:
    """Notes the files that the event loop's thread enters."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (path := frame.f_code.co_filename).startswith(_PACKAGE):
            self.files[path] = None


def a_produce(client: WireClient, number: int) -> Trip:
    """One batch to one partition, acknowledged by all in-sync replicas."""
    batch = batch_of_values(values_like_text(10, 100), int(time.time() * 1000))
    return _produce(batch, None), 11


def a_fetch(client: WireClient, number: int) -> Trip:
    """One partition from its start."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=_TOPIC, partitions=[partition])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12


def a_join(client: WireClient, number: int) -> Trip:
    """A new member with its id, the first of its group."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=f"group-{number}", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer", protocols=protocols
    )
    answer = client.ask(request, 9)
    assert answer.error_code == _MEMBER_ID_REQUIRED, answer
    request.member_id = answer.member_id
    return request, 9


def an_end(client: WireClient, number: int) -> Trip:
    """The commit of a transaction with one partition."""
    name = f"transaction-{number}"
    given = _asked(client, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=30_000), 4)
    who = (given.producer_id, given.producer_epoch)
    topics = [AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])]
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=topics,
    )
    assert not client.ask(adding, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    batch = batch_of_values(values_like_text(1, 100), int(time.time() * 1000))
    client.ask(_produce(of_producer(batch, who[0], epoch=who[1], is_transactional=True), name), 11)
    return EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=True), 3


def _produce(batch: bytes, transactional_id: str | None) -> ProduceRequest:
    topics = [TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)


def _asked(client: WireClient, request: Message, version: int) -> Any:
    """The answer without an error; a coordinator may still be loading."""
    for _ in range(_TRIES):
        answer = client.ask(request, version)
        if not answer.error_code:
            return answer
        time.sleep(0.05)
    raise AssertionError(answer)


KINDS: Final[dict[str, Callable[[WireClient, int], Trip]]] = {
    "Produce": a_produce,
    "Fetch": a_fetch,
    "JoinGroup": a_join,
    "EndTxn": an_end,
}


def travel(port: int, trips: Trips) -> dict[str, list[str]]:
    """The files of each kind of request."""
    client = WireClient(port)
    found = {}
    for kind, make in KINDS.items():
        each: list[dict[str, None]] = []
        for number in range(REQUESTS + 1):  # the first one also makes what all later ones use
            request, version = make(client, number)
            time.sleep(0.1)  # what the last answer left to do
            trips.files = {}
            answer = client.ask(request, version)
            each.append(trips.files)
            assert not getattr(answer, "error_code", 0), (kind, answer)
        found[kind] = until_answered([path.removeprefix(_PACKAGE) for path in each[1] if all(path in others for others in each[2:])])
    client.close()
    return found


def until_answered(files: Sequence[str]) -> list[str]:
    """The files up to the last one of the network, which sends the answer. The client may see it later than other work begins."""
    last = max(at for at, each in enumerate(files) if each.startswith(_NETWORK))
    return list(files[: last + 1])


async def measure(scratch: Path) -> dict[str, list[str]]:
    """The files of each kind of request at a new broker."""
    config = {
        "log.dirs": str(scratch / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.min.isr": "1",
    }
    broker = Broker(BrokerConfig(config))
    await broker.start()
    trips = Trips()
    try:
        topics = [NewTopic(name, 1, 1) for name in (_TOPIC, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)]
        await broker.services.administration.topic_admin.create_topics(topics)
        sys.setprofile(trips)
        return await asyncio.to_thread(travel, int(broker.addresses[0].rpartition(":")[2]), trips)
    finally:
        sys.setprofile(None)
        await broker.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.trips", description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="print the files, too")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trips-") as scratch:
        found = asyncio.run(measure(Path(scratch)))
    print(describe())
    for kind, files in found.items():
        inside = [each for each in files if not each.startswith(_NETWORK)]
        rest = sum(not each.startswith(APPEND) for each in inside)
        print(f"{kind:<12}{len(files):>4} files, {len(inside):>3} without the network, {rest:>3} without the append")
        if asked.files:
            print("".join(f"    {each}\n" for each in files), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
