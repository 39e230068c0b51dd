"""Declares the loads of transactions: one producer with few and many records and partitions, ten producers, a copier with offsets.

A load needs a site, which is one broker or a cluster, and makes runs of it. Each run has its producers begin anew by InitProducerId.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.loadgen.transactional import Transaction, TransactionLoad
from benchmarks.loads import transaction_frames
from benchmarks.loads.admin import Topic
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.turns.sizes import Pace

PAUSE_S: Final = 0.001
"""After CONCURRENT_TRANSACTIONS. So short that what is measured is the broker."""
CLIENTS_PAUSE_S: Final = 0.02
"""The same of Apache Kafka's Java client and of librdkafka."""
AT_LEAST: Final = 2.0
"""How many times as many transactions a second as the reference, and its latency as a multiple."""
TEN: Final = 10
_VALUE_BYTES: Final = 100
_GROUP: Final = "copier"
_READ_POSITIONS: Final = 64
_COPIED: Final = 10  # records


class Site(Protocol):
    """One broker or a cluster, as a load uses it."""

    @property
    def port(self) -> int:
        """Of any broker."""

    def topic(self, name: str, partitions: int) -> Topic:
        """A new topic. Raises BrokerRefusedError."""

    def leader_ports(self, topic: Topic) -> Mapping[int, int]:
        """The port of the leader of each partition. Raises BrokerRefusedError."""

    def fill(self, topic: Topic, batch: bytes, times: int) -> None:
        """Append a batch so many times to partition 0. Raises LoadFailedError."""


LoadMaker = Callable[[Pace], TransactionLoad]


@dataclass(frozen=True, slots=True)
class TransactionShape:
    """One load: its key, its title, and how it is prepared on a site."""

    key: str
    title: str
    prepare: Callable[[Site], LoadMaker]


def _batch(records: int) -> bytes:
    return batch_of_values(values_like_text(records, _VALUE_BYTES), int(time.time() * 1000))


def producers(key: str, count: int, records: int, partitions: int, pause_s: float = PAUSE_S) -> Callable[[Site], LoadMaker]:
    """Producers that each write so many records to each of so many partitions of their own, and commit."""

    def prepare(site: Site) -> LoadMaker:
        topic = site.topic(key, count * partitions)
        ports, batch = site.leader_ports(topic), _batch(records)

        def transaction(number: int) -> Transaction:
            who = transaction_frames.begin(site.port, f"{key}-{number}")
            own = range(number * partitions, (number + 1) * partitions)
            return [
                transaction_frames.add_partitions(who, topic.name, own),
                transaction_frames.produce(who, topic.name, dict.fromkeys(own, batch), records, ports),
                transaction_frames.end(who),
            ]

        return lambda pace: TransactionLoad([transaction(number) for number in range(count)], pace.warm_up_s, pace.duration_s, pause_s)

    return prepare


def _copier(key: str) -> Callable[[Site], LoadMaker]:
    """Reads committed records of one topic, writes as many to another, and commits the offset of the group with them."""

    def prepare(site: Site) -> LoadMaker:
        source, sink = site.topic(f"{key}-in", 1), site.topic(f"{key}-out", 1)
        batch = _batch(_COPIED)
        site.fill(source, batch, _READ_POSITIONS)
        offsets = [at * _COPIED for at in range(_READ_POSITIONS)]
        source_port, sink_ports = site.leader_ports(source)[0], site.leader_ports(sink)

        def transaction() -> Transaction:
            who = transaction_frames.begin(site.port, key)
            return [
                transaction_frames.read(source, source_port, offsets, len(batch)),
                transaction_frames.add_partitions(who, sink.name, [0]),
                transaction_frames.produce(who, sink.name, {0: batch}, _COPIED, sink_ports),
                *transaction_frames.commit_offsets(who, site.port, _GROUP, source.name),
                transaction_frames.end(who),
            ]

        return lambda pace: TransactionLoad([transaction()], pace.warm_up_s, pace.duration_s, PAUSE_S)

    return prepare


def _nothing(site: Site) -> LoadMaker:
    transaction_frames.begin(site.port, "known")  # has the topic of the transactions created
    step = transaction_frames.end_nothing(site.port)
    return lambda pace: TransactionLoad([[step]], pace.warm_up_s, pace.duration_s, PAUSE_S)


ROUND_TRIP: Final = TransactionShape("refused-end", "EndTxn of an unknown id", _nothing)
"""The latency that a commit would have if the broker had nothing to store."""


def _one_producer(records: int, partitions: int) -> TransactionShape:
    key = f"txn-{records}x{partitions}"
    what = "1 record" if records == 1 else f"{records} records"
    where = "1 partition" if partitions == 1 else f"each of {partitions} partitions"
    return TransactionShape(key, f"one producer, {what} to {where}", producers(key, 1, records, partitions))


def shapes() -> Sequence[TransactionShape]:
    """All loads, which one broker and three are given alike."""
    return (
        *(_one_producer(records, partitions) for partitions in (1, 10) for records in (1, 10, 100)),
        TransactionShape("txn-ten", "ten producers, 10 records to 1 partition each", producers("txn-ten", TEN, 10, 1)),
        TransactionShape("txn-copier", f"a copier of {_COPIED} records with its offsets", _copier("txn-copier")),
        TransactionShape(
            "txn-client",
            "one producer, 10 records, with the 20 ms pause of clients",
            producers("txn-client", 1, 10, 1, CLIENTS_PAUSE_S),
        ),
    )
