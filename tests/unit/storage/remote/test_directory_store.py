"""The errors of a directory store name the file that is missing or cut, as it is."""

from pathlib import Path

import pytest

from ottla.storage.remote.ports import IndexKind, RemoteObjectMissing
from tests.contract.test_remote_store import do
from tests.support.remote_stores import a_directory_store, an_entry, segment_files

RECORDS = bytes(1000)


def test_errors_name_what_is_missing_or_cut(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    store, entry = a_directory_store(tmp_path / "shared"), an_entry(0, 99, len(RECORDS))
    do(store.copy(entry, segment_files(tmp_path, RECORDS)))
    (log,) = tmp_path.rglob("shared/**/*.log")
    log.write_bytes(RECORDS[:-9])
    with pytest.raises(RemoteObjectMissing, match=r"\.log has 0 bytes from 999 on, and 1 were expected$"):
        do(store.fetch(entry, len(RECORDS) - 1, len(RECORDS)))

    log.unlink()
    assert not list(tmp_path.rglob("shared/**/*.txnindex")), "a segment without aborted transactions has none"
    with pytest.raises(RemoteObjectMissing, match=r"\.log: No such file or directory$"):
        do(store.index(entry, IndexKind.TRANSACTION))
