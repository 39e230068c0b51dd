"""What is compiled gives what the function in Python gives that it stands in for, of sound bytes, of damaged ones, and of none at all."""

import os
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
@pytest.mark.parametrize("name", ["protocol", "network"])
def test_one_that_reads_the_fields_of_another_is_left_alone_with_it(name: str) -> None:
    program = (
        "import protocol.compiled\n"
        "is_stale = protocol.compiled._is_stale\n"
        f"protocol.compiled._is_stale = lambda binary: binary.parent.name == {name!r} or is_stale(binary)\n"
        "import broker.network.sendfile\n"
        "print(protocol.compiled.describe())"
    )
    left = {"protocol": "broker.network.native", "network": "protocol.native"}[name]
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
