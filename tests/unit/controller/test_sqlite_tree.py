"""The file of the embedded store, where several processes make it at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from controller.sqlite_tree import SqliteTree

BROKERS = 6
ROUNDS = 8


def test_brokers_that_start_at_once_make_one_file(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        together = Barrier(BROKERS)

        def make(number: int = number, together: Barrier = together) -> None:
            together.wait()
            SqliteTree(str(tmp_path / f"{number}.db")).close()

        with ThreadPoolExecutor(BROKERS) as brokers:
            for made in [brokers.submit(make) for _ in range(BROKERS)]:
                made.result()
