"""The compiled half of Fetch, alone: it answers what the ordinary way answers, byte by byte, and has not touched what it leaves."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.fetch_sessions import SessionPartition
from broker.services import Services
from controller.topic_admin import NewTopic
from protocol.compiled import compiled
from protocol.fetch_fast_path import END_WITH_ID
from storage.clock import elapsed_ms
from storage.real_file import RealFile
from tests.integration.test_fetch_one_partition import TOPIC, a_fetch, a_session, by_hand, fill, ordinarily
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

NATIVE: Any = compiled("broker.handlers.native")
FILLED = 25
VERSIONS = (13, 14, 15, 16, 17)

pytestmark = pytest.mark.skipif(NATIVE is None, reason="it is not compiled here: that takes a C compiler and Python's headers")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """With a thousand batches in one segment, whose index is in its file."""

    def prepare(services: Services) -> None:
        for _ in range(FILLED):
            fill(services)
        index = active_segment(services).offset_index
        index.write_out()
        index.in_file()  # as the first read in Python does

    with a_broker_in_process(tmp_path_factory.mktemp("large"), log_index_interval_bytes=2000) as running:
        running.run(running.services.topic_admin.create_topics, [NewTopic(TOPIC, 2, 1)])
        running.run(prepare, running.services)
        yield running


@pytest.fixture
def alone() -> Iterator[None]:
    """What it leaves to the function in Python is answered with None."""
    previous = NATIVE.fetch_before(lambda *arguments: None, elapsed_ms, RealFile, END_WITH_ID)
    yield
    NATIVE.fetch_before(previous, elapsed_ms, RealFile, END_WITH_ID)


def active_segment(services: Services) -> Any:
    return services.replica_manager.partition_or_raise(TOPIC, 0).log.active_segment


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_bytes_from_any_offset(broker: InProcessBroker, version: int, isolation_level: int) -> None:
    random_ = random.Random(version)

    def compare(services: Services) -> None:
        partition = services.replica_manager.partition_or_raise(TOPIC, 0)
        answered = 0
        for _ in range(600):
            changes = {
                "fetch_offset": random_.randint(-1, partition.log.log_end_offset + 1),
                "partition_max_bytes": random_.choice([-1, 0, 1, 20_000, 64 << 10, 1 << 20]),
                "max_bytes": random_.choice([0, 30_000, 1 << 25]),
                "min_bytes": random_.choice([0, 1, 50_000]),
                "max_wait_ms": random_.choice([0, 500]),
                "current_leader_epoch": random_.choice([-1, partition.leader_epoch]),
                "isolation_level": isolation_level,
            }
            request = a_fetch(services, version, **changes)
            partition.log.read_hints.clear()
            before = partition.stats.fetch_requests, partition.stats.bytes_out
            answer = by_hand(services, version, request)
            if answer is None:
                assert (partition.stats.fetch_requests, partition.stats.bytes_out) == before
                continue
            answered += 1
            assert answer == ordinarily(services, version, request)
            assert partition.stats.fetch_requests == before[0] + 2
            assert (partition.stats.bytes_out - before[1]) % 2 == 0
        assert answered > 50

    broker.run(compare, broker.services)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on_alike(broker: InProcessBroker, version: int) -> None:
    def compare(services: Services) -> None:
        one, other = a_session(services, version), a_session(services, version)
        sessions = services.fetch_sessions.sessions
        for epoch in range(1, 20):
            changes = {"session_epoch": epoch, "fetch_offset": epoch * 40, "partition_max_bytes": epoch * 1000 + 20_000}
            expected = ordinarily(services, version, a_fetch(services, version, session_id=other, **changes))
            services.replica_manager.partition_or_raise(TOPIC, 0).log.read_hints.clear()
            answer = by_hand(services, version, a_fetch(services, version, session_id=one, **changes))
            assert answer is not None
            assert expected is not None
            assert answer == expected.replace(other.to_bytes(4, "big"), one.to_bytes(4, "big"), 1)
            assert sessions[one].epoch == sessions[other].epoch == epoch + 1
            (left,), (right,) = sessions[one].partitions.values(), sessions[other].partitions.values()
            assert all(getattr(left, name) == getattr(right, name) for name in SessionPartition.__slots__)
        assert by_hand(services, version, a_fetch(services, version, session_id=one, session_epoch=1, fetch_offset=70)) is None
        assert by_hand(services, version, a_fetch(services, version, session_id=one, session_epoch=-1, fetch_offset=70)) is None
        assert sessions[one].epoch == 20

    broker.run(compare, broker.services)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["unled", "unreplicated", "unmapped", "another's", "undecided", "remembered"])
def test_what_is_out_of_the_ordinary_is_left(broker: InProcessBroker, name: str) -> None:
    def ask(services: Services) -> None:
        partition = services.replica_manager.partition_or_raise(TOPIC, 0)
        log, index = partition.log, active_segment(services).offset_index
        request = a_fetch(services, 17, fetch_offset=500, partition_max_bytes=64 << 10)
        target, attribute, value = {
            "unled": (partition, "is_leader", False),
            "unreplicated": (log, "high_watermark", log.high_watermark - 1),
            "unmapped": (index, "_mapped", 0),
            "another's": (log, "topic_id", bytes(16)),
            "undecided": (log.producer_state.state, "first_unstable_offset", 3),
            "remembered": (log, "read_hints", {500: (log.active_segment, 0)}),
        }[name]
        assert by_hand(services, 17, request) is not None
        found = getattr(target, attribute)
        setattr(target, attribute, value)
        try:
            assert by_hand(services, 17, request) is None
        finally:
            setattr(target, attribute, found)
        assert by_hand(services, 17, request) is not None

    broker.run(ask, broker.services)


@pytest.mark.usefixtures("alone")
def test_a_frame_that_is_cut_anywhere_is_left(broker: InProcessBroker) -> None:
    def ask(services: Services) -> None:
        for version in VERSIONS:
            frame = b"header" + a_fetch(services, version, fetch_offset=500).encode(version)
            for end in range(6, len(frame)):
                assert NATIVE.handle_fetch_frame(memoryview(frame[:end]), 6, version, 77, None, services) is None
            assert NATIVE.handle_fetch_frame(memoryview(frame), 6, version, 77, None, services) is not None
            assert NATIVE.handle_fetch_frame(memoryview(frame), -1, version, 77, None, services) is None

    broker.run(ask, broker.services)
