"""A folder of its own for all that Spark's JVM drops beside its work: blocks, shuffles, unpacked native libraries, artifacts.

It goes when the run is over. A process that was killed cannot remove its folder; the next one that needs such a folder does.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "ottla-spark-"
_LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder among the temporary ones; those of processes that are gone are removed before."""
    base = Path(tempfile.gettempdir()).absolute()
    for left in base.glob(f"{_PREFIX}*"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    try:
        with (folder / "new-lock").open("w") as lock:  # Python's children do not inherit it: it is free when this process is gone
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "new-lock").rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    """Unless its process still holds the lock, or is about to, or it is somebody else's."""
    with suppress(OSError), (folder / _LOCK).open("r+") as lock:
        if os.fstat(lock.fileno()).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
