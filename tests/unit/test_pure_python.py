"""Without its compiled modules the hot path passes the same tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.compiled import describe

ROOT = Path(__file__).parents[2]
PATHS = (
    "tests/unit/network",
    "tests/unit/broker/test_produce_together.py",
    "tests/unit/storage/test_indexes.py",
    "tests/unit/storage/test_log_read.py",
    "tests/wire/test_fetch_fast_path.py",
    "tests/wire/test_produce_fast_path.py",
    "tests/integration/test_fetch_one_partition.py",
)


@pytest.mark.skipif(describe() == "pure Python", reason="these tests run without compiled modules anyway")
@pytest.mark.parametrize("path", PATHS)
def test_the_hot_path_in_python_passes_too(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", path],
        cwd=ROOT,
        env={**os.environ, "OTTLA_PURE_PYTHON": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
