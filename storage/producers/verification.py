"""Tracks the producers whose transactions a leader verifies with their coordinator (KIP-890). Kafka's VerificationStateEntry.

A transactional batch that opens a transaction in a partition is appended only after the transaction coordinator has confirmed that the
partition belongs to the transaction. `PartitionLog.begin_verification` adds an entry before the coordinator is asked. The append that
follows passes the entry as its guard. An entry ends with the first batch of the transaction and with each marker. So a batch that was
confirmed before a marker is refused after it.

In transactions of version 2 a marker has the epoch of the next transaction. Such a marker may come once more, when the next transaction, or
one after it, is being verified already. Then the entry stays.

Invariant: a producer with an open transaction in the partition has no entry for its epoch.
"""

from typing import Final

MOST_VERIFICATIONS: Final = 10_000
"""Producers of a partition that wait for their transaction coordinator, or were not confirmed by it; 1 MiB."""


class VerificationStateEntry:
    """One producer. The identity of the object is the guard. Batches above the lowest sequence are refused: they overtook a failed one."""

    __slots__ = ("lowest_sequence", "producer_epoch", "raises_epochs", "timestamp")

    def __init__(self, timestamp: int, sequence: int, producer_epoch: int, raises_epochs: bool) -> None:
        self.timestamp = timestamp
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        self.raises_epochs = raises_epochs
        """Whether the transaction has version 2, so that every transaction of the producer has an epoch of its own."""

    def update(self, sequence: int, producer_epoch: int) -> None:
        """Record another batch to be verified. The lowest sequence of the newest epoch counts."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


def begin_verification(
    entries: dict[int, VerificationStateEntry], producer_id: int, sequence: int, producer_epoch: int, raises_epochs: bool, now_ms: int
) -> VerificationStateEntry:
    """The entry of the producer, a new one if there is none. At the limit the oldest entry ends."""
    entry = entries.get(producer_id)
    if entry is None:
        if len(entries) >= MOST_VERIFICATIONS:
            del entries[next(iter(entries))]
        entry = entries[producer_id] = VerificationStateEntry(now_ms, sequence, producer_epoch, raises_epochs)
    else:
        entry.update(sequence, producer_epoch)
    return entry


def remove_expired_verifications(entries: dict[int, VerificationStateEntry], now_ms: int, producer_id_expiration_ms: int) -> None:
    """End the entries that were never followed by a batch. The entries are in the order of their timestamps."""
    while entries:
        producer_id, entry = next(iter(entries.items()))
        if now_ms - entry.timestamp < producer_id_expiration_ms:
            break
        del entries[producer_id]
