"""The compiled half of Fetch, alone: it answers what the ordinary way answers, byte by byte, and has not touched what it leaves."""

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from broker.fetching.fetch_sessions import SessionPartition
from broker.request.services import Services
from controller.admin.topic_admin import NewTopic
from protocol.api_keys import ApiKey
from protocol.compiled import compiled
from protocol.produce_fast_path import MAX_TOGETHER
from tests.integration.test_fetch_one_partition import CONNECTION, TOPIC, a_fetch, a_session, content_of, fill, ordinarily
from tests.support.golden_replay import request_frame
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.network import unframed

NATIVE: Any = compiled("broker.handlers.native")
FILLED = 25
VERSIONS = (13, 14, 15, 16, 17)
CORRELATION_ID = 77
LARGE = {"fetch_offset": 500, "partition_max_bytes": 64 << 10}

pytestmark = pytest.mark.skipif(NATIVE is None, reason="it is not compiled here: that takes a C compiler and Python's headers")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """With a thousand batches in one segment; of its index a part is in the file, and a part is not yet."""

    def prepare(services: Services) -> None:
        for _ in range(FILLED):
            fill(services)
        index = active_segment(services).offset_index
        index.entries_around(0)  # maps the file, as the first read in Python does
        assert 0 < index._mapped == index._written < index.entries

    with a_broker_in_process(tmp_path_factory.mktemp("large"), log_index_interval_bytes=1000) as running:
        running.run(running.services.topic_admin.create_topics, [NewTopic(TOPIC, 2, 1)])
        running.run(prepare, running.services)
        yield running


def active_segment(services: Services) -> Any:
    return services.replica_manager.partition_or_raise(TOPIC, 0).log.active_segment


def framed(services: Services, version: int, client_id: str = "client", **changes: Any) -> bytes:
    """A Fetch as it comes in."""
    frame = bytearray(request_frame(a_fetch(services, version, **changes), ApiKey.FETCH, version, client_id))
    struct.pack_into(">i", frame, 8, CORRELATION_ID)
    return bytes(frame)


def together(services: Services, version: int, received: bytes) -> tuple[list[bytes], int] | None:
    """The answers, and where the next request begins."""
    done = NATIVE.handle_fetch_frames(memoryview(bytearray(received)), 0, len(received), version, CONNECTION, services)
    if done is None:
        return None
    parts, count, position, size = done
    content = content_of(parts)
    answers = unframed(content)
    assert len(answers) == count > 0
    assert size == len(content) - 4 * count
    return answers, position


def alone(services: Services, version: int, **changes: Any) -> bytes | None:
    frame = framed(services, version, **changes)
    done = together(services, version, frame)
    if done is None:
        return None
    (answer,), position = done
    assert position == len(frame)
    return answer


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bytes_from_any_offset(broker: InProcessBroker, version: int, isolation_level: int) -> None:
    random_ = random.Random(version)

    def compare(services: Services) -> None:
        partition = services.replica_manager.partition_or_raise(TOPIC, 0)
        index = active_segment(services).offset_index
        behind_the_file = index.entry(index._written).offset
        answered = [0, 0]
        for _ in range(600):
            changes = {
                "fetch_offset": random_.randint(-1, partition.log.log_end_offset + 1),
                "partition_max_bytes": random_.choice([-1, 0, 1, 20_000, 40_000, 64 << 10, 1 << 20]),
                "max_bytes": random_.choice([0, 30_000, 1 << 25, 1 << 25]),
                "min_bytes": random_.choice([0, 1, 50_000]),
                "max_wait_ms": random_.choice([0, 500]),
                "current_leader_epoch": random_.choice([-1, partition.leader_epoch]),
                "isolation_level": isolation_level,
            }
            partition.log.read_hints.clear()
            before = partition.stats.fetch_requests, partition.stats.bytes_out
            answer = alone(services, version, **changes)
            if answer is None:
                assert (partition.stats.fetch_requests, partition.stats.bytes_out) == before
                continue
            answered[changes["fetch_offset"] >= behind_the_file] += 1
            assert answer == ordinarily(services, version, a_fetch(services, version, **changes))
            assert partition.stats.fetch_requests == before[0] + 2
            assert (partition.stats.bytes_out - before[1]) % 2 == 0
        assert min(answered) > 20

    broker.run(compare, broker.services)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on_alike(broker: InProcessBroker, version: int) -> None:
    def compare(services: Services) -> None:
        one, other = a_session(services, version), a_session(services, version)
        sessions = services.fetch_sessions.sessions
        for epoch in range(1, 20):
            changes = {"session_epoch": epoch, "fetch_offset": epoch * 40, "partition_max_bytes": epoch * 1000 + 20_000}
            expected = ordinarily(services, version, a_fetch(services, version, session_id=other, **changes))
            services.replica_manager.partition_or_raise(TOPIC, 0).log.read_hints.clear()
            answer = alone(services, version, session_id=one, **changes)
            assert answer is not None
            assert expected is not None
            assert answer == expected.replace(other.to_bytes(4, "big"), one.to_bytes(4, "big"), 1)
            assert sessions[one].epoch == sessions[other].epoch == epoch + 1
            (left,), (right,) = sessions[one].partitions.values(), sessions[other].partitions.values()
            assert all(getattr(left, name) == getattr(right, name) for name in SessionPartition.__slots__)
        assert alone(services, version, session_id=one, session_epoch=1, **LARGE) is None
        assert alone(services, version, session_id=one, session_epoch=-1, **LARGE) is None
        assert alone(services, version, session_id=one, session_epoch=0, **LARGE) is None
        assert sessions[one].epoch == 20
        sessions[one].epoch = 2**31 - 1
        assert alone(services, version, session_id=one, session_epoch=2**31 - 1, **LARGE) is not None
        assert sessions[one].epoch == 1

    broker.run(compare, broker.services)


@pytest.mark.parametrize(
    "name", ["unled", "unreplicated", "unmapped", "another's", "undecided", "remembered", "watched", "by name", "of two", "renamed"]
)
def test_what_is_out_of_the_ordinary_is_left(broker: InProcessBroker, name: str) -> None:
    def ask(services: Services) -> None:
        partition = services.replica_manager.partition_or_raise(TOPIC, 0)
        log, index = partition.log, active_segment(services).offset_index
        session = services.fetch_sessions.sessions[a_session(services, 17)]
        (asked,) = session.partitions.values()
        target, attribute, value = {
            "unled": (partition, "is_leader", False),
            "unreplicated": (log, "high_watermark", log.high_watermark - 1),
            "unmapped": (index, "_mapped", 0),
            "another's": (log, "topic_id", bytes(16)),
            "undecided": (log.producer_state.state, "first_unstable_offset", 3),
            "remembered": (log, "read_hints", {500: (log.active_segment, 0)}),
            "watched": (session, "watch", object()),
            "by name": (session, "uses_topic_ids", False),
            "of two": (session, "partitions", {1: asked, 2: asked}),
            "renamed": (asked, "name", "another"),
        }[name]

        def answer() -> bytes | None:
            return alone(services, 17, session_id=session.session_id, session_epoch=session.epoch, **LARGE)

        assert answer() is not None
        found, epoch = getattr(target, attribute), session.epoch
        setattr(target, attribute, value)
        try:
            assert answer() is None
        finally:
            setattr(target, attribute, found)
        assert session.epoch == epoch
        assert answer() is not None

    broker.run(ask, broker.services)


def test_a_frame_that_is_cut_anywhere_is_left(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        for version in VERSIONS:
            frame = framed(services, version, **LARGE)
            for end in range(len(frame)):
                assert together(services, version, frame[:end]) is None  # not all of it is there
                cut = struct.pack(">i", end - 4) + frame[4:end] + frame[: len(frame) - end]
                assert together(services, version, cut) is None  # its length says less than it takes
            assert together(services, version, frame) is not None
            view = memoryview(bytearray(frame))
            for position, end in ((-1, len(frame)), (0, len(frame) + 1), (5, 3), (len(frame), len(frame))):
                assert NATIVE.handle_fetch_frames(view, position, end, version, CONNECTION, services) is None

    broker.run(ask, broker.services)


def test_bytes_behind_the_body_are_ignored_and_tagged_fields_of_a_header_left(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        frame = framed(services, 17, client_id="", **LARGE)
        longer = struct.pack(">i", len(frame) - 1) + frame[4:] + b"\x05\x06\x07"
        answered, position = together(services, 17, longer)  # type: ignore[misc]  # it is answered
        assert (answered, position) == (together(services, 17, frame)[0], len(longer))  # type: ignore[index]  # it is, too
        tagged = struct.pack(">i", len(frame) - 1) + frame[4:14] + b"\x01\x63\x01x" + frame[15:]
        assert together(services, 17, tagged) is None
        no_client_id = frame[:12] + b"\xff\xff" + frame[14:]
        assert together(services, 17, no_client_id) == together(services, 17, frame) is not None

    broker.run(ask, broker.services)


def test_several_are_answered_up_to_the_first_that_is_another_kind(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        plain = framed(services, 17, **LARGE)
        (expected,) = together(services, 17, plain)[0]  # type: ignore[index]  # it is answered
        for behind in (
            framed(services, 17, fetch_offset=1 << 40),
            framed(services, 16, **LARGE),
            b"\0\0\0\x0a" + b"\0\x03\0\x0c" + bytes(6),
            plain[:-1],
            b"\0\0\0",
            b"",
        ):
            assert together(services, 17, 2 * plain + behind) == ([expected, expected], 2 * len(plain))
            if behind[7:8] != b"\x10":  # in that version it is one itself
                assert together(services, 17, behind) is None

    broker.run(ask, broker.services)


def test_a_turn_has_an_end(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        small = framed(services, 17, fetch_offset=500, partition_max_bytes=20_000)
        done = together(services, 17, 40 * small)
        assert done is not None
        assert 1 < len(done[0]) <= MAX_TOGETHER
        assert sum(map(len, done[0][:-1])) < 256 << 10
        large = framed(services, 17, fetch_offset=500, partition_max_bytes=300_000)
        done = together(services, 17, 3 * large)
        assert done is not None
        assert done[1] == len(large)

    broker.run(ask, broker.services)
