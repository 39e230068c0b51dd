"""Runs a standalone cluster of Spark: a master and a worker, from the jars in PySpark, on 127.0.0.1."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka import free_ports, process_guard
from tests.support.broker_process import eventually
from tests.support.spark import QUICK_JVM

_STARTS_S = 120.0
_ENDS_S = 20.0
_PACKAGE = "org.apache.spark.deploy"


@contextmanager
def a_standalone_cluster(folder: Path) -> Iterator[str]:
    """The master's spark:// URL. The worker has one core; its executors' logs are in folder/worker/work."""
    port, master_page, worker_page = free_ports(3)
    url = f"spark://127.0.0.1:{port}"
    master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(master_page)]
    worker = ["--host", "127.0.0.1", "--webui-port", str(worker_page), "--cores", "1", "--memory", "1g", url]
    with (
        _daemon(folder / "master", [f"{_PACKAGE}.master.Master", *master], "New state: ALIVE"),
        _daemon(folder / "worker", [f"{_PACKAGE}.worker.Worker", *worker], "Successfully registered with master"),
    ):
        yield url


@contextmanager
def _daemon(folder: Path, command: list[str], ready: str) -> Iterator[None]:
    """A JVM in the folder, once its log says that it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={folder} {QUICK_JVM}",
    }
    path = folder / "log"
    with path.open("wb") as log:
        process = subprocess.Popen(  # spark-class becomes the JVM, so this is its id
            [home / "bin" / "spark-class", *command], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    process_guard().watch(process.pid)

    def said() -> bool:
        text = path.read_text(errors="replace")
        assert process.poll() is None, text
        return ready in text

    try:
        eventually(said, _STARTS_S, ready)
        yield
    finally:
        process_guard().end(process, signal.SIGTERM, _ENDS_S)
