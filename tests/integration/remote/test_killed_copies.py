"""A broker is killed at a request to its store, while it copies or deletes segments. After its next start nothing is lost or left over."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.storage.remote.entries import SegmentState
from tests.support.fault_proxy import FaultProxy, Kill, a_fault_proxy
from tests.support.s3_servers import KINDS, S3Server, an_s3_server
from tests.support.tiered_broker import OBJECTS_OF_A_COPY, Killed, TieredBroker, a_tiered_broker, objects_by_copy, records

RECORDS = 100
RETAINED_BYTES = 20_000
"""More than the active segment, less than it and the last copy."""


class Stage(NamedTuple):
    """What every run begins with: a broker's directory with a topic that nothing was copied of, and the store."""

    directory: Path
    proxy: FaultProxy
    s3: S3Server


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("stage")
    with an_s3_server(request.param, tmp_path_factory.mktemp("s3"), "bucket") as s3, a_fault_proxy(s3.url) as proxy:
        with a_tiered_broker(directory, proxy.url) as broker:
            broker.create("t")
            broker.fill("t", 0, RECORDS)
            broker.stop()
            assert len(broker.local_bases("t")) == 4
        yield Stage(directory, proxy, s3)


def finished(broker: TieredBroker) -> dict[str, tuple[int, int]]:
    """Offsets of the copies that are read."""
    copies = broker.copies("t").items()
    return {name: (copy.start_offset, copy.end_offset) for name, copy in copies if copy.state is SegmentState.COPY_SEGMENT_FINISHED}


def is_settled(broker: TieredBroker, s3: S3Server) -> bool:
    """Whether two copies are removed, and each object belongs to a whole copy that is read."""
    copies = broker.copies("t").values()
    over = {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_FINISHED}
    read = finished(broker)
    return (
        all(copy.state in over for copy in copies) and len(read) == 1 and objects_by_copy(s3, "t") == dict.fromkeys(read, OBJECTS_OF_A_COPY)
    )


def copy_and_delete(broker: TieredBroker, s3: S3Server) -> None:
    """Has all closed segments copied, and then the first two copies removed. Raises Killed."""
    broker.configure("t", remote_storage_enable="true")
    broker.await_(lambda: broker.are_all_copied("t"), "the copies")
    broker.configure("t", retention_bytes=str(RETAINED_BYTES))
    broker.await_(lambda: is_settled(broker, s3), "the removal of the first copies, and of what was left behind")


def check_the_dead(broker: TieredBroker, s3: S3Server) -> None:
    """No segment was removed here before the metadata had its finished copy, and no object before its copy's deletion began."""
    objects = objects_by_copy(s3, "t")
    assert all(objects.get(name) == OBJECTS_OF_A_COPY for name in finished(broker)), "objects of a copy that is read are gone"
    at = 0
    first_here = broker.local_bases("t")[0]
    for start, end in sorted((copy.start_offset, copy.end_offset) for copy in broker.copies("t").values() if copy.was_finished):
        if start <= at:
            at = max(at, end + 1)
    assert at >= first_here, "records are neither here nor in the store"


def run(stage: Stage, directory: Path, *kills: tuple[int, bool], **keys: str) -> bool:
    """Kills the broker at a request after each start, starts it again, and checks all. Returns False if it made fewer requests at first.

    Each of `kills` has the number of the request, and whether the store gets it.
    """
    stage.s3.forget_buckets()
    stage.s3.make_bucket("bucket")
    shutil.copytree(stage.directory, directory)
    was_killed = False
    with a_tiered_broker(directory, stage.proxy.url, **keys) as broker:
        for kill in kills:
            stage.proxy.forget()
            stage.proxy.kill = Kill(broker.pid, *kill)
            try:
                copy_and_delete(broker, stage.s3)
                break
            except Killed:
                was_killed = True
                broker.wait()
                check_the_dead(broker, stage.s3)
                stage.proxy.forget()
                broker.start()
        stage.proxy.forget()
        copy_and_delete(broker, stage.s3)
        start = broker.log_start("t")
        ((first, last),) = finished(broker).values()
        assert (start, last + 1) == (first, *broker.local_bases("t"))
        assert broker.consume("t", 0, RECORDS) == records(start, RECORDS)  # from the first record there is, and none below
    shutil.rmtree(directory)
    return was_killed


@pytest.mark.parametrize(("number", "is_forwarded"), [(1, True), (3, False), (3, True), (10, True), (11, False), (15, True)])
def test_a_broker_killed_at_a_request_loses_no_record_and_leaves_no_object(
    stage: Stage, tmp_path: Path, number: int, is_forwarded: bool
) -> None:
    assert run(stage, tmp_path / "broker", (number, is_forwarded))


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_forwarded", [False, True])
@pytest.mark.parametrize("is_compressed", ["false", "true"])
def test_a_broker_may_be_killed_at_every_request(stage: Stage, tmp_path: Path, is_compressed: str, is_forwarded: bool) -> None:
    number = 1
    while run(stage, tmp_path / "broker", (number, is_forwarded), **{"compression.enabled": is_compressed}):
        number += 1
    assert number > 15


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("second", [(1, True), (2, False), (3, True), (4, False)])
def test_a_broker_may_be_killed_again_while_it_clears_up(stage: Stage, tmp_path: Path, second: tuple[int, bool]) -> None:
    number = 1
    while run(stage, tmp_path / "broker", (number, True), second):
        number += 1
    assert number > 15
