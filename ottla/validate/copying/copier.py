"""Copies rows in transactions of confluent-kafka: one process, `python -m ottla.validate.copying.copier`.

The first line of standard input has the settings as JSON. The copier ends when standard input does, so also when its parent is gone. It
writes a line of JSON for each transaction. Its exit status is 1 after an error that only a new producer can get over.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.validate.copying.rows import copied
from ottla.validate.copying.settings import Settings

_CALL_S = 10.0
_PATIENCE_S = 120.0
_COLLECT_S = 0.2
_SESSION_MS = 6000

Result = TypeVar("Result")


class Row(NamedTuple):
    """A record with a row."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Copier:
    """A consumer and a producer of one transactional id. A row goes to the partition of the same number."""

    def __init__(self, settings: Settings, tell: Callable[[dict[str, Any]], None]) -> None:
        self.settings = settings
        self._tell = tell
        self._chance = random.Random(f"{settings.seed} {settings.number} {time.time_ns()}")
        self._aborts_next = settings.aborted_percent > 0  # a short run has some, too
        self._sends_aborted_offsets = True
        self._rows: list[Row] = []
        self._membership: object = None
        client = {
            "bootstrap.servers": settings.bootstrap,
            "client.id": f"ottla-validate-copier-{settings.number}",
            **settings.security,
        }
        self.consumer = Consumer(
            {
                **client,
                "group.id": settings.group,
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _SESSION_MS // 4,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # the run commits offsets for all partitions first: without one, some were lost
            }
        )
        self.producer = Producer(
            {
                **client,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                "compression.type": settings.codec,
                "message.max.bytes": max(1_000_000, settings.largest_batch),
                "batch.size": settings.batch_bytes,
                "linger.ms": 5,
            }
        )

    def run(self, over: threading.Event) -> None:
        """Copy until the event is set. Raises KafkaException when this producer or this consumer cannot go on."""
        self._until_done(lambda: self.producer.init_transactions(_CALL_S))
        self.consumer.subscribe([self.settings.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        while not over.is_set():
            rows = self._collect(over)
            if rows:
                self._copy(rows)
        self.consumer.close()

    def send_offsets(self, rows: Sequence[Row]) -> None:
        """Commit the offsets behind the rows, as a part of the transaction. Raises KafkaException."""
        offsets = self.offsets_behind(rows)
        self._until_done(lambda: self.producer.send_offsets_to_transaction(offsets, self._membership, _CALL_S))

    def offsets_behind(self, rows: Sequence[Row]) -> list[TopicPartition]:
        """The offset behind the last of the rows, for each of their partitions."""
        last = {row.partition: row.offset for row in rows}
        return [TopicPartition(self.settings.topic, partition, offset + 1) for partition, offset in last.items()]

    def _on_assign(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        # Asked later, a consumer that was thrown out of the group would name no member, and brokers accept offsets of such a client.
        self._membership = consumer.consumer_group_metadata()

    def _on_revoke(self, *_: object) -> None:
        self._rows.clear()  # another copier will have them

    def _collect(self, over: threading.Event) -> Sequence[Row]:
        self._rows.clear()
        deadline = time.monotonic() + _COLLECT_S
        while len(self._rows) < self.settings.transaction_rows and (left := deadline - time.monotonic()) > 0 and not over.is_set():
            message = self.consumer.poll(left)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._rows.append(_row(message))
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
        return self._rows

    def _copy(self, rows: Sequence[Row]) -> None:
        is_aborted = self._aborts_next or self._chance.randrange(100) < self.settings.aborted_percent
        self._aborts_next = False
        try:
            self.producer.begin_transaction()
            self._produce(rows, self.settings.aborted_mark if is_aborted else self.settings.mark)
            if is_aborted:
                self.abort_on_purpose(rows)
            else:
                self.send_offsets(rows)
                self._until_done(lambda: self.producer.commit_transaction(_CALL_S))
            self._tell({"aborted" if is_aborted else "committed": len(rows)})
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._until_done(lambda: self.producer.abort_transaction(_CALL_S))
            self._tell({"failed": len(rows), "reason": str(failure.args[0])})
            self._rewind()

    def abort_on_purpose(self, rows: Sequence[Row]) -> None:
        """The records are on the broker by then. The first of these transactions has sent its offsets, too, and then every other one."""
        self.producer.flush(_PATIENCE_S)
        if self._sends_aborted_offsets:
            self.send_offsets(rows)
        self._sends_aborted_offsets = not self._sends_aborted_offsets
        self._until_done(lambda: self.producer.abort_transaction(_CALL_S))
        self._rewind()

    def _produce(self, rows: Sequence[Row], mark: str) -> None:
        for row in rows:
            value = copied(row.key, row.value, mark.encode())
            while True:
                try:
                    self.producer.produce(self.settings.output, value, row.key, row.partition)
                    break
                except BufferError:
                    self.producer.poll(0.1)
            self.producer.poll(0)

    def _rewind(self) -> None:
        """Go on behind what is committed."""
        assigned = self.consumer.assignment()
        if not assigned:
            return
        for committed in self._until_done(lambda: self.consumer.committed(assigned, _CALL_S)):
            if committed.error is not None:
                raise KafkaException(committed.error)
            self.consumer.seek(committed)

    def _until_done(self, call: Callable[[], Result]) -> Result:
        """Call again after errors that allow that, a timeout among them. Raises KafkaException."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return call()
            except KafkaException as failure:
                error = failure.args[0]
                again = error.retriable() or error.code() == KafkaError._TIMED_OUT
                if not again or error.fatal() or error.txn_requires_abort() or time.monotonic() > deadline:
                    raise


def _row(message: Message) -> Row:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Row(partition, offset, message.key(), message.value())


def main(make: Callable[[Settings, Callable[[dict[str, Any]], None]], Copier] = Copier) -> int:
    """Copy until standard input ends. Returns the exit status."""
    settings = Settings(**json.loads(sys.stdin.readline()))
    over = threading.Event()

    def wait_for_the_end() -> None:
        while os.read(sys.stdin.fileno(), 1):  # not through the buffer, whose lock a thread must not hold when the interpreter ends
            pass
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    try:
        make(settings, _tell).run(over)
    except KafkaException as failure:
        _tell({"reason": str(failure.args[0])})
        return 1
    return 0


def _tell(fact: dict[str, Any]) -> None:
    print(json.dumps(fact), flush=True)


if __name__ == "__main__":
    sys.exit(main())
