"""Why a run of the pipeline ended, from what Spark, Py4J and the JVM say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.validate.reasons import innermost, is_full_disk
from ottla.validate.session import why_no_session

AS_PY4J_SAYS = """An error occurred while calling o95.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 1.0
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
"""
REMOVED = """26/01/01 00:00:00 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master removed our application: FAILED
org.apache.spark.SparkException: Exiting due to error from cluster scheduler: Master removed our application: FAILED
\tat org.apache.spark.errors.SparkCoreErrors$.clusterSchedulerError(SparkCoreErrors.scala:295)
"""
BOUND = """java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries
\tat java.base/sun.nio.ch.Net.bindError(Net.java:500)
"""


class Untold(Exception):
    """One whose text the JVM has."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


class Told(Exception):
    """As PySpark makes them of Java's."""

    def __init__(self, text: str, trace: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace = trace
        self._cause = cause


def test_the_cause_is_told_without_what_py4j_puts_around_it() -> None:
    assert innermost(AS_PY4J_SAYS) == ("org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 1.0")
    assert innermost("one\nCaused by: two\n\tat three\nCaused by: four") == "four"


def test_an_exception_whose_text_went_with_the_jvm_can_be_told() -> None:
    assert innermost(Untold()) == "Spark's JVM has ended"
    assert not is_full_disk(Untold())


def test_a_full_disk_is_seen_wherever_it_is_said() -> None:
    deep = Told("TASK_WRITE_FAILED", "at a\nCaused by: java.io.IOException: No space left on device")
    assert is_full_disk(Told("STREAM_FAILED", "at b", deep))
    assert is_full_disk(OSError(28, "No space left on device"))
    assert not is_full_disk(Told("STREAM_FAILED", "at b", Told("TASK_WRITE_FAILED", "at a")))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (REMOVED, "spark://one:7077 could start no executor; the logs of the master and its workers say why"),
        (BOUND, f"Spark does not start: {BOUND.splitlines()[0]}"),
    ],
)
def test_a_session_that_did_not_start_is_explained_by_no_line_of_a_stack(tmp_path: Path, said: str, why: str) -> None:
    (tmp_path / "log").write_text(said)
    assert why_no_session(tmp_path / "log", "spark://one:7077", RuntimeError("it ended")) == why
