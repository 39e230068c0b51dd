"""Runs the stages in order, from the plan to the report, and handles the failure of a stage."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla.validate import session, topic
from ottla.validate.chaos import brokers_of
from ottla.validate.console import Console
from ottla.validate.plan import DidNotFinish, Plan, Unusable, check_client, check_input, check_tiered
from ottla.validate.reasons import innermost, is_full_disk
from ottla.validate.report import ReportFolder, write_html, write_json
from ottla.validate.scratch import MadeFolder, OwnFolder, scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.validate.verdict import Verdict

_ROWS_PER_TASK = 1_000_000
_SECRET = re.compile(
    r"^((?:--[\w-]+=)?[^=]*(?:secret|password|token|access[.]?key|keystore[.]key|jaas)[^=]*=).*", re.IGNORECASE | re.DOTALL
)
"""A setting KEY=VALUE whose value is a secret, perhaps behind the name of its option."""


def run(plan: Plan) -> int:
    """Run. Exit status: 0 if everything holds, 1 if not or if the run did not finish, 2 if it could not begin or a disk got full."""
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
        session.check_master(plan.master)
        check_input(plan)
        with _work_folder(plan, folder.growing):
            pass  # one can be made: Spark takes long to start
        if plan.chaos is not None:
            brokers_of(plan.chaos)
        check_client(plan)
        if plan.input is None:
            check_tiered(plan)
        topic.check(plan)
        topic.check(plan.output)
        console.say(f"Spark {session.pyspark_version()} on {plan.master}, {session.connector()}")
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
        from pyspark.errors import PySparkException

        try:
            with _session(plan, log) as spark:
                try:
                    verdict = stages(spark, plan, folder.growing, console)
                except (PySparkException, Py4JError) as error:  # told while there is a JVM that knows
                    raise _reason(plan, error) from None
            shutil.copyfile(log, folder.growing / "spark.log")
            folder.publish()
        except OSError as error:  # a full disk, a JVM that was killed
            raise _reason(plan, error) from None
    if plan.generates and not plan.keeps_topic and verdict.made_topic:
        for name in plan.topics:
            if verdict.holds:
                _remove_topic(plan, name, console)
            else:
                console.say(f"topic {name} is kept")
    console.result(f"{verdict.text}\nreport: {plan.report / 'report.html'}")
    return 0 if verdict.holds else 1


@contextmanager
def _session(plan: Plan, log: Path) -> Iterator[SparkSession]:
    with scratch_folder() as scratch:
        try:
            spark = session.open_session(plan.master, plan.spark_conf, scratch)
        except Unusable:
            raise
        except Exception as error:  # Spark's gateway raises several kinds, none of which says why
            raise Unusable(session.why_no_session(log, plan.master, error)) from None
        try:
            yield spark
        finally:
            session.close_session(spark)


def stages(spark: SparkSession, plan: Plan, folder: Path, console: Console) -> Verdict:
    """Everything that needs Spark; the report's files are in the folder afterwards. Raises Unusable, DidNotFinish."""
    from ottla.validate.generate import check_producer
    from ottla.validate.sizes import check_producer_limits
    from ottla.validate.source import source_of
    from ottla.validate.transfer import Transfer
    from ottla.validate.verdict import judge
    from ottla.validate.verify import kinds_of

    session.check_conf(spark, plan.spark_conf)
    if plan.generates:
        check_producer(spark, plan)
    source = source_of(spark, plan)
    plan = replace(plan, rows=source.count, record_bytes=source.value_bytes, key_bytes=source.key_bytes)
    if plan.generates:
        check_producer_limits(plan)
    check_tiered(plan)
    if "spark.sql.shuffle.partitions" not in plan.spark_conf:
        few = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        # So that the rows that a task sorts fit into its share of a driver with one gigabyte.
        spark.conf.set("spark.sql.shuffle.partitions", str(max(few, plan.rows // _ROWS_PER_TASK)))
    with _work_folder(plan, folder) as work:
        if "://" in work:
            session.make_folder(spark, work)
        topic.check_transactions(plan)
        where = topic.prepare(plan)
        try:
            output = where if plan.copies is None else topic.prepare(plan.output)
            began = time.monotonic()
            transfer = Transfer(spark, plan, where, output, source, work, console)
            transfer.run()
            console.say(f"{transfer.ingest.rows:,} records read, {time.monotonic() - began:.1f} s; verifying")
            verdict = judge(transfer, folder, _environment(plan, where), console.say)
            write_json(folder, verdict.report)
            write_html(folder, verdict.report, verdict.plots, kinds_of(plan))
        except BaseException as error:
            if where.is_new and not plan.keeps_topic:
                for name in plan.topics:
                    console.say(f"topic {name} is kept")
            if is_full_disk(error):  # said while what filled it is still there
                raise Unusable(_full_disk(plan)) from None
            raise
    return verdict


@contextmanager
def _work_folder(plan: Plan, folder: Path) -> Iterator[str]:
    """A folder for checkpoint and records, removed after the run, or by the next run there; at a URL it stays. Raises Unusable."""
    if plan.work is not None and "://" in plan.work:
        yield f"{plan.work}/{plan.topic}-{time.time_ns()}"
        return
    base = folder if plan.work is None else Path(plan.work)
    with ExitStack() as leaving:
        try:
            leaving.callback(MadeFolder(base).remove)
            own = OwnFolder(base, "ottla-work-")
            leaving.callback(own.remove)
            own.path.chmod(0o755)
        except OSError as error:
            raise Unusable(f"{base}: no checkpoint can be written there: {error.strerror}; name another folder with --work") from None
        yield str(own.path)


def _reason(plan: Plan, error: Exception) -> BaseException:
    """The exception to raise for an error that ended the run."""
    if _was_interrupted(error):  # by a signal to the JVM, too
        return KeyboardInterrupt()
    return Unusable(_full_disk(plan)) if is_full_disk(error) else DidNotFinish(innermost(error))


def _full_disk(plan: Plan) -> str:
    """The folder with the least free space, and advice."""
    options = {plan.report.absolute().parent: "--report", Path(tempfile.gettempdir()): "TMPDIR"}
    local = plan.spark_conf.get("spark.local.dir")
    if local is not None:
        options[Path(local)] = "--spark-conf spark.local.dir"
    if plan.work is not None and "://" not in plan.work:
        options[Path(plan.work)] = "--work"
    folder = min((one for one in options if one.exists()), key=lambda one: shutil.disk_usage(one).free)
    return f"{folder}: no space is left on that disk; make room, or name another folder with {options[folder]}; there is no report"


def _environment(plan: Plan, where: topic.Topic) -> dict[str, str]:
    versions = f"Spark {session.pyspark_version()}, {session.connector()}, Java {session.check_java()}"
    return {
        "command": command_line(sys.argv[1:]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        "versions": f"{versions}, Python {platform.python_version()}",
        "master": plan.master,
        "brokers": plan.bootstrap,
        "topic": f"{where.name}, {where.partitions} partitions",
        "seed": str(plan.seed),
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command for the report, which others may read. Values of keys with names of secrets are hidden, as Spark hides them."""
    return shlex.join(["ottla", *(_SECRET.sub(r"\1[hidden]", each) for each in arguments)])


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether the error happened while a signal ended the run."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _was_interrupted(error.__context__))


def _remove_topic(plan: Plan, name: str, console: Console) -> None:
    try:
        topic.remove(plan, name)
    except ClientError as error:
        console.say(f"ottla: topic {name} is left behind: {error}")
