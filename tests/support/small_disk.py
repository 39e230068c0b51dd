"""Mounts a small file system for tests that fill a disk or make it read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def a_small_disk(at: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size (as mount takes it), mounted there. Skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
