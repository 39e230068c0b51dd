"""Measures heartbeats of consumer groups from the frame to the answer, without a network: `python -m benchmarks.paths.heartbeats`.

A broker in this process; every frame goes through `Dispatcher.handle`. The members are stable, and their heartbeats name nothing but the
member and its epoch. Prints µs of processor time of the loop's thread for a heartbeat, the minimum of several rounds.
"""

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.loads import frames
from ottla.broker.network.request_channel import Completion, Pending
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.compiled import describe
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.header import ResponseHeader
from ottla.protocol.schema.registry import api
from tests.support.connections import ClientConnection

ROUNDS: Final = 8
BEATS: Final = 20_000  # per round
SECONDS: Final = 20.0
_TOPIC: Final = "read"
_GROUP: Final = "measured"
_VERSION: Final = 1
_CONNECTION: Any = ClientConnection()


async def measure(scratch: Path, members: int, *, is_profiled: bool) -> list[float]:
    """µs of a heartbeat, for each round."""
    broker = Broker(BrokerConfig({"log.dirs": str(scratch / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    try:
        topics = [NewTopic(_TOPIC, members, 1), NewTopic(GROUP_METADATA_TOPIC, 1, 1)]
        await broker.services.administration.topic_admin.create_topics(topics)
        beats = [memoryview(bytearray(frame)) for frame in await _stable(broker, members)]
        profile = cProfile.Profile() if is_profiled else None
        costs = [_round(broker, beats, profile) for _ in range(ROUNDS)]
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return costs
    finally:
        await broker.stop()


def _round(broker: Broker, beats: list[memoryview], profile: cProfile.Profile | None) -> float:
    handle = broker.dispatcher.handle
    if profile is not None:
        profile.enable()
    began_ns = time.thread_time_ns()
    for number in range(BEATS):
        handle(beats[number % len(beats)], _CONNECTION)
    took_ns = time.thread_time_ns() - began_ns
    if profile is not None:
        profile.disable()
    return took_ns / BEATS / 1000


async def _stable(broker: Broker, members: int) -> list[bytes]:
    """The heartbeats of the members of a stable group."""
    ids = [f"member-{number:016}" for number in range(members)]
    answers = {member_id: await _beat(broker, member_id, is_full=True) for member_id in ids}
    deadline = time.monotonic() + SECONDS
    while len({answer.member_epoch for answer in answers.values()}) > 1 or answers[ids[0]].member_epoch < members:
        assert time.monotonic() < deadline, "the group does not become stable"
        for member_id in ids:
            answers[member_id] = await _beat(broker, member_id, answers[member_id].member_epoch, answers[member_id])
        await asyncio.sleep(0.05)
    return [_frame(ConsumerGroupHeartbeatRequest(group_id=_GROUP, member_id=each, member_epoch=answers[each].member_epoch)) for each in ids]


async def _beat(
    broker: Broker, member_id: str, epoch: int = 0, last: ConsumerGroupHeartbeatResponse | None = None, *, is_full: bool = False
) -> ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat of a member that has what the last answer gave to it."""
    request = ConsumerGroupHeartbeatRequest(group_id=_GROUP, member_id=member_id, member_epoch=epoch)
    if is_full:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, [_TOPIC], []
    elif last is not None and last.assignment is not None:
        request.topic_partitions = [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in last.assignment.topic_partitions
        ]
    deadline = time.monotonic() + SECONDS
    while True:
        answer = _read(await _answered(broker, _frame(request)))
        if answer.error_code == ErrorCode.NONE:
            return answer
        assert time.monotonic() < deadline, ErrorCode.of(answer.error_code).name
        await asyncio.sleep(0.01)


def _frame(request: ConsumerGroupHeartbeatRequest) -> bytes:
    return frames.request_frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, _VERSION)[4:]


async def _answered(broker: Broker, frame: bytes) -> Completion:
    answer = broker.dispatcher.handle(memoryview(bytearray(frame)), _CONNECTION)
    if isinstance(answer, Pending):
        answer.connection = _CONNECTION
    deadline = time.monotonic() + SECONDS
    while isinstance(answer, Pending):
        if answer.completed:
            return answer.answer
        assert time.monotonic() < deadline, "a heartbeat is not answered"
        await asyncio.sleep(0)
    return answer


def _read(answer: Any) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, list):
        answer = b"".join(answer)
    types = api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    _, offset = ResponseHeader.decode(answer, types.response_header_version(_VERSION), 0)
    return ConsumerGroupHeartbeatResponse.decode(answer, _VERSION, offset)[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.heartbeats", description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--dir", default="/dev/shm" if Path("/dev/shm").is_dir() else None, help="where the log is; memory by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heartbeats-", dir=asked.dir) as scratch:
        costs = uvloop.run(measure(Path(scratch), asked.members, is_profiled=asked.profile))
    print(f"{describe()}: {min(costs):.2f} µs a heartbeat")


if __name__ == "__main__":
    main()
