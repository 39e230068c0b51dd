"""Makes folders of a single process, for files of Spark's JVM: blocks, shuffles, unpacked native libraries, artifacts.

They are removed after the run. The folder of a killed process is removed by the next process that makes such a folder there.
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
    """A new folder of this process, which holds the lock in it until `remove` or `rename`."""

    def __init__(self, base: Path, prefix: str) -> None:
        """First removes folders with this prefix in `base` whose processes are gone. Raises OSError."""
        for left in base.glob(f"{prefix}*"):
            _remove_if_left(left)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        self._lock: IO[str] | None = None
        try:
            self._lock = (self.path / "new-lock").open("w")  # Python's children do not inherit it: it is free when this process is gone
            self._lock.write(platform.node())
            self._lock.flush()
            with suppress(OSError):  # on a file system without locks, folders of killed processes stay
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self.path / "new-lock").rename(self.path / _LOCK)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._release()

    def rename(self, place: Path) -> None:
        """Give the complete folder its final name; it no longer belongs to the process. Raises OSError."""
        for name in (_LOCK, "new-lock"):
            (self.path / name).unlink(missing_ok=True)
        self.path.rename(place)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                self._lock.close()


class MadeFolder:
    """A folder that is made, with missing folders above it; `remove` removes those that were made and are empty."""

    def __init__(self, path: Path) -> None:
        """Raises OSError; no folder is made then."""
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
        """Remove the folders that were made, except those in use."""
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
    """Lets the JVM that Spark starts meanwhile run in the folder, with its temporary files there.

    By default Spark's local folders and the native libraries of its codecs follow from java.io.tmpdir. The user's settings, in
    spark-defaults.conf, with `--spark-conf` or in SPARK_SUBMIT_OPTS itself, come later on the JVM's command line and win.
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
    """Remove a folder unless a process holds its lock or is about to, or it is of another user or machine, whose locks may not show."""
    with suppress(OSError, UnicodeDecodeError), (folder / _LOCK).open("r+") as lock:
        if os.fstat(lock.fileno()).st_uid == os.getuid() and lock.read() == platform.node():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
