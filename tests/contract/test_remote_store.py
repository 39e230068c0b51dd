"""What copies, reads and expiry rely on in a remote store, held against every one there is."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.replication.remote.removals import MOST_APART_MS
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import IndexKind, RemoteObjectMissing, RemoteStore, RemoteStoreError
from tests.support.azurite import AzureServer, an_azure_server
from tests.support.moto_server import s3_keys
from tests.support.remote_stores import (
    KEY_RING,
    a_directory_store,
    a_gcs_store,
    an_entry,
    an_object_store,
    an_s3_store,
    directory_settings,
    object_settings,
    segment_files,
)
from tests.support.s3_servers import S3Server, an_s3_server
from tests.support.store_processes import a_store_process_for_any_loop

_Result = TypeVar("_Result")

RECORDS = random.Random(7).randbytes((8 << 20) + 12345)
"""More than two chunks, and more than the directory store copies at once."""


class Case:
    """A store, and how to break it."""

    def __init__(self, store: RemoteStore, break_it: Callable[[], None], source: Path) -> None:
        self.store = store
        self.break_it = break_it
        self.source = source

    def copy(self, entry: SegmentEntry, records: bytes = RECORDS, transactions: bytes | None = None) -> None:
        do(self.store.copy(entry, segment_files(self.source, records, transactions=transactions)))


def _directory(tmp_path: Path) -> Case:
    shared = tmp_path / "shared"
    shared.mkdir()

    def lose() -> None:
        shared.rename(tmp_path / "gone")

    return Case(a_directory_store(shared), lose, tmp_path)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], S3Server]]:
    """The server of a kind, started at first use."""
    with ExitStack() as running:
        found: dict[str, S3Server] = {}

        def server(kind: str) -> S3Server:
            if kind not in found:
                found[kind] = running.enter_context(an_s3_server(kind, tmp_path_factory.mktemp(kind)))
            return found[kind]

        yield server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with an_azure_server(tmp_path_factory.mktemp("azure")) as server:
        yield server


ON_S3 = {
    "s3": {},
    "s3-compressed": {"compression.enabled": "true", "chunk.size": "1000000"},
    "s3-encrypted": {**KEY_RING, "chunk.size": "1000000"},
    "s3-compressed-and-encrypted": {**KEY_RING, "compression.enabled": "true"},
    "s3-with-a-prefix": {"key.prefix": "tier-", "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_KEY"},
}


APART = " in a process"

CASES = [
    "directory",
    pytest.param(f"directory{APART}", marks=pytest.mark.slow),
    *(f"{keys} on moto" for keys in ON_S3),
    pytest.param(f"s3-compressed-and-encrypted on moto{APART}", marks=pytest.mark.slow),
    "gcs on moto",
    *(pytest.param(f"{keys} on versitygw", marks=pytest.mark.soak) for keys in ON_S3),
    pytest.param("azure", marks=pytest.mark.soak),
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    name, is_apart = request.param.removesuffix(APART), request.param.endswith(APART)
    if name == "directory":
        found = _directory(tmp_path)
        if is_apart:
            with a_store_process_for_any_loop(directory_settings(tmp_path / "shared")) as store:
                yield Case(store, found.break_it, tmp_path)
        else:
            yield found
        return
    if name == "azure":
        azure = request.getfixturevalue("azure")
        azure.make_container("bucket")
        is_gone: list[bool] = []

        def lose() -> None:
            azure.remove_container("bucket")
            is_gone.append(True)

        yield Case(an_object_store(azure.keys("bucket")), lose, tmp_path)
        if not is_gone:
            azure.remove_container("bucket")
        return
    keys, _, kind = name.partition(" on ")
    server = request.getfixturevalue("servers")(kind)
    server.make_bucket("bucket")
    if is_apart:
        with a_store_process_for_any_loop(object_settings(s3_keys(server.url, **ON_S3[keys]))) as store:
            yield Case(store, server.forget_buckets, tmp_path)
        server.forget_buckets()
        return
    store = a_gcs_store(server.url) if keys == "gcs" else an_s3_store(server.url, **ON_S3[keys])
    yield Case(store, server.forget_buckets, tmp_path)
    server.forget_buckets()


def do(call: Awaitable[_Result]) -> _Result:
    async def run() -> _Result:
        return await call

    return asyncio.run(run())


async def _names(store: RemoteStore, prefix: str) -> list[str]:
    return sorted([each.name async for each in store.list(prefix)])


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (0, len(RECORDS)), (4 << 20, 8 << 20), ((4 << 20) - 1, (4 << 20) + 1), (len(RECORDS) - 1, len(RECORDS))]
)
def test_the_records_are_read_back_by_their_positions(case: Case, start: int, end: int) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)

    assert do(case.store.fetch(entry, start, end)) == RECORDS[start:end]


def test_a_copy_without_records_is_complete(case: Case) -> None:
    entry = an_entry(0, 99, 0)
    for _ in range(2):
        case.copy(entry, b"")

    assert do(case.store.size(entry)) == 0
    assert do(case.store.index(entry, IndexKind.LEADER_EPOCH)) == b"0\n1\n0 0\n"
    do(case.store.delete(entry))
    assert do(_names(case.store, "")) == []


def test_the_indexes_are_read_back(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry, transactions=b"x" * 34)

    found = {kind: do(case.store.index(entry, kind)) for kind in IndexKind}
    assert {kind: do(case.store.index_size(entry, kind)) for kind in IndexKind} == {kind: len(data) for kind, data in found.items()}
    paths = {kind: str(case.source / f"saved {kind.name}") for kind in IndexKind}
    do(case.store.save_indexes(entry, paths))
    assert {kind: RealFileSystem().read_file(path) for kind, path in paths.items()} == found
    with pytest.raises(RemoteStoreError, match="more than"):
        do(case.store.index(entry, IndexKind.LEADER_EPOCH, 3))
    with pytest.raises(OSError, match="No such file"):
        do(case.store.save_indexes(entry, {IndexKind.OFFSET: str(case.source / "no" / "directory")}))

    assert found == {
        IndexKind.OFFSET: b"o" * 8,
        IndexKind.TIMESTAMP: b"t" * 12,
        IndexKind.PRODUCER_SNAPSHOT: b"snapshot",
        IndexKind.TRANSACTION: b"x" * 34,
        IndexKind.LEADER_EPOCH: b"0\n1\n0 0\n",
    }


def test_a_segment_without_transactions_has_an_empty_index_of_them(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)

    assert do(case.store.index(entry, IndexKind.TRANSACTION)) == b""


def test_an_empty_index_is_read_back(case: Case) -> None:
    entry = an_entry(0, 0, 70)
    do(case.store.copy(entry, segment_files(case.source, bytes(70), offset_index=b"")))

    assert do(case.store.index(entry, IndexKind.OFFSET)) == b""


def test_a_copy_may_be_repeated(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)

    case.copy(entry)

    assert do(case.store.fetch(entry, 0, len(RECORDS))) == RECORDS


def test_a_copy_that_was_cut_off_is_completed_by_the_next(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    files = segment_files(case.source, RECORDS)
    Path(files.log).unlink()
    with pytest.raises(RemoteStoreError):
        do(case.store.copy(entry, files))

    case.copy(entry)

    assert do(case.store.fetch(entry, 0, len(RECORDS))) == RECORDS


def test_bytes_that_are_not_there_are_an_error(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)

    with pytest.raises(RemoteStoreError):
        do(case.store.fetch(entry, len(RECORDS) - 1, len(RECORDS) + 1))


def test_what_was_not_copied_is_missing(case: Case) -> None:
    case.copy(an_entry(0, 99, len(RECORDS)))
    other = an_entry(0, 99, len(RECORDS), uuid=2)

    with pytest.raises(RemoteObjectMissing, match=r"is missing|No such file"):
        do(case.store.fetch(other, 0, 10))
    for kind in IndexKind:
        with pytest.raises(RemoteObjectMissing):
            do(case.store.index(other, kind))


def test_a_deleted_copy_is_gone_and_another_of_the_same_segment_stays(case: Case) -> None:
    entry, other = an_entry(0, 99, len(RECORDS)), an_entry(0, 99, len(RECORDS), uuid=2)
    case.copy(entry)
    case.copy(other)

    do(case.store.delete(entry))

    with pytest.raises(RemoteObjectMissing):
        do(case.store.fetch(entry, 0, 10))
    assert do(case.store.fetch(other, 0, 10)) == RECORDS[:10]


def test_a_delete_may_be_repeated(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)
    do(case.store.delete(entry))

    do(case.store.delete(entry))

    assert do(_names(case.store, "")) == []


def test_objects_are_listed_by_what_their_names_begin_with(case: Case) -> None:
    case.copy(an_entry(0, 99, len(RECORDS)))
    few = do(_names(case.store, ""))
    case.copy(an_entry(100, 199, 50, uuid=2), records=bytes(50))

    names = do(_names(case.store, ""))

    assert set(few) < set(names)
    assert do(_names(case.store, names[0])) == [names[0]]
    assert do(_names(case.store, "orders-")) == names
    assert do(_names(case.store, "other-")) == []


def test_a_store_that_is_there_passes_the_probe_and_one_that_is_gone_does_not(case: Case) -> None:
    do(case.store.probe())

    case.break_it()

    with pytest.raises(RemoteStoreError):
        do(case.store.probe())


def test_a_delete_is_not_done_in_a_store_that_is_gone(case: Case) -> None:
    entry = an_entry(0, 99, len(RECORDS))
    case.copy(entry)
    case.break_it()

    with pytest.raises(RemoteStoreError):
        do(case.store.delete(entry))


def test_nothing_is_copied_into_a_store_that_is_gone(case: Case) -> None:
    case.break_it()

    with pytest.raises(RemoteStoreError):
        case.copy(an_entry(0, 99, len(RECORDS)))


def test_a_store_with_a_clock_tells_its_time_and_keeps_no_object_of_that(case: Case) -> None:
    found = do(case.store.now_ms())

    assert found is None or abs(found - time.time() * 1000) < MOST_APART_MS
    assert do(_names(case.store, "")) == []


def test_objects_are_listed_with_the_times_at_which_they_were_written(case: Case) -> None:
    async def times() -> list[int]:
        return [each.modified_ms async for each in case.store.list("")]

    case.copy(an_entry(0, 99, len(RECORDS)))

    found = do(times())

    assert found
    assert all(abs(each - time.time() * 1000) < MOST_APART_MS for each in found)


def test_a_store_belongs_to_the_first_cluster_that_claims_it(case: Case) -> None:
    owners = [do(case.store.owner(claim)) for claim in (None, "one", "another", None)]

    assert owners == [None, "one", "one", "one"]
    assert do(_names(case.store, "")) == []


def test_a_store_that_is_gone_has_an_owner_that_is_not_known(case: Case) -> None:
    case.break_it()

    with pytest.raises(RemoteStoreError):
        do(case.store.owner("one"))


def test_a_closed_store_ends_at_once(case: Case) -> None:
    do(asyncio.wait_for(case.store.close(), 5))
