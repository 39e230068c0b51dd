"""What is compiled gives what the function in Python gives that it stands in for, of sound bytes, of damaged ones, and of none at all."""

import random
import socket
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.compiled import compiled, describe
from storage.disk.filesystem import File, RealFileSystem
from storage.segment.file_region import FileRegion
from tests.support.batches import a_batch
from tests.support.logs import a_context, a_log, append
from tests.support.pure_python import pure

needed = pytest.mark.skipif(
    describe() != "compiled", reason=f"the hot path is {describe()} here: a C compiler and Python's headers make it more"
)


def native(name: str) -> Any:
    """The compiled module."""
    module = compiled(name)
    assert module is not None
    return module


def without(name: str) -> Any:
    """The module in Python alone."""
    module: ModuleType = pure(name)
    return module


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
