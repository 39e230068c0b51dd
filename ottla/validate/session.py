"""Opens the Spark session with the Kafka connector, and redirects Spark's own output to a file, so that the console has only ours.

The connector is fetched through `spark.jars.packages` into our own cache folder, from Maven Central alone: a local Maven repository that
has a POM without its JAR would make Spark's resolver give up. `spark.jars.ivySettings` sets another mirror.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.validate.plan import Unusable
from ottla.validate.reasons import innermost
from ottla.validate.scratch import jvm_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}/cache" resolutionCacheDir="{cache}/resolution"/>
  <timeout-constraints><timeout-constraint name="patience" connectionTimeout="10000" readTimeout="30000"/></timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" root="https://repo1.maven.org/maven2/" timeoutConstraint="patience"/>
  </resolvers>
</ivysettings>
"""
_NOT_FETCHED = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "download failed", "FAILED DOWNLOADS")
_MASTERS = re.compile(r"local|local\[(\*|[1-9]\d*)(, *\d+)?\]|local-cluster\[.+\]|(spark|k8s)://.+|yarn")
_JAVA_WANTED = {4: 17, 3: 8}
_JAVA_S = 20.0
_MASTER_S = 5.0
_ANSWER_S = 20.0
_NO_SUCH_FILE = b"/files/-"
_ASKS = struct.pack(">qBi", 13 + len(_NO_SUCH_FILE), 6, len(_NO_SUCH_FILE)) + _NO_SUCH_FILE
"""A StreamRequest of Spark's transport: the only request that a master answers without a line in its log."""
_JVM_ENDS_S = 60.0
_JVM_TERMINATES_S = 10.0


def pyspark_version() -> str:
    """The installed PySpark. Raises Unusable."""
    try:
        import pyspark
    except ImportError:
        raise Unusable("PySpark is not installed; pip install 'ottla[spark]'") from None
    return str(pyspark.__version__)


def connector() -> str:
    """The Maven coordinates of the Kafka connector that fits the installed PySpark and its Scala."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    library = next(iter(sorted(jars.glob("scala-library-*.jar"))), None)
    found = re.search(r"scala-library-(\d+\.\d+)", library.name) if library else None
    return f"org.apache.spark:spark-sql-kafka-0-10_{found.group(1) if found else '2.13'}:{pyspark.__version__}"


def java_wanted() -> int:
    """The oldest Java with which the installed PySpark runs. Raises Unusable when there is no PySpark."""
    return _JAVA_WANTED.get(int(pyspark_version().partition(".")[0]), 17)


def check_java() -> str:
    """The version of the Java that Spark will use. Raises Unusable when it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    needed = java_wanted()
    if shutil.which(program) is None:
        where = f"{program} (from JAVA_HOME) is not there" if home else "there is no java on the PATH"
        raise Unusable(f"{where}; Spark {pyspark_version()} needs Java {needed} or newer")
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, errors="replace", check=False, timeout=_JAVA_S)
        said = done.stderr + done.stdout if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):  # a program of another machine, or one that waits for something
        said = ""
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said)
    if found is None:
        raise Unusable(f"`{program} -version` does not say which Java it is; Spark {pyspark_version()} needs Java {needed} or newer")
    if int(found.group(1)) < needed:
        raise Unusable(f"{program} is Java {found.group(1)}; Spark {pyspark_version()} needs Java {needed} or newer")
    return found.group(0).removeprefix("version ").strip('"')


def local_cores(master: str) -> int | None:
    """The number of cores that a local master uses; None for a cluster."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master)
    if found is None:
        return None
    return len(os.sched_getaffinity(0)) if found.group(1) == "*" else int(found.group(1) or 1)


def check_master(master: str) -> None:
    """Check the master's URL, and that a standalone master answers; Spark itself would try for one or two minutes. Raises Unusable."""
    if _MASTERS.fullmatch(master) is None:
        raise Unusable(f"{master!r} is no Spark master; write local[*] or spark://host:port")
    if not master.startswith("spark://"):
        return
    addresses = master.removeprefix("spark://").split(",")
    silent = False
    for address in addresses:
        host, _, port = address.rpartition(":")
        with (
            suppress(OSError, ValueError),
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_S / len(addresses)) as connection,
        ):
            if _answers(connection, _ANSWER_S / len(addresses)):
                return
            silent = True
    if silent:
        raise Unusable(f"what listens at {master} does not answer as a Spark master does; is it stuck, or is it something else?")
    raise Unusable(f"there is no Spark master at {master}")


def _answers(connection: socket.socket, patience_s: float) -> bool:
    """Whether there is an answer, or the connection ends, as with a master that wants TLS or a secret, which Spark can handle."""
    connection.settimeout(patience_s)
    try:
        connection.sendall(_ASKS)
        return not connection.recv(5).startswith(b"HTTP/")  # the master's page, or another's
    except TimeoutError:
        return False
    except OSError:
        return True


def open_session(master: str, conf: Mapping[str, str], scratch: Path) -> SparkSession:
    """A session with the Kafka connector, in a JVM whose temporary files are in `scratch`. Call it in the main thread.

    Raises Unusable when the cache for the connector cannot be made, and Spark's exceptions when Spark does not start.
    """
    from pyspark.sql import SparkSession

    cache = cache_folder()
    settings = {
        "spark.app.name": "ottla validate",
        "spark.jars.packages": connector(),
        "spark.jars.ivy": str(cache),
        "spark.jars.ivySettings": str(_ivy_settings(cache)),
        "spark.scheduler.mode": "FAIR",  # else the stage that began first would keep all cores and latency would mean nothing
        "spark.task.maxFailures": "1",  # a task that writes again after a failure duplicates records: not the broker's fault
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.csv.parser.columnPruning.enabled": "false",  # else a row with too few or too many columns is not seen to be one
        "spark.sql.ansi.enabled": "false",  # in every version of Spark, what is no number in a broken record becomes null
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    cores = local_cores(master)
    if cores is not None:
        settings |= {
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    elif master.startswith(("spark://", "local-cluster[")):
        # Leftovers of a killed executor stay where its worker keeps the log. Options on the JVM's command line win over these.
        settings["spark.executorEnv.JAVA_TOOL_OPTIONS"] = "-Djava.io.tmpdir=."
    builder = SparkSession.builder.master(master)
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with _ended_on_failure():
        try:
            with _alone(cache), jvm_in(scratch):
                spark = builder.getOrCreate()
        except BaseException:
            _end_jvm()
            raise
    # PySpark's own handler calls the JVM, perhaps in the middle of another call, and fails instead of interrupting.
    signal.signal(signal.SIGINT, on_interrupt)
    spark.sparkContext.setLogLevel("WARN")
    return spark


def check_conf(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Check that Spark accepts those settings that can be set at any time; Spark itself checks a value on first use. Raises Unusable."""
    from pyspark.errors import IllegalArgumentException

    for name, value in conf.items():
        if spark.conf.isModifiable(name):
            try:
                spark.conf.set(name, value)
            except IllegalArgumentException as error:
                raise Unusable(f"--spark-conf {name}={value}: {innermost(error)}") from None


def make_folder(spark: SparkSession, url: str) -> None:
    """Make a folder through the Hadoop file system that the URL names. Raises Unusable."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    jvm, java_context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    try:
        folder = jvm.org.apache.hadoop.fs.Path(url)
        folder.getFileSystem(java_context.hadoopConfiguration()).mkdirs(folder)
    except (Py4JJavaError, PySparkException) as error:
        raise Unusable(f"{url}: no checkpoint can be written there: {innermost(error)}; name another folder with --work") from None


def close_session(spark: SparkSession) -> None:
    """Stop the session and wait until its JVM is gone, which PySpark keeps until Python ends. Both may be gone already."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()
    _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_JVM_ENDS_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _ended_on_failure() -> Iterator[None]:
    """Ends the JVM that PySpark starts meanwhile if the start is interrupted or fails.

    PySpark knows the JVM only once it is up, and removes the folder in which the JVM should write its port. A JVM that does not find the
    folder loses its main thread, which would notice the end of Python, and stays forever.
    """
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.append(self)  # before it is there: an interrupt may come in between
            super().__init__(*arguments, **options)

    java_gateway.Popen = Noted  # type: ignore[attr-defined,assignment]  # the name by which it starts the JVM
    try:
        yield
    except BaseException:
        for jvm in started:
            _end(jvm)
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]  # as above


def _end(jvm: subprocess.Popen[bytes]) -> None:
    jvm.terminate()
    try:
        jvm.wait(_JVM_TERMINATES_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


@contextmanager
def talk_to(path: Path) -> Iterator[tuple[int, int]]:
    """Redirects both streams of this process and its children to the file; gives the descriptors of the real ones."""
    sys.stdout.flush()
    real = os.dup(1), os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield real
    finally:
        sys.stdout.flush()
        for descriptor, stream in zip(real, (1, 2), strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)


def why_no_session(log: Path, master: str, error: BaseException) -> str:
    """One line about a session that did not start, from Spark's output."""
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if any(sign in said for sign in _NOT_FETCHED):
        return (
            f"the Kafka connector {connector()} could not be fetched from Maven Central; connect this machine, or give --spark-conf "
            "spark.jars.ivySettings=FILE for a mirror"
        )
    if "All masters are unresponsive" in said or "Failed to connect to master" in said:
        return f"there is no Spark master at {master}"
    if "Application has been killed. Reason: Master removed our application" in said:
        return f"{master} could start no executor; the logs of the master and its workers say why"
    last = next((line.strip() for line in reversed(said.splitlines()) if re.search(r"^(?!\s*at ).*(Exception|Error)", line)), "")
    return f"Spark does not start: {last or str(error).strip().splitlines()[0]}"


def cache_folder() -> Path:
    """The folder with the connector's jars, made if need be. Raises Unusable."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("OTTLA_IVY_CACHE") or base / "ottla" / "ivy")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"{folder}: the cache for Spark's connector cannot be made: {error.strerror}; set OTTLA_IVY_CACHE") from None
    return folder.absolute()


def _ivy_settings(cache: Path) -> Path:
    path, text = cache / "ivysettings.xml", _IVY_SETTINGS.format(cache=cache)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Ivy's cache has no lock of its own."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
