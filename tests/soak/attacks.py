"""`python -m tests.soak.attacks [NAME ...]`: what attacks of one client cost a broker, and another client meanwhile.

Each attack has a broker of its own, with a client that produces and fetches all the time. The table has the memory of the broker before,
at most, and five seconds after the attacker has closed its connections; the longest turn of the event loop, and the longest processor time
of the loop's own thread in a turn; and the times of the other client's requests. A busy machine makes turns longer, but not the latter.
"""

from __future__ import annotations

import argparse
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import Record, build_batch, encode_varint
from ottla.protocol.records.compression import CompressionCodec, compress
from tests.support.admin_requests import a_topic, create
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.golden_replay import decode, receive, request_frame
from tests.support.hostile import GoodClient
from tests.support.huge_requests import huge_requests
from tests.support.odd_batches import an_odd_record, framed
from tests.support.wire_client import a_wire_client

MiB = 1024 * 1024
GOOD_ASKS_S = 0.005
SETTLED_S = 5.0
ATTACK_S = 20.0
"""Longest time for which an attacker waits for its answers."""
MOST_BYTES = 500_000_000
"""Resident memory of a broker under attack, and what may be left of its growth at the end."""
LEFT_BYTES = 150_000_000
MOST_OWN_MS = 20.0
"""Processor time of the loop's thread in a turn."""
MOST_P99_MS = 50.0
"""Time of all but a hundredth of the other client's requests."""
BOMB_BYTES = 120_000_000
BOMBS = "bombs"
CROWD = 5_000
"""Connections of an attack by many. KEPT_BYTES follow on each, as many as the broker reads at once, and stay for STAY_S."""
KEPT_BYTES = 256 * 1024
STAY_S = 3.0
PAUSE_S = 0.001
STORM_MEMBERS = 5_000
STORM_CONNECTIONS = 50
MUCH = 100_000
"""Elements of a request, with one or more in each. A broker reads 500,000 in all."""
MUCH_REPEATS = 3
MUCH_APIS = frozenset(
    {
        *("ADD_PARTITIONS_TO_TXN", "CREATE_ACLS", "DELETE_GROUPS", "DELETE_TOPICS"),
        *("JOIN_GROUP", "OFFSET_COMMIT", "OFFSET_FETCH", "WRITE_TXN_MARKERS"),
    }
)
UNREAD = "unread"
UNREAD_METADATA = 15 * MiB
UNREAD_CONNECTIONS = 60
UNREAD_PAUSE_S = 0.25
"""Pause between two connections that do not read. Unless earlier ones are closed, the answers take 900 MB."""


class Watched:
    """A broker in a process of its own, whose turns are watched. `settings` are `key=value`."""

    def __init__(self, port: int, pid: int, turns: Path) -> None:
        self.port = port
        self.pid = pid
        self._turns = turns

    def rss(self) -> int:
        """Resident memory, bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096

    def longest_turns_ms(self, since: float, until: float) -> tuple[float, float]:
        """The length of the longest turn that ended between these times, and the longest processor time of the loop's thread in one."""
        lines = [[float(number) for number in line.split()] for line in self._turns.read_text().splitlines()]
        turns = [(took, own) for at, took, own in lines if since <= at <= until]
        return max((took for took, _ in turns), default=0.0), max((own for _, own in turns), default=0.0)


class MeasuredClient(GoodClient):
    """Keeps the time of each of its requests."""

    def __init__(self, port: int) -> None:
        self.times_ms: list[float] = []
        super().__init__(port)

    def _exchange(self, request: ProduceRequest | FetchRequest, key: ApiKey, version: int) -> object:
        began = time.monotonic()
        try:
            return super()._exchange(request, key, version)
        finally:
            self.times_ms.append((time.monotonic() - began) * 1000)

    def p99_ms(self) -> float:
        ordered = sorted(self.times_ms)
        return ordered[len(ordered) * 99 // 100]


class Cost(NamedTuple):
    """What one attack cost."""

    before: int
    most: int
    after: int
    longest_turn_ms: float
    longest_own_ms: float
    p99_ms: float
    longest_ms: float
    requests: int

    def faults(self) -> list[str]:
        """What an attack may not cost."""
        bounds: list[tuple[float, float, str]] = [
            (self.most, MOST_BYTES, "bytes of memory"),
            (self.after - self.before, LEFT_BYTES, "bytes of memory that stay"),
            (self.longest_own_ms, MOST_OWN_MS, "ms of processor time in a turn"),
            (self.p99_ms, MOST_P99_MS, "ms for a request of another client (p99)"),
        ]
        return [f"{found:,.0f} {what} are more than {most:,.0f}" for found, most, what in bounds if found > most]


class Attack(NamedTuple):
    """`prepare` makes what the attack needs; `strike` opens connections, and closes them when it returns."""

    what: str
    prepare: Callable[[Watched], None]
    strike: Callable[[Watched], None]
    settings: tuple[str, ...] = ()


def produce(topic: str, batch: bytes) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])


def bomb(codec: CompressionCodec) -> bytes:
    """A batch of one record that expands to BOMB_BYTES."""
    return bytes(build_batch([Record(0, time.time_ns() // 1_000_000, b"key", bytes(BOMB_BYTES))], codec))


def headers() -> bytes:
    """A batch of one record with so many empty headers that it expands to BOMB_BYTES."""
    count = BOMB_BYTES // 2
    record = an_odd_record(headers=encode_varint(count) + b"\0\1" * count)
    return framed(compress(CompressionCodec.ZSTD, record), CompressionCodec.ZSTD, count=1)


def at_once(broker: Watched, count: int, frames: list[bytes], *, reads: bool = True) -> None:
    """Send the frames on `count` connections, all before the first answer is awaited; then close."""
    with ExitStack() as stack:
        threads = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            connection.settimeout(ATTACK_S)
            threads.append(threading.Thread(target=_talk, args=(connection, frames, reads), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _talk(connection: socket.socket, frames: list[bytes], reads: bool) -> None:
    try:
        for frame in frames:
            connection.sendall(frame)
        for _ in frames if reads else ():
            receive(connection)
    except (OSError, EOFError, AssertionError):
        pass  # refused, closed, or not answered in time


# -- the attacks -----------------------------------------------------------------------------------------------------------


def prepare_bombs(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(BOMBS))
        assert client.ask(produce(BOMBS, bomb(CompressionCodec.GZIP)), 7).responses[0].partition_responses[0].error_code == 0


def fetch_for_old_clients(broker: Watched) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MiB)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=MiB, topics=[FetchTopic(topic=BOMBS, partitions=[partition])])
    at_once(broker, 40, [request_frame(request, ApiKey.FETCH, 3)])


def prepare_compacted(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(BOMBS, configs={"cleanup.policy": "compact"}))


def produce_bombs(broker: Watched) -> None:
    at_once(broker, 60, [request_frame(produce(BOMBS, bomb(CompressionCodec.ZSTD)), ApiKey.PRODUCE, 7)])


def produce_headers(broker: Watched) -> None:
    at_once(broker, 60, [request_frame(produce(BOMBS, headers()), ApiKey.PRODUCE, 7)])


def join_with_metadata(broker: Watched) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(40 * MiB))]
    request = JoinGroupRequest(
        group_id="large",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    at_once(broker, 39, [request_frame(request, ApiKey.JOIN_GROUP, 2)])


def never_finish(broker: Watched) -> None:
    frame = request_frame(produce(BOMBS, bytes(8 * MiB - 1000)), ApiKey.PRODUCE, 7)
    at_once(broker, 150, [frame[:-1]])


def prepare_topic(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(BOMBS))


def wait_and_send_more(broker: Watched) -> None:
    """On each connection a Fetch waits for news, and KEPT_BYTES of requests follow it."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MiB)
    poll = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=MiB, topics=[FetchTopic(topic=BOMBS, partitions=[partition])])
    send_and_stay(broker, request_frame(poll, ApiKey.FETCH, 3) + request_frame(produce("none", bytes(KEPT_BYTES)), ApiKey.PRODUCE, 7))


def leave_out_the_last_byte(broker: Watched) -> None:
    send_and_stay(broker, request_frame(produce(BOMBS, bytes(KEPT_BYTES - 1000)), ApiKey.PRODUCE, 7)[:-1])


def send_and_stay(broker: Watched, data: bytes) -> None:
    """Send what the broker takes on CROWD connections, and keep them open for a while.

    One connection follows another: a turn whose time is used up would read only 4 KiB of each.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with ExitStack() as stack:
        left = {stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))): data for _ in range(CROWD)}
        for connection in left:
            connection.setblocking(False)
        until = time.monotonic() + ATTACK_S
        while left and time.monotonic() < until:
            for connection in list(left):
                try:
                    left[connection] = left[connection][connection.send(left[connection]) :]
                    time.sleep(PAUSE_S)
                except BlockingIOError:
                    continue
                except OSError:
                    left[connection] = b""  # the broker has closed it
                if not left[connection]:
                    del left[connection]
            time.sleep(PAUSE_S)
        time.sleep(STAY_S)


def prepare_members(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(BOMBS, partitions=100))
        assert client.ask(FindCoordinatorRequest(coordinator_keys=["storm-0"]), 4).coordinators[0].error_code in (0, 15)
        eventually(lambda: not client.ask(FindCoordinatorRequest(coordinator_keys=["storm-0"]), 4).coordinators[0].error_code)


def join_storm(broker: Watched, groups: int) -> None:
    """All join, and stay for a while: each sends heartbeats that name nothing, of which most are refused, because the epoch has risen."""
    with ExitStack() as stack:
        threads = []
        for number in range(STORM_CONNECTIONS):
            members = [(f"storm-{each % groups}", f"member-{each}") for each in range(number, STORM_MEMBERS, STORM_CONNECTIONS)]
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            connection.settimeout(ATTACK_S)
            joins = [
                ConsumerGroupHeartbeatRequest(
                    group_id=group, member_id=member, rebalance_timeout_ms=60_000, subscribed_topic_names=[BOMBS], topic_partitions=[]
                )
                for group, member in members
            ]
            beats = [ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=2) for group, member in members]
            frames = [request_frame(each, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1) for each in [*joins, *beats]]
            threads.append(threading.Thread(target=_talk, args=(connection, frames, True), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def prepare_topics(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        for first in range(0, 1000, 100):
            create(client, *(a_topic(f"topic-{number}", partitions=10) for number in range(first, first + 100)), timeout_ms=60_000)


def ask_and_never_read(broker: Watched) -> None:
    frame = request_frame(MetadataRequest(topics=None), ApiKey.METADATA, 8)
    at_once(broker, 30, [frame] * 20, reads=False)


def unread_join(metadata: bytes, member_id: str = "") -> bytes:
    request = JoinGroupRequest(
        group_id=UNREAD,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return request_frame(request, ApiKey.JOIN_GROUP, 2)


def repeat_a_join_and_never_read(broker: Watched) -> None:
    """A leader joins beside a member with much metadata. It repeats its JoinGroup on many connections; each answer has that metadata."""
    with a_wire_client(broker.port) as client:
        eventually(lambda: not client.ask(FindCoordinatorRequest(coordinator_keys=[UNREAD]), 4).coordinators[0].error_code)
    with ExitStack() as stack:
        leader, member = (stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(2))
        leader.sendall(unread_join(b"small"))
        member.sendall(unread_join(bytes(UNREAD_METADATA)))
        answer = decode(receive(leader), ApiKey.JOIN_GROUP, 2)
        assert isinstance(answer, JoinGroupResponse)
        assert sum(len(each.metadata) for each in answer.members) > UNREAD_METADATA
        again = unread_join(b"small", answer.member_id)
        for _ in range(UNREAD_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))).sendall(again)
            time.sleep(UNREAD_PAUSE_S)


def ask_much(broker: Watched) -> None:
    """Requests with very many elements, one after the other: APIs of all kinds, and the same ones again."""
    for _ in range(MUCH_REPEATS):
        for _, request in huge_requests(MUCH, MUCH_APIS):
            at_once(broker, 1, [request])


def cut_off_the_end(broker: Watched) -> None:
    """The same requests without their last bytes: each is decoded up to there."""
    for _, request in huge_requests(MUCH, MUCH_APIS):
        body = request[4:-2]
        at_once(broker, 1, [len(body).to_bytes(4, "big") + body])


def prepare_rolls(broker: Watched) -> None:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(BOMBS, configs={"segment.bytes": "100"}))


def roll(broker: Watched) -> None:
    at_once(broker, 4, [request_frame(produce(BOMBS, bytes(a_batch(1, value_bytes=20))), ApiKey.PRODUCE, 7)] * 1000)


def nothing(broker: Watched) -> None:
    pass


LIMIT = ("group.consumer.max.size=100",)
TOGETHER = ("group.initial.rebalance.delay.ms=3000",)


def rest(broker: Watched) -> None:
    time.sleep(SETTLED_S)


ATTACKS = {
    "none": Attack("no attack, for comparison", nothing, rest),
    "fetch": Attack("40 Fetch version 3 of values of 120 MB", prepare_bombs, fetch_for_old_clients),
    "produce": Attack("60 Produce of zstd bombs to a compacted topic", prepare_compacted, produce_bombs),
    "headers": Attack("60 Produces of a record with 60 million headers", prepare_compacted, produce_headers),
    "join": Attack("39 JoinGroup with 40 MB of metadata", nothing, join_with_metadata),
    "unfinished": Attack("150 requests of 8 MiB without their last byte", nothing, never_finish),
    "behind": Attack(f"{CROWD:,} requests that wait, with 256 KiB behind each", prepare_topic, wait_and_send_more),
    "small": Attack(f"{CROWD:,} requests of 256 KiB without their last byte", nothing, leave_out_the_last_byte),
    "metadata": Attack("30 connections that never read their Metadata", prepare_topics, ask_and_never_read),
    "unread": Attack(f"{UNREAD_CONNECTIONS} connections that never read 15 MiB", nothing, repeat_a_join_and_never_read, TOGETHER),
    "one-group": Attack(f"{STORM_MEMBERS:,} members join one group", prepare_members, partial(join_storm, groups=1)),
    "groups": Attack(f"{STORM_MEMBERS:,} members join 500 groups", prepare_members, partial(join_storm, groups=500)),
    "limited": Attack(f"{STORM_MEMBERS:,} members join a group of 100", prepare_members, partial(join_storm, groups=1), LIMIT),
    "much": Attack(f"{MUCH_REPEATS} times 8 APIs with {MUCH:,} elements", nothing, ask_much),
    "cut": Attack(f"8 APIs with {MUCH:,} elements, cut off", nothing, cut_off_the_end),
    "rolls": Attack("4,000 Produces that roll a segment each", prepare_rolls, roll),
}


@contextmanager
def a_watched_broker(directory: Path, settings: tuple[str, ...]) -> Iterator[Watched]:
    turns = directory / "turns"
    turns.touch()
    given = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory / 'data'}", "log.retention.ms=-1", *settings)
    arguments = [argument for setting in ("offsets.topic.num.partitions=1", *given) for argument in ("--set", setting)]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.watched_broker", str(turns), "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"://[^ ,]*:(\d+)", line)
        assert found is not None, (directory / "broker.log").read_text()
        yield Watched(int(found[1]), process.pid, turns)
    finally:
        process.terminate()
        process.wait(60)


def cost_of(attack: Attack, directory: Path) -> Cost:
    """Carry out the attack on a new broker."""
    with a_watched_broker(directory, attack.settings) as broker:
        with a_wire_client(broker.port) as client:
            create(client, a_topic(GoodClient.TOPIC))
        attack.prepare(broker)
        warm = MeasuredClient(broker.port)
        eventually(lambda: warm.answered > 200 or warm.failure, what="exchanges of the good client")
        warm.stop()
        before = most = broker.rss()
        client = MeasuredClient(broker.port)
        began = time.monotonic()
        striking = threading.Thread(target=attack.strike, args=(broker,))
        striking.start()
        while striking.is_alive():
            most = max(most, broker.rss())
            striking.join(0.02)
        ended = time.monotonic()
        while time.monotonic() < ended + SETTLED_S:
            most = max(most, broker.rss())
            time.sleep(0.05)
        client.stop()
        turn, own = broker.longest_turns_ms(began, time.monotonic())
        return Cost(before, most, broker.rss(), turn, own, client.p99_ms(), max(client.times_ms), len(client.times_ms))


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.attacks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ATTACKS, []], default=[])
    names = parser.parse_args(arguments).names or [*ATTACKS]
    faults = []
    print(f"{'attack':<50} {'before':>7} {'most':>7} {'after':>7} MB {'turn':>6} {'own':>6} {'p99':>6} {'longest':>7} ms", flush=True)
    for name in names:
        attack = ATTACKS[name]
        with tempfile.TemporaryDirectory(prefix="attack-") as directory:
            cost = cost_of(attack, Path(directory))
        memory = "".join(f" {size / 1e6:>7.0f}" for size in cost[:3])
        faults += [f"{attack.what}: {fault}" for fault in cost.faults()]
        times = f"{cost.longest_turn_ms:>6.1f} {cost.longest_own_ms:>6.1f} {cost.p99_ms:>6.1f} {cost.longest_ms:>7.1f}"
        print(f"{attack.what:<50}{memory}    {times}", flush=True)

    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main(sys.argv[1:])
