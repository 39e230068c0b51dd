"""Compares what consumers of committed transactions read with what the producers of the transactions asked for and were told.

A record is named after its transactional id, the number of its transaction and its place among the records of that transaction in its
partition. So each record that is read tells whether it was to be seen, and which one had to come before it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.protocol.topic_partition import TopicPartition


class Fate(Enum):
    """What a producer knows of its transaction."""

    OPEN = "its commit was never asked for"
    ABORTED = "it was aborted"
    COMMIT_ASKED = "its commit was asked for"
    COMMITTED = "it was committed"


class ProducerEpoch(NamedTuple):
    """An instance of a producer, as its coordinator named it."""

    producer_id: int
    epoch: int


class Transaction:
    """One transaction: the values by partition, how many of them were read, and the offset that it commits."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.fate = Fate.OPEN
        self.values: dict[int, list[bytes]] = {}
        self.read: dict[int, int] = {}
        self.offset: int | None = None

    def add(self, partition: int, value: str = "") -> bytes:
        """The next record of a partition; `value` is what it carries besides its name."""
        values = self.values.setdefault(partition, [])
        values.append(f"{self.name}:{self.number}:{len(values)}:{value}".encode())
        return values[-1]


class TransactionalId:
    """What became known of a transactional id, by all instances of its producer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest = ProducerEpoch(-1, -1)
        self.transactions: list[Transaction] = []
        self.visible: set[int] = {-1}
        """The offsets that a group may have by transactions of this id."""
        self._given: dict[ProducerEpoch, str] = {}

    def begin(self) -> Transaction:
        """A transaction with the next number."""
        self.transactions.append(Transaction(self.name, len(self.transactions)))
        return self.transactions[-1]

    def give(self, instance: str, producer: ProducerEpoch) -> None:
        """An instance was told its epoch: no other one ever had it, and the producer id stays."""
        owner = self._given.setdefault(producer, instance)
        assert owner == instance, f"{owner} and {instance} were both given {producer}"
        assert self.newest.producer_id in (-1, producer.producer_id), f"{instance} was given {producer}; {self.newest} was given before"
        self.newest = max(self.newest, producer)

    def ask_commit(self, transaction: Transaction) -> None:
        """From now on all of the transaction may be seen."""
        transaction.fate = Fate.COMMIT_ASKED
        if transaction.offset is not None:
            self.visible.add(transaction.offset)

    def count(self, fate: Fate) -> int:
        """How many transactions had it."""
        return sum(each.fate is fate for each in self.transactions)


class Ledger:
    """The transactional ids of a story."""

    def __init__(self, names: list[str]) -> None:
        self.ids = {name: TransactionalId(name) for name in names}
        self.copied: dict[int, int] = {}
        """Partition -> the source offset behind the last copied record that was read there."""
        self._last: dict[tuple[int, str], int] = {}

    def see(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A consumer of committed transactions read this record."""
        name, number, _, carried = value.decode().split(":")
        where = f"{value!r} was read at {offset} of {partition}"
        transaction = self.ids[name].transactions[int(number)]
        assert transaction.fate in (Fate.COMMIT_ASKED, Fate.COMMITTED), f"{where}, though {transaction.fate.value}"
        index = partition.partition
        last = self._last.get((index, name), -1)
        assert last <= transaction.number, f"{where} after transaction {last}"
        self._last[index, name] = transaction.number
        read = transaction.read.get(index, 0)
        values = transaction.values[index]
        assert read < len(values), f"{where}, after all of its transaction"
        assert value == values[read], f"{where}; {values[read]!r} had to come"
        transaction.read[index] = read + 1
        if carried:
            source = int(carried)
            expected = self.copied.get(index, 0)
            assert source == expected, f"{where}; the record at {expected} had to be copied next"
            self.copied[index] = source + 1

    def check_at_the_end(self) -> None:
        """All partitions were read to their ends: every transaction was read whole, or not at all."""
        for transactional_id in self.ids.values():
            for each in transactional_id.transactions:
                written = {partition: len(values) for partition, values in each.values.items()}
                said = f"transaction {each.number} of {each.name}: {each.read} of {written} were read, and {each.fate.value}"
                assert not each.read or each.read == written, said
                assert each.read or each.fate is not Fate.COMMITTED, said
