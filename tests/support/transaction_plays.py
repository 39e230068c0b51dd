"""Plays sequences of requests of transactional producers against a broker, and notes all answers, records and markers in plain form.

The same plays were recorded from Apache Kafka 4.4 (`tests/golden/transactions-4.4.json`), with
`python -m tests.support.transaction_plays PORT FILE RESTART` and a new broker of it, which had
transaction.abort.timed.out.transaction.cleanup.interval.ms=500. The command RESTART starts the broker anew. Producer ids are noted in the
order in which they appear in a play: P0, P1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.support.transaction_player import Player


def commit_and_abort(player: Player) -> None:
    """Two transactions, each with an epoch of its own."""
    first = player.init()
    player.produce(first)
    player.produce(first, 1)
    second = player.end(first, commit=True)
    player.produce(second)
    third = player.end(second, commit=False)
    player.produce(third)
    player.end(third, commit=True)
    player.records()
    player.batches()
    player.batches(1)


def repeated_ends(player: Player) -> None:
    """An EndTxn that comes once more, with the old epoch, and with other ones."""
    first = player.init()
    player.produce(first)
    second = player.end(first, commit=True)
    player.records()
    for commit in (True, False):
        player.end(first, commit=commit)
        player.end((0, 7), commit=commit)
    player.end(second, commit=True)
    player.produce(second)
    third = player.end(second, commit=False)
    player.records()
    for commit in (True, False):
        player.end(second, commit=commit)
        player.end(first, commit=commit)
    player.end(third, commit=True)
    player.records()


def an_end_while_markers_are_written(player: Player) -> None:
    """Ends that follow at once, without a pause; the answers depend on the speed, but the outcome does not."""
    first = player.init()
    player.produce(first)
    player.end(first, commit=True)
    player.end(first, commit=True)
    player.records()
    player.batches()


def empty_transactions(player: Player) -> None:
    """A producer ends a transaction that has no partition."""
    first = player.init()
    player.end(first, commit=True)
    second = player.end(first, commit=False)
    player.end(first, commit=False)
    third = player.end(second, commit=False)
    player.produce(third)
    fourth = player.end(third, commit=True)
    player.end(fourth, commit=False)
    player.records()
    player.batches()


def late_requests(player: Player) -> None:
    """A request of an ended transaction arrives after its end, and after the beginning of the next one."""
    first = player.init()
    player.produce(first)
    second = player.end(first, commit=False)
    player.records()
    player.produce(first, sequence=1)
    player.produce(first, 2)
    player.commit_offset(first, 3)
    player.add(first, 2, version=5)
    player.produce(second, 1)
    player.produce(first, 1)
    player.produce(first, 2)
    player.end(first, commit=True)
    third = player.end(second, commit=True)
    player.records()
    player.produce(second)
    player.produce(third)
    player.end(third, commit=False)
    player.records()
    player.batches()
    player.batches(1)
    player.batches(2)


def other_producers(player: Player) -> None:
    """A producer id that no one has, an epoch of the future, and a sequence number without a beginning."""
    first = player.init()
    player.produce((1, 0))
    player.produce((0, 1))
    player.produce(first, sequence=4)
    player.produce(first)
    player.produce(first, sequence=4)
    player.end((1, 0), commit=True)
    player.end((0, 1), commit=True)
    player.commit_offset((1, 0), 3)
    player.commit_offset((0, 1), 3)
    player.add((1, 0), 2, version=5)
    player.add((0, 1), 2, version=5)
    player.end(first, commit=True)
    player.records()
    player.batches()


def old_clients(player: Player) -> None:
    """A client that adds its partitions itself keeps its epoch."""
    first = player.init()
    player.produce(first, version=11)
    player.add(first, 0)
    player.produce(first, version=11)
    player.produce(first, 1, version=11)
    player.produce(first, 1, version=10)
    player.commit_offset(first, 5, version=4)
    player.add_offsets(first)
    player.commit_offset(first, 5, version=4)
    player.end(first, commit=True, version=4)
    player.records()
    player.end(first, commit=True, version=4)
    player.end(first, commit=False, version=4)
    player.produce(first, sequence=1, version=11)
    player.add(first, 0)
    player.produce(first, sequence=1, version=11)
    player.end(first, commit=False, version=4)
    player.records()
    player.committed()
    player.batches()


def clients_that_change_their_version(player: Player) -> None:
    """Transactions of both versions follow each other, and one begins in version 0 and ends in version 2."""
    first = player.init()
    player.add(first, 0)
    player.produce(first, version=11)
    player.end(first, commit=True, version=4)
    player.records()
    player.produce(first, 1)
    second = player.end(first, commit=True)
    player.records()
    player.add(second, 0)
    player.produce(second, version=11)
    third = player.end(second, commit=False)
    player.records()
    player.produce(third)
    player.end(third, commit=True, version=4)
    player.records()
    player.add(third, 0)
    player.produce(third, sequence=1, version=11)
    player.end(third, commit=False, version=4)
    player.records()
    player.batches()
    player.batches(1)


def a_new_instance(player: Player) -> None:
    """InitProducerId fences the producer of the open transaction."""
    first = player.init()
    player.produce(first)
    player.init()
    newest = player.settle()
    player.records()
    player.produce(first, sequence=1)
    player.produce(first, 1)
    player.end(first, commit=True)
    player.end(first, commit=False)
    player.end((0, 1), commit=True)
    player.produce(newest)
    player.end(newest, commit=True)
    player.records()
    player.batches()


def the_same_instance(player: Player) -> None:
    """InitProducerId of a producer that goes on after an error (KIP-360)."""
    first = player.init()
    player.produce(first)
    second = player.end(first, commit=True)
    player.records()
    player.init(first)
    third = player.init(second)
    player.init(first)
    player.init(second)
    player.init((0, 9))
    player.produce(third)
    player.init(third)
    player.settle()
    player.records()


def a_timeout(player: Player) -> None:
    """The coordinator aborts a transaction that is open for too long; then its producer comes back."""
    first = player.init(timeout_ms=1_000)
    player.produce(first)
    time.sleep(2.5)
    player.records()
    player.produce(first, sequence=1)
    player.end(first, commit=True)
    second = player.end(first, commit=False)
    player.produce(second)
    player.end(second, commit=True)
    player.records()
    player.batches()


def offsets(player: Player) -> None:
    """TxnOffsetCommit adds the group itself."""
    first = player.init()
    player.commit_offset(first, 5)
    second = player.end(first, commit=True)
    player.records()
    player.committed()
    player.commit_offset(first, 6)
    player.commit_offset(second, 7)
    player.produce(second)
    third = player.end(second, commit=False)
    player.records()
    player.committed()
    player.commit_offset(third, 8, version=4)
    player.commit_offset(third, 9)
    player.end(third, commit=True)
    player.records()
    player.committed()


def markers(player: Player) -> None:
    """Markers that come late, or once more, from a coordinator."""
    first = player.init()
    player.produce(first)
    player.mark((0, 0), commit=True)
    player.mark((0, 1), commit=True)
    player.mark((0, 1), commit=True)
    player.mark((0, 0), commit=True)
    player.mark((0, 0), commit=True, version=1)
    player.mark((0, 1), commit=False, transaction_version=0)
    player.mark((0, 3), commit=False, partition=2)
    player.batches()
    player.batches(2)


def used_up_epochs(player: Player) -> None:
    """The end of the last epoch gives a new producer id."""
    first = player.use_up(player.init())
    player.produce(first)
    second = player.end(first, commit=True)
    player.records_of_the_end()
    player.end(first, commit=True)
    player.end(first, commit=False)
    player.produce(first, sequence=1)
    player.produce(second)
    player.end(first, commit=True)
    third = player.end(second, commit=False)
    player.end(first, commit=True)
    player.end(second, commit=False)
    player.produce(third)
    player.end(third, commit=True)
    player.batches()


def a_fence_of_the_last_epoch(player: Player) -> None:
    """A new instance comes when the producer has its last epoch and a transaction."""
    first = player.use_up(player.init())
    player.produce(first)
    player.init()
    newest = player.settle()
    player.records_of_the_end()
    player.end(first, commit=False)
    player.produce(newest)
    player.end(newest, commit=True)
    player.batches()


def a_new_coordinator(player: Player) -> None:
    """The coordinator begins anew from its log, right after an end and in an open transaction."""
    first = player.init()
    player.produce(first)
    second = player.end(first, commit=True)
    player.restart()
    player.end(first, commit=False)
    player.end(first, commit=True)
    player.produce(first, 1)
    player.produce(second)
    player.restart()
    player.produce(second, sequence=1)
    player.produce(second, 1)
    player.end(first, commit=True)
    third = player.end(second, commit=False)
    player.records()
    player.end(third, commit=False)
    player.records()
    player.batches()
    player.batches(1)


PLAYS: Final[tuple[Callable[[Player], None], ...]] = (
    commit_and_abort,
    repeated_ends,
    an_end_while_markers_are_written,
    empty_transactions,
    late_requests,
    other_producers,
    old_clients,
    clients_that_change_their_version,
    a_new_instance,
    the_same_instance,
    a_timeout,
    offsets,
    markers,
    a_new_coordinator,
)
LONG_PLAYS: Final[tuple[Callable[[Player], None], ...]] = (used_up_epochs, a_fence_of_the_last_epoch)
"""With as many requests as there are epochs."""


def play(port: int, of: Callable[[Player], None], restart: Callable[[], object]) -> list[Any]:
    """All that is noted in a play. `restart` stops the broker and starts it again."""
    player = Player(port, of.__name__.replace("_", "-"), restart)
    try:
        player.prepare()
        of(player)
    finally:
        player.close()
    return player.noted


def main() -> None:
    """Record the plays from a broker."""
    port, file, *restart = sys.argv[1:]
    noted = {of.__name__: play(int(port), of, lambda: subprocess.run(restart, check=True)) for of in (*PLAYS, *LONG_PLAYS)}
    lines = [f"{json.dumps(name)}: [\n  " + ",\n  ".join(json.dumps(each) for each in notes) + "\n]" for name, notes in noted.items()]
    Path(file).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
