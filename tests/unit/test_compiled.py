"""What is compiled gives what the function in Python gives that it stands in for, of sound bytes, of damaged ones, and of none at all."""

import os
import random
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import protocol.compiled
from protocol.compiled import MODULES, compiled, describe
from protocol.messages.header import RequestHeader
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.disk.filesystem import File, RealFileSystem
from storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.logs import a_context, a_log, append
from tests.support.pure_python import pure

needed = pytest.mark.skipif(
    describe() != "compiled", reason=f"the hot path is {describe()} here: a C compiler and Python's headers make it more"
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def native(name: str) -> Any:
    """The compiled module."""
    module = compiled(name)
    assert module is not None
    return module


def without(name: str) -> Any:
    """The module in Python alone."""
    module: ModuleType = pure(name)
    return module


def test_one_whose_source_has_changed_since_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary, source = tmp_path / "native.so", tmp_path / "native.pyx"
    binary.touch()
    monkeypatch.setattr(protocol.compiled, "import_module", lambda name: SimpleNamespace(__file__=str(binary)))
    assert compiled("protocol.native") is not None  # an installation without sources
    source.touch()
    os.utime(source, ns=(0, binary.stat().st_mtime_ns))
    assert describe() == "compiled"
    os.utime(source, ns=(0, binary.stat().st_mtime_ns + 1))
    assert [compiled(name) for name in MODULES] == [None] * len(MODULES)
    assert describe() == "pure Python"


@needed
@pytest.mark.parametrize("name", ["protocol", "storage", "network"])
def test_one_that_reads_the_fields_of_another_is_left_alone_with_it(name: str) -> None:
    program = (
        "import protocol.compiled\n"
        "is_stale = protocol.compiled._is_stale\n"
        f"protocol.compiled._is_stale = lambda binary: binary.parent.name == {name!r} or is_stale(binary)\n"
        "import broker.network.sendfile, storage.segment.file_region, storage.segment.segment\n"
        "print(protocol.compiled.describe())"
    )
    left = {
        "protocol": "storage.native, broker.network.native",
        "storage": "protocol.native",
        "network": "protocol.native, storage.native",
    }[name]
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == f"compiled in part ({left})\n"


# Produce


def produce_frame(correlation_id: int, records: bytes, version: int = 11, client_id: str | None = "c", name: str = "orders") -> bytes:
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=3, records=records)])]
    header = RequestHeader(request_api_key=0, request_api_version=version, correlation_id=correlation_id, client_id=client_id)
    body = header.encode(2 if version >= 9 else 1) + ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data).encode(version)
    return struct.pack(">i", len(body)) + body


@needed
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_several_requests_are_read_the_same(data: st.DataObject) -> None:
    by_hand = without("protocol.produce_fast_path")
    versions = data.draw(st.sampled_from([[11], [9, 10, 11], [8, 11]]))
    client_id = data.draw(st.sampled_from(["c", None, "", "longer"]))
    names = data.draw(st.sampled_from([["orders"], ["orders", "others"], ["x" * 249]]))
    sizes = st.sampled_from([0, 1, 70, 126, 127, 128, 16_382, 16_383, 16_384, 40_000])
    frames = [
        produce_frame(
            data.draw(INT32), bytes(data.draw(sizes)), data.draw(st.sampled_from(versions)), client_id, data.draw(st.sampled_from(names))
        )
        for _ in range(data.draw(st.integers(1, 20)))
    ]
    stream = bytearray(b"before" + b"".join(frames))
    for _ in range(data.draw(st.integers(0, 2))):
        stream[data.draw(st.integers(6, len(stream) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    view = memoryview(stream)
    end = data.draw(st.sampled_from([len(stream), len(stream), max(len(stream) - 5, 6), data.draw(st.integers(6, len(stream)))]))
    for frame in frames:  # what was read once is known by its head
        begins = 4 + 8 + 3 + len(client_id or "")
        by_hand.read_one_batch(memoryview(frame)[4:], begins - 4, 11)
    heads = by_hand._flexible_heads
    found = native("protocol.native").read_several(heads, view, 6, end)
    in_python = by_hand.read_several(view, 6, end)
    assert found == in_python or in_python is None  # which gives up on all when the last one ends too early


@needed
@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(-5, 220), st.integers(-5, 220))
def test_any_bytes_are_no_reason_to_fail(data: bytes, position: int, end: int) -> None:
    for head in (data, b"\0\0\0\x50\0\0\0\x0b\0\0\0\1" + data):
        assert native("protocol.native").read_several({}, memoryview(head), position, end) is None
    native("protocol.native").read_with_id(memoryview(data), position, 15)


@needed
@given(
    st.sampled_from(["t", "x" * 126, "x" * 127, "x" * 249, "grün"]),
    st.integers(9, 11),
    INT32,
    st.lists(st.tuples(INT32, INT64), max_size=20),
    INT64,
)
def test_answers_are_packed_the_same(
    topic: str, version: int, partition: int, answers: list[tuple[int, int]], log_start_offset: int
) -> None:
    by_hand = without("protocol.produce_fast_path")
    template = by_hand._response_template(version, topic)
    arguments = ([each for each, _ in answers], partition, [offset for _, offset in answers], log_start_offset)
    assert native("protocol.native").pack_responses(*template, *arguments) == by_hand._pack_responses(*template, *arguments)


# Regions


@needed
@pytest.mark.parametrize(
    "arguments", [(1, 2), (1 << 40, (1 << 31) + 1, True), (0, 0, 1), (-1, 5, False), (), (1,), (1, 2, True, 4), ("1", 2)]
)
def test_a_region_is_made_of_the_same_and_has_the_same_methods(arguments: tuple[Any, ...]) -> None:
    forms = native("storage.native").Region, without("storage.segment.file_region").Region
    assert [form in FileRegion.__mro__ for form in forms] == [True, False]
    file = SimpleNamespace(pread=lambda *wanted: wanted, is_cached=lambda *wanted: wanted)
    found = []
    for form in (FileRegion, without("storage.segment.file_region").FileRegion):
        try:
            region = form(file, *arguments)
            assert not hasattr(region, "__dict__")
            found.append((*place((region, 0)), region.read(), region.is_cached(), len(region) if region.length >= 0 else -1))
        except TypeError:
            found.append(None)
    assert found[0] == found[1] or arguments == ("1", 2)  # which only types keep out of the one in Python


@needed
def test_a_region_stays_what_it_is() -> None:
    region = FileRegion(SimpleNamespace(), 1, 2)  # type: ignore[arg-type]  # no file is needed
    for field in ("file", "position", "length", "end_is_cached", "begun", "other"):
        with pytest.raises(AttributeError):
            setattr(region, field, 0)


@needed
def test_lookups_give_no_other_class() -> None:
    for other in (bytes, without("storage.segment.file_region").FileRegion):
        with pytest.raises(TypeError):
            native("storage.native").find_as(other)


# Lookups


def place(found: tuple[FileRegion, int] | None) -> tuple[File, int, int, bool, int] | None:
    """What a read found, to be compared."""
    if found is None:
        return None
    region, next_offset = found
    return region.file, region.position, region.length, region.end_is_cached, next_offset


def sent_of(region: FileRegion) -> bytes:
    """What leaves of a region at once: where it was found by what is compiled, its first bytes are those that were read there."""
    ours, client = socket.socketpair()
    with ours, client:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        native("broker.network.native").send_ready(ours.fileno(), [region])
        ours.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as received:
            return received.read()


@needed
@pytest.mark.parametrize("index_interval_bytes", [0, 300, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_batches_are_found_in_the_same_place(seed: int, index_interval_bytes: int, tmp_path: Path) -> None:
    by_hand = without("storage.segment.segment").Segment
    filesystem = RealFileSystem()
    (tmp_path / "topic-0").mkdir()
    log = a_log(a_context(filesystem), log_dir=str(tmp_path), index_interval_bytes=index_interval_bytes, segment_index_bytes=1 << 20)
    random_ = random.Random(seed)
    for _ in range(600):
        append(log, a_batch(random_.choice([1, 2, 5, 30]), value_bytes=random_.choice([10, 100, 900])))
    segment = log.active_segment
    segment.offset_index.write_out()
    found = missed = 0
    for _ in range(2000):
        offset, max_bytes = random_.randint(-3, log.log_end_offset + 3), random_.choice([-1, 0, 1, 2000, 20_000, 60_000, 1 << 40])
        arguments = (*segment.offset_index.entries_around(offset), segment.base_offset, segment.size, offset, max_bytes)
        region = native("storage.native").between_entries(segment.file, *arguments)
        one = place(region)
        other = place(by_hand.between_entries(segment, offset, max_bytes))
        assert one is None or one == other
        assert region is None or sent_of(region[0]) in (b"", region[0].read())
        found += one is not None
        missed += one is None and other is not None
    assert found > 30
    assert missed <= found // 10  # those behind the last entry


@needed
@given(st.binary(max_size=80), st.integers(-2, 12), st.integers(-5, 2**40), st.integers(-5, 2**40))
def test_an_index_of_anything_leads_nowhere(entries: bytes, count: int, offset: int, max_bytes: int) -> None:
    with open("/dev/zero", "rb") as zeros:
        file = SimpleNamespace(descriptor=zeros.fileno())
        assert native("storage.native").between_entries(file, entries, count, 0, 1 << 30, offset, max_bytes) is None
