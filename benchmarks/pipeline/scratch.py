"""Folders that a process has for itself, as for all that Spark's JVM drops: blocks, shuffles, unpacked native libraries, artifacts.

They go when the run is over. A process that was killed cannot remove its folder; the next one that makes such a folder there does.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_LOCK = "lock"


class OwnFolder:
    """A new folder of this process alone, which holds the lock in it until `remove` or `rename`."""

    def __init__(self, base: Path, prefix: str) -> None:
        """Folders with this prefix in `base` whose processes are gone are removed before. Raises OSError."""
        for left in base.glob(f"{prefix}*"):
            _remove_if_left(left)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        self._lock: IO[str] | None = None
        try:
            self._lock = (self.path / "new-lock").open("w")  # Python's children do not inherit it: it is free when this process is gone
            self._lock.write(platform.node())
            self._lock.flush()
            with suppress(OSError):  # on a file system without locks nobody removes what a killed process left
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self.path / "new-lock").rename(self.path / _LOCK)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._let_go()

    def rename(self, place: Path) -> None:
        """It is no longer anybody's, and complete. Raises OSError."""
        for name in (_LOCK, "new-lock"):
            (self.path / name).unlink(missing_ok=True)
        self.path.rename(place)
        self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                self._lock.close()


class MadeFolder:
    """A folder and those above it, made where they were not there; `remove` takes away those that were made and are empty."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and then nothing was made."""
        missing = [one for one in (path, *path.parents) if not one.exists()]
        self._made: list[Path] = []  # the innermost first
        try:
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
                self._made.insert(0, folder)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """What is in use, by whomever, stays."""
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An OwnFolder among the temporary ones. Raises OSError."""
    own = OwnFolder(Path(tempfile.gettempdir()).absolute(), "ottla-spark-")
    try:
        yield own.path
    finally:
        own.remove()


@contextmanager
def jvm_in(folder: Path) -> Iterator[None]:
    """The JVM that Spark starts meanwhile stands in the folder and has its temporary files there.

    Spark's local folders and the native libraries of its codecs follow from java.io.tmpdir where nobody says otherwise. Whatever the user
    says, in spark-defaults.conf, with `--spark-conf` or in SPARK_SUBMIT_OPTS itself, comes later on the JVM's command line and wins.
    """
    here, options = Path.cwd(), os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([shlex.quote(f"-Djava.io.tmpdir={folder}"), *([options] if options else [])])
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        if options is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = options


def _remove_if_left(folder: Path) -> None:
    """Unless a process holds the lock, or is about to, or it is somebody else's, or of another machine, whose locks may not show."""
    with suppress(OSError, UnicodeDecodeError), (folder / _LOCK).open("r+") as lock:
        if os.fstat(lock.fileno()).st_uid == os.getuid() and lock.read() == platform.node():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
