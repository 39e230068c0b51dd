"""Measures a leader's cost of a follower's Fetch, by the partitions of its session: `python -m benchmarks.paths.followers [--strict]`.

A leader in this process, in memory and without a network. In every round a follower that has all records fetches, one batch is appended to
each of its busy partitions, and the answer leaves. Its idle partitions have no news. Prints µs of processor time per round, appends
included: the minimum of several rounds of each kind, which take turns. Other load on the machine affects all kinds alike, so `--strict`
checks only their ratio: exit code 1 when idle partitions raise the cost of a fetch by more than a half.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from ottla.broker.network.request_channel import Pending
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.storage.log.origins import CLIENT
from tests.support.batches import a_batch, a_run
from tests.support.golden_replay import request_frame
from tests.support.handler_bench import HandlerBench
from tests.support.replicas import TOPIC, TOPIC_ID, state

SESSIONS = ((1, 0), (4, 0), (12, 0), (1, 1_000), (12, 1_000), (12, 3_000))
"""Numbers of busy and of idle partitions."""
ROUNDS = 20
FETCHES = 50  # per round
VERSION = 17
LIMIT = 1.5


class Follower:
    """Broker 1 in a session with its own leader."""

    def __init__(self, busy: int, idle: int) -> None:
        self._bench = HandlerBench()
        count = busy + idle
        self._bench.replicas.say(*(state(index=index, isr=[0, 1], replicas=[0, 1]) for index in range(count)))
        self._bench.know(**{f"p{index}": 0 for index in range(count)})
        self._busy = [self._bench.replicas.manager.partitions[TOPIC][index] for index in range(busy)]
        self._now_ms = self._bench.replicas.clock.now_ms()
        self._batch = bytes(a_batch(1))
        self._session_id = self._session_epoch = self._offset = 0
        self._count = count

    async def begin(self) -> None:
        """Make the session."""
        asking = self._bench.ask(self._request(range(self._count), 0), ApiKey.FETCH, VERSION)
        if asking.waits:  # large ones are read in steps
            await answered(asking.pending)
        self._session_id = asking.response.session_id
        await self.fetch(FETCHES)

    def _request(self, named: Sequence[int], max_wait_ms: int = 500) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=index,
                current_leader_epoch=0,
                fetch_offset=self._offset,
                last_fetched_epoch=0 if self._offset else -1,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index in named
        ]
        epoch, self._session_epoch = self._session_epoch, self._session_epoch + 1
        return FetchRequest(
            replica_state=ReplicaState(replica_id=1, replica_epoch=-1),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
        )

    async def fetch(self, fetches: int) -> float:
        """µs of this thread per fetch."""
        spent = 0
        for _ in range(fetches):
            request = self._request(range(len(self._busy)) if self._offset else ())
            frame = request_frame(request, ApiKey.FETCH, VERSION, "broker-1-fetcher-0")[4:]
            runs = [a_run(self._batch) for _ in self._busy]
            before = time.thread_time_ns()
            pending = self._bench.raw(frame)
            assert isinstance(pending, Pending)
            for partition, run in zip(self._busy, runs, strict=True):
                partition.append(run, 1, self._now_ms, CLIENT)
            await answered(pending)
            spent += time.thread_time_ns() - before
            self._offset += 1
        return spent / fetches / 1000


async def answered(pending: Pending) -> None:
    """Let the loop run until `pending` is complete."""
    for _ in range(10_000):
        if pending.completed:
            return
        await asyncio.sleep(0)
    raise AssertionError("no answer")


async def measure() -> dict[tuple[int, int], float]:
    """µs by session."""
    followers = {session: Follower(*session) for session in SESSIONS}
    costs: dict[tuple[int, int], float] = {}
    for follower in followers.values():
        await follower.begin()
    for _ in range(ROUNDS):
        for session, follower in followers.items():
            cost = await follower.fetch(FETCHES)
            costs[session] = min(cost, costs.get(session, cost))
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.followers", description=__doc__.partition("\n")[0])
    parser.add_argument("--strict", action="store_true", help="exit code 1 when idle partitions cost too much")
    asked = parser.parse_args(arguments)
    costs = asyncio.run(measure())
    alone = {busy: cost for (busy, idle), cost in costs.items() if not idle}
    print(f"{'busy':>8}{'idle':>8}{'µs':>10}{'ratio':>8}")
    for (busy, idle), cost in costs.items():
        print(f"{busy:>8}{idle:>8}{cost:>10.1f}{cost / alone[busy]:>8.2f}")
    return 1 if asked.strict and any(cost / alone[busy] > LIMIT for (busy, _), cost in costs.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
