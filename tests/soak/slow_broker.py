"""`python -m tests.soak.slow_broker SEED serve --set ...`: a broker whose threads find the disk slow, and whose loop has much else to do.

The disk is put in where a test may put any other: in the broker's environment. What is done in turns is done in smaller ones, so that a
few logs take as many as thousands do, what is done now and then is done often, and threads change places often. In half of the starts a
turn of the loop comes late, too. All of it by the seed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from random import Random

from ottla.broker import server
from ottla.broker.environment import Environment
from ottla.broker.loop.background import LoopBackground
from ottla.cli.main import main
from ottla.pauses import SLICE_NS, begin_slices
from tests.support.slow_disk import Delays, SlowFileSystem

SWITCH_SECONDS = 1e-5
LATE_MS = (0, 0, 1, 5, 30)
SMALL_TURNS = {
    ("ottla.storage.upkeep.log_checkpoints", "LOGS_TOGETHER"): 1,
    ("ottla.storage.disk.directory_writes", "_WRITES_PER_THREAD"): 1,
    ("ottla.storage.upkeep.producer_expirations", "_TOGETHER"): 2,
    ("ottla.storage.manager.new_logs", "_LOGS_PER_REST"): 1,
    ("ottla.replication.leader.followers", "TOGETHER"): 2,
    ("ottla.replication.control.log_dir_moves", "TOGETHER"): 1,
    ("ottla.replication.control.replica_manager", "PARTITIONS_TOGETHER"): 2,
}
"""Module and name -> how much of it makes a turn."""


def put(module: str, name: str, value: int) -> None:
    """Another value for a constant. Raises AttributeError when there is no such constant any more."""
    found = import_module(module)
    getattr(found, name)
    setattr(found, name, value)


def hurry(random: Random) -> None:
    """See the module."""
    sys.setswitchinterval(SWITCH_SECONDS)
    put("ottla.storage.upkeep.idle_files", "PERIOD_MS", 80)
    put("ottla.storage.producers.state_manager", "WRITTEN_AT_ONCE", random.choice([0, 2, 500]))
    put("ottla.storage.manager.log_moves", "CHUNK_BYTES", random.choice([2_000, 256 * 1024]))
    if random.random() < 0.7:
        for (module, name), value in SMALL_TURNS.items():
            put(module, name, value)
    if random.random() < 0.5:
        come_late(random)


def come_late(random: Random) -> None:
    """What is to be called in the loop's next turn may be called some later."""
    schedule = LoopBackground.schedule

    def later(self: LoopBackground, name: str, delay_ms: int, period_ms: int, callback: Callable[[], None]) -> None:
        schedule(self, name, delay_ms or random.choice(LATE_MS), period_ms, callback)

    LoopBackground.schedule = later


def slow_down(seed: int) -> None:
    """From now on brokers of this process have a slow disk, and long work of theirs often pauses after each element."""
    slice_ns = Random(seed).choice([0, SLICE_NS])

    class SlowEnvironment(Environment):
        def __init__(self) -> None:
            super().__init__()
            begin_slices(asyncio.get_running_loop(), slice_ns=slice_ns)
            self.file_system = SlowFileSystem(self.file_system, Delays(seed))

    server.Environment = SlowEnvironment


if __name__ == "__main__":
    given = int(sys.argv.pop(1))
    hurry(Random(given))
    slow_down(given)
    main(prog_name="ottla")
