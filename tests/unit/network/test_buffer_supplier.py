"""Buffers for large requests: they are used again, and never while anybody needs what stands in them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.network.buffer_supplier import KEPT_BYTES, LARGEST_KEPT, BufferSupplier
from ottla.broker.network.limits import RECEIVE_BUFFER_BYTES
from ottla.broker.network.request_channel import Answer, Pending
from ottla.pauses import begin
from tests.support.network import Bench, framed, produce

LARGE = RECEIVE_BUFFER_BYTES * 4


def taken(supplier: BufferSupplier, size: int) -> bytearray:
    """Memory that is used again, or new."""
    memory = supplier.get(size)
    return bytearray(size) if memory is None else memory


def test_what_was_released_is_allocated_again() -> None:
    supplier = BufferSupplier()
    memory = taken(supplier, LARGE)
    supplier.release(memory)
    assert supplier.kept_bytes >= LARGE
    assert taken(supplier, LARGE) is memory
    assert supplier.kept_bytes == 0


@pytest.mark.parametrize("size", [LARGE // 2 + 1, LARGE - 1, LARGE - 70_000])
def test_a_smaller_request_has_memory_of_its_size_and_leaves_room_for_a_larger_one(size: int) -> None:
    supplier = BufferSupplier()
    memory = taken(supplier, LARGE)
    supplier.release(memory)
    smaller = taken(supplier, size)
    assert smaller is memory
    assert len(smaller) == size
    supplier.release(smaller)
    again = taken(supplier, LARGE)
    assert again is memory
    assert len(again) == LARGE


def test_what_is_much_too_large_or_too_small_is_left_for_others() -> None:
    supplier = BufferSupplier()
    memory = taken(supplier, LARGE)
    supplier.release(memory)
    assert len(taken(supplier, LARGE // 2)) == LARGE // 2
    assert len(taken(supplier, LARGE + 1)) == LARGE + 1
    assert supplier.free() == (memory,)


def test_memory_that_somebody_looks_at_is_not_lent_again() -> None:
    supplier = BufferSupplier()
    memory = taken(supplier, LARGE)
    memory[:4] = b"mine"
    view = memoryview(memory)[:4]
    supplier.release(memory)
    other = taken(supplier, LARGE)
    assert other is not memory
    assert bytes(view) == b"mine"
    assert supplier.kept_bytes == 0


def test_little_is_kept_and_nothing_that_is_very_large() -> None:
    supplier = BufferSupplier()
    for memory in [taken(supplier, LARGE) for _ in range(20)]:
        supplier.release(memory)
        assert supplier.kept_bytes <= KEPT_BYTES
    assert supplier.free()
    supplier.clear()
    supplier.release(taken(supplier, LARGEST_KEPT + 1))
    supplier.release(taken(supplier, RECEIVE_BUFFER_BYTES))
    assert supplier.kept_bytes == 0
    assert not supplier.free()


def test_no_more_is_kept_than_requests_may_take() -> None:
    supplier = BufferSupplier(2 * LARGE)
    for memory in [taken(supplier, LARGE - 1) for _ in range(3)]:
        supplier.release(memory)
    assert supplier.kept_bytes == 2 * LARGE
    few = BufferSupplier(LARGE // 2)
    few.release(taken(few, LARGE))
    assert not few.free()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(RECEIVE_BUFFER_BYTES, LARGEST_KEPT + 10), st.integers(0, 3)), max_size=30))
def test_nobody_shares_memory_and_everybody_has_what_he_asked_for(steps: list[tuple[int, int]]) -> None:
    supplier = BufferSupplier()
    lent: list[bytearray] = []
    for size, place in steps:
        memory = taken(supplier, size)
        assert len(memory) == size
        assert all(memory is not other for other in (*lent, *supplier.free()))
        lent.append(memory)
        if place < len(lent):
            supplier.release(lent.pop(place))
        assert supplier.kept_bytes == sum(each.__alloc__() for each in supplier.free()) <= KEPT_BYTES


def test_the_next_large_request_is_received_into_the_memory_of_the_last() -> None:
    bench = Bench()
    first, second = bench.connect(), bench.connect()
    first.send_all(framed(b"a" * LARGE))
    (memory,) = bench.processor.buffers.free()
    second.send_all(framed(b"b" * (LARGE - 5)))
    first.send_all(framed(b"c" * LARGE))
    assert bench.processor.buffers.free() == (memory,)
    assert bench.handled == [b"a" * LARGE, b"b" * (LARGE - 5), b"c" * LARGE]


def test_two_connections_that_receive_at_once_have_memory_of_their_own() -> None:
    bench = Bench()
    bench.connect().send_all(framed(b"x" * LARGE))
    first, second = bench.connect(), bench.connect()
    one, two = framed(b"1" * LARGE), framed(b"2" * LARGE)
    for start in range(0, len(one), 100_000):
        first.send(one[start : start + 100_000])
        second.send(two[start : start + 100_000])
    assert bench.handled[1:] == [b"1" * LARGE, b"2" * LARGE]


def test_a_request_that_waits_keeps_its_memory() -> None:
    pending: list[Pending] = []

    def handler(frame: memoryview, _: object) -> Answer:
        if len(frame) < 10:
            pending.append(Pending())
            return pending[-1]
        return bytes(frame[:1])

    bench = Bench(handler)
    bench.connect().send_all(framed(b"x" * LARGE))
    waiting, other = bench.connect(), bench.connect()
    waiting.send(framed(b"wait"))
    request = framed(b"w" * LARGE)
    taken = waiting.send(request)
    other.send_all(framed(b"o" * LARGE))
    assert bench.handled[-1] == b"o" * LARGE
    pending[0].complete(b"")
    bench.turns.run()
    waiting.send_all(request[taken:])
    assert bench.handled[-1] == b"w" * LARGE
    assert not waiting.connection.kept_bytes
    assert [len(memory) for memory in bench.processor.buffers.free()] == [LARGE + 4]


def test_a_request_that_waits_for_a_slot_keeps_its_memory() -> None:
    slot = Pending(occupies_slot=True)
    bench = Bench(lambda frame, _: slot if len(frame) < 10 else bytes(frame[:1]), slots=1)
    bench.connect().send_all(framed(b"x" * LARGE))
    holder, waiting, other = bench.connect(), bench.connect(), bench.connect()
    holder.send(framed(b"slot"))
    waiting.send(framed(b"w" * LARGE))
    other.send(framed(b"o" * LARGE))
    assert len(bench.handled) == 2
    slot.complete(b"")
    bench.turns.run()
    assert bench.handled[2:] == [b"w" * LARGE, b"o" * LARGE]
    assert (waiting.answers, other.answers) == ([b"w"], [b"o"])


def test_a_view_that_a_handler_should_not_have_kept_is_not_written_into() -> None:
    kept: list[memoryview] = []

    def handler(frame: memoryview, _: object) -> Answer:
        kept.append(frame)
        return Pending(appended=True)

    bench = Bench(handler)
    client = bench.connect()
    client.send(framed(produce(b"1" * LARGE)))
    (memory,) = bench.processor.buffers.free()
    memory[:] = b"1" * len(memory)  # as it was
    bench.connect().send(framed(produce(b"2" * LARGE)))
    assert set(bytes(kept[0])) == set(b"1")


def test_an_idle_processor_keeps_no_memory() -> None:
    bench = Bench()
    bench.connect().send_all(framed(b"x" * LARGE))
    assert bench.processor.buffers.kept_bytes
    begin(bench.processor.expire_idle(-1))
    assert not bench.processor.buffers.kept_bytes
