"""`ottla validate` called with what cannot work: one line that says why, exit status 2, and no report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.client.cluster import Cluster
from ottla.client.topic_admin import all_topics
from ottla.validate import session
from ottla.validate.plan import DidNotFinish, Plan, Unusable
from ottla.validate.report import ReportFolder
from ottla.validate.run import run
from ottla.validate.topic import check
from tests.support.apache_kafka import free_ports
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.small_disk import a_small_disk
from tests.support.spark import deep, make_topic, needs_spark, validated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

SECONDS = 300


class Ended(NamedTuple):
    """What the command left."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("bad-input") / "broker") as running:
        yield running


def validate(folder: Path, *arguments: str, **environment: str) -> Ended:
    """Run the command with a report folder `folder/report`."""
    command = [sys.executable, "-m", "ottla", "validate", "--report", str(folder / "report"), "--rows", "100", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder, timeout=SECONDS, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_refused(ended: Ended, folder: Path, *says: str) -> None:
    """One line, status 2, nothing left."""
    assert ended.status == 2, ended
    lines = [line for line in ended.err.splitlines() if line.startswith("ottla: ")]
    assert len(lines) == 1, ended
    assert "Traceback" not in ended.err
    for text in says:
        assert text in lines[0]
    assert not ended.out
    assert not [path.name for path in folder.iterdir() if "report" in path.name]


def a_java(folder: Path, says: str) -> str:
    """A JAVA_HOME whose java says that."""
    return a_program(folder, f"#!/bin/sh\necho '{says}' >&2\n")


def a_program(folder: Path, text: str) -> str:
    """A JAVA_HOME with this as its java."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    return str(folder / "jdk")


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    assert_refused(validate(tmp_path, "-b", f"127.0.0.1:{port}"), tmp_path, f"127.0.0.1:{port}")


def test_an_address_that_is_none(tmp_path: Path) -> None:
    assert_refused(validate(tmp_path, "-b", "here:there"), tmp_path, "'here:there' is not an address of a broker")


def test_java_that_is_not_there(tmp_path: Path) -> None:
    ended = validate(tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))
    assert_refused(ended, tmp_path, "nowhere/bin/java (from JAVA_HOME) is not there", f"needs Java {session.java_wanted()} or newer")


def test_java_that_is_too_old(tmp_path: Path) -> None:
    ended = validate(tmp_path, JAVA_HOME=a_java(tmp_path, 'java version "1.7.0_80"'))
    assert_refused(ended, tmp_path, "is Java 7;", f"needs Java {session.java_wanted()} or newer")


def test_java_that_does_not_say_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_JAVA_S", 0.2)
    for name, text in {"foreign": "no program of this machine", "mute": "#!/bin/sh\nexec sleep 60\n", "odd": "#!/bin/sh\nexit 1\n"}.items():
        monkeypatch.setenv("JAVA_HOME", a_program(tmp_path / name, text))
        with pytest.raises(Unusable, match="does not say which Java it is"):
            session.check_java()


def test_pyspark_that_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no pyspark here')\n")
    ended = validate(tmp_path, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[3]}")
    assert_refused(ended, tmp_path, "PySpark is not installed", "ottla[spark]")


def test_a_topic_with_another_number_of_partitions(tmp_path: Path, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "three", partitions=3)
    ended = validate(tmp_path, "-b", broker.bootstrap, "--topic", "three", "--partitions", "4")
    assert_refused(ended, tmp_path, "topic three exists with other settings: it has 3 partitions, not 4")


def test_a_topic_that_may_lose_what_is_acknowledged_when_a_broker_goes(tmp_path: Path, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "loose", partitions=4)
    with pytest.raises(Unusable, match=r"topic loose exists with other settings: its min\.insync\.replicas is 1, not 2"):
        check(Plan(broker.bootstrap, "loose", 100, tmp_path / "report", chaos=tmp_path))


def test_a_topic_that_is_compacted(tmp_path: Path, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "compacted", partitions=4, cleanup_policy="compact")
    assert_refused(validate(tmp_path, "-b", broker.bootstrap, "--topic", "compacted"), tmp_path, "it is compacted")


def test_a_topic_to_verify_that_is_not_there(tmp_path: Path, broker: BrokerProcess) -> None:
    ended = validate(tmp_path, "-b", broker.bootstrap, "--topic", "nothing", "--verify-only")
    assert_refused(ended, tmp_path, "there is no topic nothing to verify")


def test_a_report_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = validate(tmp_path, "--report", str(tmp_path / "file" / "report"))
    assert_refused(ended, tmp_path, "no report can be written there")


def test_a_folder_that_is_there_and_no_report(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("precious")
    ended = validate(tmp_path, "--report", str(tmp_path / "mine"))
    assert_refused(ended, tmp_path, "mine: is there already and is no report")
    assert (tmp_path / "mine" / "diary.txt").read_text() == "precious"


def test_a_folder_with_more_than_a_report_in_it(tmp_path: Path) -> None:
    """Programs of other people write files of that name, too."""
    (tmp_path / "project").mkdir()
    for name in ("report.json", "report.html", "thesis.txt"):
        (tmp_path / "project" / name).write_text("precious")
    ended = validate(tmp_path, "--report", str(tmp_path / "project"))
    assert_refused(ended, tmp_path, "project: is there already and is no report")
    assert len(list((tmp_path / "project").iterdir())) == 3


def test_a_report_replaces_a_report_and_nothing_that_came_meanwhile(tmp_path: Path) -> None:
    for what in ("first", "second"):
        with ReportFolder(tmp_path / "report") as folder:
            for name in ("report.json", "report.html"):
                (folder.growing / name).write_text(what)
            folder.publish()
        assert (tmp_path / "report" / "report.json").read_text() == what
    with ReportFolder(tmp_path / "other") as folder:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "diary.txt").write_text("precious")
        with pytest.raises(DidNotFinish, match="other: is no report"):
            folder.publish()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.*"))] == [
        "other/diary.txt",
        "report/report.html",
        "report/report.json",
    ]


def test_a_topic_of_the_brokers_own(tmp_path: Path, broker: BrokerProcess) -> None:
    ended = validate(tmp_path, "-b", broker.bootstrap, "--topic", "__consumer_offsets")
    assert_refused(ended, tmp_path, "topic __consumer_offsets is the brokers' own")
    with Cluster(broker.bootstrap) as cluster:
        assert "__consumer_offsets" not in {topic.name for topic in all_topics(cluster)}


@pytest.mark.parametrize(
    "arguments", [["--rows", "0"], ["--codec", "rar"], ["--verify-only"], ["--producer", "acks"], ["--key-column", "customer"]]
)
def test_an_option_that_makes_no_sense(tmp_path: Path, arguments: list[str]) -> None:
    ended = validate(tmp_path, *arguments)
    assert ended.status == 2
    assert "Error: " in ended.err


@deep
def test_a_connector_that_cannot_be_fetched(tmp_path: Path, broker: BrokerProcess) -> None:
    settings = tmp_path / "ivy.xml"
    settings.write_text(
        f"<ivysettings><settings defaultResolver='mirror'/><caches defaultCacheDir='{tmp_path}/cache'/><resolvers>"
        f"<ibiblio name='mirror' m2compatible='true' root='http://127.0.0.1:{free_ports(1)[0]}/'/></resolvers></ivysettings>"
    )
    arguments = ["-b", broker.bootstrap, "--master", "local[1]", "--spark-conf", f"spark.jars.ivySettings={settings}"]
    ended = validate(tmp_path, *arguments, OTTLA_IVY_CACHE=str(tmp_path / "ivy"))
    assert_refused(ended, tmp_path, f"the Kafka connector {session.connector()} could not be fetched")


def test_a_master_that_is_none(tmp_path: Path) -> None:
    assert_refused(validate(tmp_path, "--master", "nonsense"), tmp_path, "'nonsense' is no Spark master")
    for master in ("", "local[0]", "local[x]", "spark://"):
        with pytest.raises(Unusable, match="is no Spark master"):
            session.check_master(master)
    for master in ("local", "local[*]", "local[4,2]", "yarn", "k8s://https://host:443"):
        session.check_master(master)


def test_a_cluster_of_executors_that_is_not_there(tmp_path: Path) -> None:
    master = f"spark://127.0.0.1:{free_ports(1)[0]}"
    assert_refused(validate(tmp_path, "--master", master), tmp_path, f"there is no Spark master at {master}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(validate(tmp_path, "--input", "nothing.csv"), tmp_path, "nothing.csv: there is no such file")


def test_a_folder_for_the_checkpoint_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(validate(tmp_path, "--work", str(tmp_path / "file" / "work")), tmp_path, "no checkpoint can be written there")


CSV = {
    "ragged.csv": "name,age\nana,31\nbo\n",
    "short.csv": "id,key,value\n1,k,v\n2,k\n",
    "long.csv": "id,key,value\n1,k,v,w\n2,k,v\n",
    "open.csv": 'name,age\nana,"31\nbo,44\n',
    "lines.csv": 'value\n"say ""hi"" to"\n"ana\nand bo"\n',
    "nothing.csv": "",
    "twice.csv": 'key,"key",value\nk,l,v\n',
    "cases.csv": "id,Key,key\n1,k,l\n",
    "latin.csv": "name,age\nana,31\nrené,44\n",
    **dict.fromkeys(("_hidden.csv", ".hidden.csv", "12:30.csv"), "name,age\nana,31\n"),
    "text.parquet": "no parquet",
}
REFUSED = {
    "arrays": "column value is array<bigint>; it must be text, bytes or a number",
    "ragged.csv": "cannot be read: org.apache.spark.SparkRuntimeException: [MALFORMED_CSV_RECORD]",
}
"""A file of each format -> why."""
OTHERS_REFUSED = {
    "empty": "has 0 rows",
    "text.parquet": "is neither Parquet nor, by its name, CSV",
    "open.csv": "a quote is open at the end of the line 'ana,\"31'; close it, or, for values with line breaks, give",
    "nothing.csv": "has no columns",
    "twice.csv": "twice.csv: has more than one column of the name key; give each a name of its own",
    "_hidden.csv": "Spark reads no file whose name begins with _ or . or has a colon; give it another name",
    "latin.csv": r"latin.csv: is not UTF-8: 'ren\xe9,44'; convert it, as with iconv",
    "struct": "column key is struct<a:bigint>",
    "short.csv": "[MALFORMED_CSV_RECORD] Malformed CSV record: 2,k",
    "long.csv": "[MALFORMED_CSV_RECORD] Malformed CSV record: 1,k,v,w",
    "lines.csv": "a quote is open at the end of the line '\"ana';",
    "cases.csv": "cases.csv: has more than one column of the name Key and key; give each a name of its own",
    "both": "both: has more than one column of the name key; give each a name of its own",
    ".hidden.csv": "Spark reads no file",
    "12:30.csv": "Spark reads no file",
}


def write_parquet(spark: SparkSession, folder: Path) -> None:
    """The tables of `OTHERS_REFUSED`. Each takes seconds."""
    spark.range(0).selectExpr("'k' AS key", "'v' AS value").write.parquet(str(folder / "empty"))
    spark.range(3).selectExpr("named_struct('a', id) AS key", "'v' AS value").write.parquet(str(folder / "struct"))
    spark.conf.set("spark.sql.caseSensitive", "true")
    spark.range(3).selectExpr("id AS key", "id AS KEY").write.parquet(str(folder / "both"))
    spark.conf.unset("spark.sql.caseSensitive")


@deep
@pytest.mark.parametrize("refused", [REFUSED, OTHERS_REFUSED], ids=["each format", "others"])
def test_a_file_whose_schema_cannot_be_used(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, refused: dict[str, str]) -> None:
    spark.range(3).selectExpr("id", "array(id) AS value").write.parquet(str(tmp_path / "arrays"))
    if refused is OTHERS_REFUSED:
        write_parquet(spark, tmp_path)
    for name, text in CSV.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    plan = Plan(broker.bootstrap, "unused", 1, tmp_path / "report")
    for number, (name, why) in enumerate(refused.items()):
        with pytest.raises(Unusable) as reason:
            validated(spark, replace(plan, input=tmp_path / name, report=tmp_path / f"report-{number}"))
        assert why in str(reason.value)
    with pytest.raises(Unusable, match="has no column who for the key; it has id, value"):
        validated(spark, replace(plan, input=tmp_path / "arrays", key_column="who", report=tmp_path / "report-key"))


def test_quotes_in_a_csv_file_are_read_as_they_were_meant(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "quotes.csv"
    file.write_text('value\n"say ""hi"", ana"\n""""""\n5" pipe\n6"" pipe\nback\\\n"a\\"\n')
    from ottla.validate.source import source_of

    plan = Plan("nowhere", "unused", 1, tmp_path / "report", input=file)
    rows = source_of(spark, plan).rows.orderBy("sequence").collect()
    assert [bytes(row.payload).decode() for row in rows] == ['say "hi", ana', '""', '5" pipe', '6"" pipe', "back\\", "a\\"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"linger.ms": "abc"}, "Invalid value abc for configuration linger.ms"),
        ({"batch.size": "-5"}, "Invalid value -5 for configuration batch.size"),
        ({"delivery.timeout.ms": "5"}, "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"),
        ({"partitioner.class": "no.Such"}, "Invalid value no.Such for configuration partitioner.class"),
    ],
)
def test_a_configuration_that_no_producer_takes(spark: SparkSession, tmp_path: Path, settings: dict[str, str], why: str) -> None:
    """Before the topic is made: here is no broker at all."""
    with pytest.raises(Unusable) as reason:
        validated(spark, Plan("127.0.0.1:1", "unused", 100, tmp_path / "report", producer=settings))
    assert str(reason.value).startswith(f"--producer: {why}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"spark_conf": {"spark.sql.shuffle.partitions": "abc"}},
            "--spark-conf spark.sql.shuffle.partitions=abc: spark.sql.shuffle.partitions should be int, but was abc",
        ),
        ({"work": "nosuch://x/y"}, "No FileSystem for scheme "),
    ],
    ids=["spark-conf", "work"],
)
def test_what_spark_would_find_wrong_in_the_middle_of_the_run(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unusable) as reason:
        validated(spark, replace(Plan(broker.bootstrap, "too-late", 100, tmp_path / "report"), **change))
    assert why in str(reason.value)
    with Cluster(broker.bootstrap) as cluster:
        assert "too-late" not in {topic.name for topic in all_topics(cluster)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with a_small_disk(tmp_path / "small", "200k") as disk:
        yield disk


@deep
def test_a_disk_that_gets_full_meanwhile_is_named(
    spark: SparkSession,
    broker: BrokerProcess,
    small_disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(session, "open_session", lambda *_: spark)
    monkeypatch.setattr(session, "close_session", lambda _: None)
    plan = Plan(broker.bootstrap, "bulky", 20_000, tmp_path / "report", work=str(small_disk))
    assert run(plan) == 2
    said = capfd.readouterr()
    *_, kept, why = said.err.splitlines()
    assert kept == "topic bulky is kept"
    assert why == f"ottla: {small_disk}: no space is left on that disk; make room, or name another folder with --work; there is no report"
    assert not said.out
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    assert not list(small_disk.iterdir())
