"""Has the processes of pytest-xdist import the tests from different places on.

The first import of a test rewrites its assertions, a quarter of a minute for all tests, and leaves them in a file for other processes.
Those that all began with the first test would each rewrite them all.
"""

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest


def import_from_own_place(arguments: Sequence[str], root: Path) -> None:
    """Import the tests of these folders, files and names. Leaves it to pytest to report a test that cannot be imported."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not number.isdecimal():
        return
    paths = [root / argument.partition("::")[0] for argument in arguments]
    files = [file for path in paths for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]
    place = len(files) * int(number) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as while pytest collects
        for file in files[place:] + files[:place]:
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(file.relative_to(root).with_suffix("").parts))
