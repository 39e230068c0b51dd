"""The file of the embedded store: several processes make it at the same moment, and a page says what is in it."""

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from ottla.controller.store.sqlite_tree import SCHEMA_VERSION, SqliteTree

BROKERS = 6
ROUNDS = 8


@pytest.mark.slow
def test_brokers_that_start_at_once_make_one_file(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        together = Barrier(BROKERS)

        def make(number: int = number, together: Barrier = together) -> None:
            together.wait()
            SqliteTree(str(tmp_path / f"{number}.db")).close()

        with ThreadPoolExecutor(BROKERS) as brokers:
            for made in [brokers.submit(make) for _ in range(BROKERS)]:
                made.result()


def test_only_the_owner_and_the_group_may_read_a_new_file(tmp_path: Path) -> None:
    tree = SqliteTree(str(tmp_path / "metadata.db"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    tree.close()
    assert modes.keys() == {"metadata.db", "metadata.db-wal", "metadata.db-shm"}
    assert all(mode & 0o137 == 0 for mode in modes.values()), modes


def test_the_page_names_all_tables_and_their_columns(tmp_path: Path) -> None:
    SqliteTree(str(tmp_path / "metadata.db")).close()
    with closing(sqlite3.connect(tmp_path / "metadata.db")) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: {row[1] for row in file.execute(f"PRAGMA table_info({name})")} for name in names}
    pages = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    page = pages.partition("## The metadata file\n")[2].partition("\n## ")[0]
    told: dict[str, set[str]] = {}
    name = ""
    for table, columns, _ in re.findall(r"^\| (\S*) ?\| (`.*`.*?) \| (.*) \|$", page, flags=re.MULTILINE):
        name = table.strip("`") or name
        told.setdefault(name, set()).update(re.findall(r"`(\w+)`", columns))
    assert told == tables
    assert f"`PRAGMA user_version` is {SCHEMA_VERSION}." in page
