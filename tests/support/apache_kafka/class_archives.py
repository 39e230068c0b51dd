"""Archives of loaded classes, which save a JVM most of what it does at its start (JEP 350): brokers and tools begin in half the time.

Each is written once into the folder of the jars, by a JVM that does what those that use it will do. `make test` has them written; where
there is none, or one of another Java, JVMs start as they would without. Benchmarks do not use them: Apache's start script does not either.
Spark has none: to write it takes as much processor time as ten starts with it save.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.support.apache_kafka.jars import libs_directory

BROKER = "broker"
TOOLS = "tools"
ZOOKEEPER = "zookeeper"
ZOOKEEPER_ALONE = "zookeeper-alone"
"""That of `tests.support.zookeeper`, whose jars may be others."""
_QUIET = "-Xlog:disable"  # what a JVM has to say of an archive that it cannot use would stand in a tool's output


def archive(name: str, libs: Path | None = None) -> Path:
    """Where the archive of this name is, or will be; without a folder of jars, among those of Apache Kafka."""
    return (libs or libs_directory()) / f"{name}.jsa"


def using(name: str, libs: Path | None = None) -> Sequence[str]:
    """The options of a JVM that is to use an archive; none while it is not there."""
    path = archive(name, libs)
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", _QUIET) if path.exists() else ()


def writing(path: Path) -> Sequence[str]:
    """The options of a JVM that is to write an archive of all classes that it has loaded, when it ends by itself or by SIGTERM."""
    return (f"-XX:ArchiveClassesAtExit={path}", _QUIET)
