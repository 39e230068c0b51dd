"""One run from the plan to the report: the order of the stages, and what happens when one of them cannot go on."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pipeline import session, topic
from benchmarks.pipeline.chaos import brokers_of
from benchmarks.pipeline.console import Console
from benchmarks.pipeline.plan import DidNotFinish, Plan, Unusable
from benchmarks.pipeline.report import ReportFolder, write_html, write_json
from broker.cli.client.errors import ClientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.pipeline.verdict import Verdict


def run(plan: Plan) -> int:
    """Exit status: 0 everything holds, 1 it does not or the run did not finish, 2 it could not begin."""
    descriptor, name = tempfile.mkstemp(prefix="ottla-validate-", suffix=".log")
    os.close(descriptor)
    log = Path(name)
    with session.talk_to(log) as (out, err):
        console = Console(out, err)
        try:
            status = _run(plan, console, log)
        except Unusable as reason:
            console.say(f"ottla: {reason}")
            status = 2
        except DidNotFinish as reason:
            console.say(f"ottla: {reason}; there is no report; Spark's log: {log}")
            return 1
        except KeyboardInterrupt:
            console.say("ottla: interrupted; there is no report")
            status = 130
        except BaseException:
            console.say(f"ottla: the run failed; Spark's log: {log}")
            raise
    log.unlink(missing_ok=True)
    return status


def _run(plan: Plan, console: Console, log: Path) -> int:
    with ReportFolder(plan.report) as folder:
        session.check_java()
        topic.check(plan)
        if plan.chaos is not None:
            brokers_of(plan.chaos)
        console.say(f"Spark {session.pyspark_version()} on {plan.master}, {session.connector()}")
        spark = _spark(plan, log)
        try:
            verdict = stages(spark, plan, folder.growing, console)
        finally:
            spark.stop()
        shutil.copyfile(log, folder.growing / "spark.log")
        folder.publish()
    if plan.generates and not plan.keeps_topic and verdict.holds and verdict.made_topic:
        _remove_topic(plan, console)
    console.result(f"{verdict.text}\nreport: {plan.report / 'report.html'}")
    return 0 if verdict.holds else 1


def _spark(plan: Plan, log: Path) -> SparkSession:
    try:
        return session.open_session(plan.master, plan.spark_conf)
    except Unusable:
        raise
    except Exception as error:  # Spark's gateway raises several kinds, none of which says why
        raise Unusable(session.why_no_session(log, plan.master, error)) from None


def stages(spark: SparkSession, plan: Plan, folder: Path, console: Console) -> Verdict:
    """Everything that needs Spark; the report's files are in the folder afterwards. Raises Unusable, DidNotFinish."""
    from benchmarks.pipeline.source import source_of
    from benchmarks.pipeline.transfer import Transfer
    from benchmarks.pipeline.verdict import judge

    source = source_of(spark, plan)
    plan = replace(plan, rows=source.count)
    where = topic.prepare(plan)
    work = folder / "work"
    began = time.monotonic()
    transfer = Transfer(spark, plan, where, source, plan.work or str(work), console)
    transfer.run()
    console.say(f"{transfer.ingest.rows:,} records read, {time.monotonic() - began:.1f} s; verifying")
    versions = f"Spark {session.pyspark_version()}, {session.connector()}, Java {session.check_java()}"
    environment = {
        "command": shlex.join(["ottla", "validate", *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        "versions": f"{versions}, Python {platform.python_version()}",
        "master": plan.master,
        "brokers": plan.bootstrap,
        "topic": f"{where.name}, {where.partitions} partitions",
        "seed": str(plan.seed),
    }
    verdict = judge(transfer, folder, environment)
    shutil.rmtree(work, ignore_errors=True)
    write_json(folder, verdict.report)
    write_html(folder, verdict.report, verdict.plots)
    return verdict


def _remove_topic(plan: Plan, console: Console) -> None:
    try:
        topic.remove(plan)
    except ClientError as error:
        console.say(f"ottla: topic {plan.topic} is left behind: {error}")
