"""While the store of a broker fails, its producers and the readers of local records go on. Afterwards all is copied and read."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.fault_proxy import Fault, FaultProxy, a_fault_proxy, always
from tests.support.s3_servers import KINDS, S3Server, an_s3_server
from tests.support.tiered_broker import OBJECTS_OF_A_COPY, TieredBroker, a_tiered_broker, objects_by_copy, records, time_of

HALF, RECORDS = 100, 200


class Stage(NamedTuple):
    """A broker whose store is behind the proxy."""

    broker: TieredBroker
    proxy: FaultProxy
    s3: S3Server


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with (
        an_s3_server(request.param, tmp_path_factory.mktemp("s3"), "bucket") as s3,
        a_fault_proxy(s3.url) as proxy,
        a_tiered_broker(tmp_path_factory.mktemp("broker"), proxy.url) as broker,
    ):
        yield Stage(broker, proxy, s3)


def check_all(stage: Stage, topic: str) -> None:
    """All is copied once, and read."""
    broker = stage.broker
    broker.await_(lambda: broker.are_all_copied(topic), "the copies")
    copies = broker.copies(topic)
    starts = [copy.start_offset for copy in copies.values()]
    assert len(starts) == len(set(starts)), "a copy was begun twice"
    assert objects_by_copy(stage.s3, topic) == dict.fromkeys(copies, OBJECTS_OF_A_COPY)
    assert broker.consume(topic, 0, RECORDS) == records(0, RECORDS)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BLACK_HOLE, Fault.UNAVAILABLE, Fault.FORBIDDEN, Fault.LOST])
def test_local_records_are_written_and_read_while_nothing_can_be_copied(stage: Stage, fault: Fault) -> None:
    broker, proxy, _ = stage
    topic = fault.name.lower()
    proxy.forget()
    proxy.choose = always(fault)
    try:
        broker.create(topic, **{"remote.storage.enable": "true"})
        broker.fill(topic, 0, HALF)
        broker.await_(lambda: proxy.requests, "a copy")
        broker.fill(topic, HALF, RECORDS)
        assert broker.consume(topic, 0, RECORDS) == records(0, RECORDS)
        assert broker.local_bases(topic)[0] == 0
        assert not any(copy.was_finished for copy in broker.copies(topic).values())
    finally:
        proxy.forget()
        proxy.let_go()
    check_all(stage, topic)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BLACK_HOLE, Fault.UNAVAILABLE, Fault.FORBIDDEN, Fault.CUT, Fault.FLIPPED])
def test_local_records_are_written_and_read_while_none_of_the_store_can_be_read(stage: Stage, fault: Fault) -> None:
    broker, proxy, _ = stage
    topic = f"read-{fault.name.lower()}"
    proxy.forget()
    broker.create(topic, **{"remote.storage.enable": "true"})
    broker.fill(topic, 0, HALF)
    broker.await_(lambda: broker.are_all_copied(topic), "the copies")
    (first_here,) = broker.local_bases(topic)
    proxy.choose = always(fault, lambda method, path: method == "GET")
    try:
        with broker.reading(topic, 0) as remote:
            broker.await_(lambda: remote.poll() or any(method == "GET" for method, _ in proxy.requests), "a read of the store")
            broker.fill(topic, HALF, RECORDS)
            last_here = broker.local_bases(topic)[-1]
            assert broker.consume(topic, last_here, RECORDS) == records(last_here, RECORDS)
            remote.poll()
            assert remote.found == records(0, len(remote.found))
            assert len(remote.found) < first_here
            proxy.forget()
            proxy.let_go()
            broker.await_(lambda: remote.poll() or len(remote.found) == RECORDS, "the rest")
            assert remote.found == records(0, RECORDS)
    finally:
        proxy.forget()
        proxy.let_go()
    check_all(stage, topic)


@pytest.mark.parametrize("kind", ["log", "indexes", "rsm-manifest"])
def test_a_byte_that_is_flipped_in_one_object_harms_no_reader_for_long(stage: Stage, kind: str) -> None:
    broker, proxy, _ = stage
    topic = f"flipped-{kind}"
    proxy.forget()
    broker.create(topic, **{"remote.storage.enable": "true"})
    broker.fill(topic, 0, RECORDS)
    broker.await_(lambda: broker.are_all_copied(topic), "the copies")
    proxy.choose = always(Fault.FLIPPED, lambda method, path: method == "GET" and path.endswith(f".{kind}"))
    try:
        with broker.reading(topic, 0) as remote:
            broker.await_(lambda: remote.poll() or any(path.endswith(f".{kind}") for _, path in proxy.requests), "a read of the store")
            remote.poll()
            assert remote.found == records(0, len(remote.found))
            proxy.forget()
            broker.await_(lambda: remote.poll() or len(remote.found) >= RECORDS, "the rest")
            assert remote.found == records(0, RECORDS)
    finally:
        proxy.forget()
    check_all(stage, topic)
    middle = broker.local_bases(topic)[0] // 2
    assert broker.offset_of(topic, time_of(middle)) == middle
