"""Counts views per minute and page with Spark Structured Streaming, beside the group, if PySpark and Java are there.

A session of Spark belongs to the main thread, so it runs in a process of its own. That process prints counts as lines of JSON, and ends
when its standard input is closed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.examples.web_events import SCHEMA, TOPIC
from ottla.validate.plan import Unusable
from ottla.validate.session import check_java, close_session, open_session, pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIGGER = "5 seconds"
_STOP_SECONDS = 90.0


class SparkCounts:
    """`views` are the counts by minute and page; `state` says in a few words how far Spark is."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self.views: dict[tuple[str, str], int] = {}
        self.state = "starts"
        command = [sys.executable, "-m", __name__, bootstrap, str(scratch)]
        # A session of its own: an interrupt at the terminal must not reach the JVM.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def stop(self) -> None:
        """End Spark, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if not line.startswith("{"):
                    continue  # the resolver of Spark's packages prints, too
                told = json.loads(line)
                self.state = told.get("state", self.state)
                self.views |= {(minute, page): count for minute, page, count in told.get("views", ())}


def _tell(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def _take(batch: DataFrame, _: int) -> None:
    _tell(state="counts", views=[[row["minute"], row["page"], row["count"]] for row in batch.collect()])


def _query(spark: Any, bootstrap: str, scratch: str) -> Any:
    from pyspark.sql import functions as fn

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    event = fn.from_json(fn.col("value").cast("string"), SCHEMA).alias("event")
    counts = source.option("startingOffsets", "earliest").load().select(event).select("event.*")
    counts = counts.groupBy(fn.window("at", "1 minute").alias("minute"), "page").count()
    counts = counts.select(fn.date_format("minute.start", "HH:mm").alias("minute"), "page", "count")
    writing = counts.writeStream.outputMode("update").foreachBatch(_take)
    return writing.option("checkpointLocation", f"{scratch}/checkpoint").trigger(processingTime=_TRIGGER).start()


def main() -> None:
    """Count until standard input is closed."""
    bootstrap, scratch = sys.argv[1:]
    closed = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        closed.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        pyspark_version()
        check_java()
        spark = open_session("local[1]", {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m"}, Path(scratch))
    except Unusable as reason:
        _tell(state=f"is not used: {reason}")
        return
    try:
        query = _query(spark, bootstrap, scratch)
        while not closed.wait(1.0) and query.isActive:
            pass
        if not query.isActive:
            _tell(state=f"has ended: {query.exception()}".splitlines()[0])
        query.stop()
    finally:
        close_session(spark)


if __name__ == "__main__":
    main()
