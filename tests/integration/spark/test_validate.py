"""`ottla validate` as users run it, the rows of a file of theirs, available-now queries, and brokers that fall over meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import Cluster
from ottla.client.topic_admin import all_topics, delete_topics
from ottla.validate.chaos import brokers_of, schedule
from ottla.validate.generate import generate
from ottla.validate.plan import Plan
from ottla.validate.source import source_of
from ottla.validate.topic import prepare
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.certificates import Identity
from tests.support.spark import CONF, Record, deep, make_topic, needs_spark, records_in, skip_if_not_fetched, validated, write
from tests.support.spark_security import SECRETS, secured_in_javas_words, secured_listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

SECONDS = 500
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("CN=authority")


@pytest.fixture(scope="module")
def secured() -> str:
    """The address of the listener with SASL_SSL."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Identity, secured: str) -> Iterator[BrokerProcess]:
    properties = secured_listener(authority, secured)
    with a_broker(tmp_path_factory.mktemp("validate") / "broker", **properties) as running:
        yield running
    assert not [secret for secret in SECRETS if secret in running.log_file.read_text()]


def interrupt(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)  # as a terminal does


def kill_jvm(pid: int) -> None:
    jvm, *_ = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()  # it also asks which Java there is
    os.kill(int(jvm), signal.SIGKILL)


def ottla(folder: Path, *arguments: str, when: str = "", then: Callable[[int], None] = interrupt) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, somewhere else than in the checkout; do `then` to it when it has said `when`."""
    command = [sys.executable, "-m", "ottla", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": "/nowhere/python"}  # executors may have none
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment, cwd=folder, start_new_session=True) as process:
        assert process.stderr is not None
        said = []
        if when:
            while (line := process.stderr.readline()) and when not in line:
                said.append(line)
            then(process.pid)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, "".join(said) + err)


def validate(
    folder: Path, bootstrap: str, *arguments: str, when: str = "", then: Callable[[int], None] = interrupt
) -> subprocess.CompletedProcess[str]:
    conf = [f"--spark-conf={name}={value}" for name, value in CONF.items()]
    options = ["-b", bootstrap, "--master", "local[2]", "--report", "report", *conf, *arguments]
    done = ottla(folder, "validate", *options, when=when, then=then)
    skip_if_not_fetched(done.stderr)
    return done


def test_the_help_needs_neither_java_nor_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ottla", "validate", "--help"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    for option in (
        "--bootstrap",
        "--rows",
        "--partitions",
        "--record-bytes",
        "--codec",
        "--acks",
        "--master",
        "--mode",
        "--report",
        "--chaos",
    ):
        assert option in done.stdout
    assert not re.search(r"\b(pyspark|matplotlib)\b", done.stderr)


@deep
def test_the_command_leaves_a_report_and_no_topic_over_sasl_ssl(
    broker: BrokerProcess, secured: str, authority: Identity, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = secured_in_javas_words(authority, tmp_path_factory.mktemp("client") / "words")
    rows = ("--rows", "3000", "--codec", "lz4", "--record-bytes", "200", "--partitions", "2")
    done = validate(tmp_path, secured, *rows, "--command-config", str(config))
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        "Everything holds: 3,000 rows came through, once, whole and in order",
        "report: report/report.html",
    ]
    assert "3,000 records read" in done.stderr
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "report").rglob("*") if path.is_file())
    assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr + written]
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["holds"]
    assert report["records"] == 3000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report"]
    assert not list((tmp_path / "report").glob("*work*"))
    with Cluster(broker.bootstrap) as cluster:
        assert not [topic.name for topic in all_topics(cluster) if (topic.name or "").startswith("ottla-validate")]


@deep
def test_a_run_that_is_interrupted_says_so_and_leaves_no_report(broker: BrokerProcess, tmp_path: Path) -> None:
    done = validate(tmp_path, broker.bootstrap, "--rows", "1000", "--partitions", "1", when="verifying")
    assert done.returncode == 130, done
    kept, interrupted = done.stderr.splitlines()[-2:]
    assert re.fullmatch(r"topic ottla-validate-\S+ is kept", kept)
    assert interrupted == "ottla: interrupted; there is no report"
    assert not done.stdout
    assert not list(tmp_path.iterdir())
    with Cluster(broker.bootstrap) as cluster:
        delete_topics(cluster, [kept.split()[1]])


def said_by(file: Path) -> bytes:
    """What stands in a file of a process that may be gone."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_ctrl_c_while_spark_starts_leaves_no_jvm(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark knows nothing of it yet: here it looks for the connector."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    def in_the_middle(pid: int) -> None:
        eventually(lambda: any(b"loading settings" in said_by(log) for log in temporary.glob("ottla-validate-*.log")), SECONDS, "the JVM")
        interrupt(pid)

    done = validate(tmp_path, broker.bootstrap, "--rows", "1000", when=" on local[2]", then=in_the_middle)
    assert done.returncode == 130, done
    assert not [path for path in Path("/proc").glob("[0-9]*") if str(temporary).encode() in said_by(path / "cmdline")]
    assert list(tmp_path.rglob("*")) == [temporary]


@deep
def test_a_jvm_that_is_killed_ends_the_run_and_leaves_nothing(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    done = validate(tmp_path, broker.bootstrap, "--rows", "1000", "--topic", "jvm", when="verifying", then=kill_jvm)
    assert done.returncode == 1, done
    (log,) = (tmp_path / "temporary").iterdir()
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ottla: "))
    assert line.endswith(f"; there is no report; Spark's log: {log}")
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


@deep
def test_available_now_queries_read_an_existing_topic_from_where_it_ended(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, "existing", partitions=2, message_timestamp_type="LogAppendTime")
    write(broker.bootstrap, "existing", [[Record(0, n, 1, b"k", b"of yore") for n in range(100)], []])
    asked = Plan(
        broker.bootstrap, "existing", 2_000, tmp_path / "report", partitions=2, mode="batch", max_offsets_per_trigger=500, acks="1"
    )
    report = validated(spark, asked)
    assert report["holds"], report["examples"]
    assert report["records"] == 2_000
    assert spark.read.parquet(str(tmp_path / "report" / "batches")).count() >= 4


@deep
def test_the_rows_of_a_parquet_file_keep_keys_and_payloads(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    rows = spark.range(0, 300, 1, 3).selectExpr("concat('customer-', id % 7) AS key", "repeat(cast(id as string), 10) AS value")
    orders = tmp_path / "orders*[2026]{?}\\"  # to Spark, a pattern
    rows.write.parquet(str(orders))
    report = validated(spark, Plan(broker.bootstrap, "orders", 1, tmp_path / "[1]" / "report", partitions=3, input=orders))
    assert report["holds"], report["examples"]
    written = [record for partition in records_in(broker.bootstrap, "orders", 3) for record in partition]
    expected = {(row.key.encode(), row.value.encode()) for row in rows.collect()}
    assert {(record.key, record.value[52:]) for record in written} == expected


def test_the_rows_of_a_csv_file_become_json(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,age.`now`\nana,31\nbo,\n", encoding="utf-8")
    plan = Plan(broker.bootstrap, "people", 1, tmp_path / "report", partitions=1, input=tmp_path / "people.csv", key_column="name")
    prepare(plan)
    generate(source_of(spark, plan), plan)
    (records,) = records_in(broker.bootstrap, "people", 1)
    assert [(record.key, json.loads(record.value[52:])) for record in records] == [
        (b"ana", {"name": "ana", "age.`now`": "31"}),
        (b"bo", {"name": "bo"}),
    ]


def test_the_same_seed_gives_the_same_faults() -> None:
    first, second, other = ([step for step, _ in zip(schedule(seed, 3, 6.0), range(20), strict=False)] for seed in (7, 7, 8))
    assert first == second != other
    assert {step.fault for step in first} == {"kill", "stop", "pause"}
    assert {step.place for step in first} == {0, 1, 2}


def test_ctrl_c_does_not_reach_the_commands_that_undo_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal tells every process of its session, and a broker would stay paused. Here the ids are those of the command's session."""
    program = tmp_path / "python"
    text = '{"brokers": [{"id": %s}, {"id": %s}]}'
    program.write_text(f"#!/bin/sh\nsession=$(cut -d' ' -f6 /proc/$$/stat)\nprintf '{text}' $session $session\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    session, _ = brokers_of(tmp_path)
    assert session != os.getsid(0)


def test_chaos_needs_a_cluster(broker: BrokerProcess, tmp_path: Path) -> None:
    done = validate(tmp_path, broker.bootstrap, "--rows", "100", "--chaos", "nowhere")
    assert done.returncode == 2, done
    assert "nowhere: there is no cluster of at least two brokers there" in done.stderr
    assert not list(tmp_path.iterdir())
