"""Apache Kafka's own command line tools say of this broker what they say of Apache Kafka.

Every command runs against both at the same time; exit status, output and complaints are compared, and only what matters is repeated here.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from ottla.protocol.records.compression import CompressionCodec
from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.clients import CODECS
from tests.support.java_pair import (
    API_VERSIONS,
    CONFIGS,
    CONSUMER,
    DELETE_RECORDS,
    ELECTION,
    GROUPS,
    LOG_DIRS,
    OFFSETS,
    PERFORMANCE,
    PRODUCER,
    TOPICS,
    Pair,
)
from tests.support.segment_files import batch_headers

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]  # dozens of JVMs, on a busy machine seconds each


def test_topics_are_made_listed_described_altered_and_deleted(pair: Pair) -> None:
    create = ("--create", "--topic", "topics", "--partitions", "3", "--config", "retention.ms=1000000")
    assert pair.same(TOPICS, *create).output == "Created topic topics.\n"
    assert pair.same(TOPICS, "--create", "--topic", "topics", "--partitions", "3").status == 1
    assert pair.same(TOPICS, "--create", "--topic", "bad", "--config", "retention.ms=soon").status == 1
    assert pair.same(TOPICS, "--create", "--topic", "bad", "--replication-factor", "2").status == 1
    pair.same(TOPICS, "--alter", "--topic", "topics", "--partitions", "4")
    assert pair.same(TOPICS, "--alter", "--topic", "topics", "--partitions", "2").status == 1
    described = pair.same(TOPICS, "--describe", "--topic", "topics").output
    assert "PartitionCount: 4" in described
    assert "retention.ms=1000000" in described
    assert pair.same(TOPICS, "--list", "--exclude-internal", "--topic", "topics").output == "topics\n"
    for said in pair.run(TOPICS, "--list", "--exclude-internal"):  # other modules make topics at only one of both
        listed = said.output.splitlines()
        assert "topics" in listed
        assert listed == sorted(listed)
        assert not [name for name in listed if name.startswith("__")]

    assert pair.same(TOPICS, "--delete", "--topic", "topics").status == 0
    assert pair.same(TOPICS, "--describe", "--topic", "topics").status == 1


def test_configurations_of_topics_are_altered_and_described(pair: Pair) -> None:
    pair.same(TOPICS, "--create", "--topic", "configured", "--config", "retention.ms=1000000")
    entity = ("--entity-type", "topics", "--entity-name", "configured")

    policies = "cleanup.policy=[compact,delete],segment.bytes=100000"
    pair.same(CONFIGS, "--alter", *entity, "--add-config", policies, "--delete-config", "retention.ms")
    described = pair.same(CONFIGS, "--describe", *entity).output
    assert "cleanup.policy=compact,delete" in described
    assert "retention.ms" not in described
    assert "segment.bytes=100000" in pair.same(CONFIGS, "--describe", "--all", *entity).output
    assert pair.same(CONFIGS, "--alter", *entity, "--add-config", "segment.bytes=1").status == 1
    assert pair.same(CONFIGS, "--alter", *entity, "--add-config", "no.such.key=1").status == 1


def test_configurations_of_brokers_are_altered_and_described(pair: Pair) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "0")
    every = ("--entity-type", "brokers", "--entity-default")

    pair.same(CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=99999000")
    pair.same(CONFIGS, "--alter", *one, "--add-config", "num.io.threads=6,log.retention.ms=88888000")
    described = pair.same(CONFIGS, "--describe", *one).output
    assert "num.io.threads=6" in described
    assert "log.retention.ms=88888000" in described
    assert pair.same(CONFIGS, "--alter", *one, "--add-config", "broker.id=4").status == 1
    assert pair.same(CONFIGS, "--alter", *one, "--add-config", "num.io.threads=1000").status == 1
    pair.same(CONFIGS, "--alter", *one, "--delete-config", "num.io.threads,log.retention.ms")
    pair.same(CONFIGS, "--alter", *every, "--delete-config", "log.retention.ms")
    pair.same(CONFIGS, "--describe", *one)


def test_all_configurations_of_a_broker_are_described_alike(pair: Pair) -> None:
    ours, theirs = pair.run(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0")

    by_place = ("zookeeper.connect=", "zookeeper.connection.timeout.ms=", "log.dirs=", "log.dir=", "listeners=", "advertised.listeners=")
    # A broker without ZooKeeper is alone, and waits for no second member of a group.
    one_replica = re.compile(r"DEFAULT_CONFIG:(\S*(?:replication\.factor|log\.min\.isr))=[23]")
    at_once = re.compile(r"DEFAULT_CONFIG:(group\.initial\.rebalance\.delay\.ms)=3000")
    told = [
        at_once.sub(r"DEFAULT_CONFIG:\1=0", one_replica.sub(r"DEFAULT_CONFIG:\1=1", said.output)).splitlines() for said in (ours, theirs)
    ]
    lines = [[line for line in lines if not line.strip().startswith(by_place)] for lines in told]
    assert lines[0] == lines[1]
    assert len(lines[0]) > 200


def test_what_a_console_writes_another_reads(pair: Pair) -> None:
    parse = ("--property", "parse.key=true", "--property", "key.separator=:", "--property", "parse.headers=true")
    lines = "".join(f"h:{number}\tkey{number}:value{number}\n" for number in range(20))
    show = ("--property", "print.key=true", "--property", "print.headers=true", "--property", "print.offset=true")
    pair.same(TOPICS, "--create", "--topic", "console")

    pair.same(PRODUCER, "--topic", "console", *parse, "--compression-codec", "lz4", input=lines)

    read = pair.same(CONSUMER, "--topic", "console", "--from-beginning", "--max-messages", "20", *show).output.splitlines()
    assert read == [f"Offset:{number}\th:{number}\tkey{number}\tvalue{number}" for number in range(20)]
    part = ("--partition", "0", "--offset", "15", "--max-messages", "5", "--isolation-level", "read_committed")
    assert pair.same(CONSUMER, "--topic", "console", *part).output.split() == [f"value{number}" for number in range(15, 20)]

    assert pair.same(OFFSETS, "--topic", "console").output == "console:0:20\n"
    assert pair.same(OFFSETS, "--topic", "console", "--time", "-2").output == "console:0:0\n"
    assert pair.same(OFFSETS, "--topic", "console", "--time", "1000").output == "console:0:0\n"


def test_every_codec_carries_headers_nulls_and_a_megabyte_and_is_found_by_time(pair: Pair) -> None:
    parse = ("--property", "parse.key=true", "--property", "key.separator=:", "--property", "parse.headers=true")
    write = (*parse, "--property", "null.marker=null", "--producer-property", "max.request.size=2000000")
    show = ("--property", "print.key=true", "--property", "print.headers=true")
    pair.same(TOPICS, "--create", "--topic", "codecs", "--config", "max.message.bytes=2000000")
    lines: list[str] = []
    for codec in CODECS:
        since = str(int(time.time() * 1000))
        new = [f"h:{codec},g:null\tkey:value", "h:1\tnull:of nobody", "h:1\tnothing:null", f"h:1\tlarge:{codec * 200_000}"]
        pair.same(PRODUCER, "--topic", "codecs", *write, "--compression-codec", codec, input="\n".join(new) + "\n")
        assert pair.same(OFFSETS, "--topic", "codecs", "--time", since).output == f"codecs:0:{len(lines)}\n"
        lines += new

    read = pair.same(CONSUMER, "--topic", "codecs", "--from-beginning", "--max-messages", str(len(lines)), *show).output

    assert read.splitlines() == ["\t".join((headers, *rest.split(":"))) for headers, rest in (line.split("\t") for line in lines)]
    used = {header.compression_codec for header in batch_headers(pair.ours.data / "codecs-0")}
    assert used == {codec.value for codec in CompressionCodec}


def test_records_are_deleted_and_directories_described(pair: Pair, tmp_path: Path) -> None:
    pair.same(TOPICS, "--create", "--topic", "deleted")
    pair.same(PRODUCER, "--topic", "deleted", input="one\ntwo\nthree\n")
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": "deleted", "partition": 0, "offset": 2}]}))

    assert "low_watermark: 2" in pair.same(DELETE_RECORDS, "--offset-json-file", str(asked)).output
    assert pair.same(OFFSETS, "--topic", "deleted", "--time", "-2").output == "deleted:0:2\n"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": "deleted", "partition": 0, "offset": 9}]}))
    pair.same(DELETE_RECORDS, "--offset-json-file", str(asked))
    # The sizes differ by a byte or two with the milliseconds between the records, which stand in the batches as varints.
    said = pair.run(LOG_DIRS, "--describe", "--topic-list", "deleted")
    assert len({re.sub(r'"size":9\d,', '"size":9,', each.output) for each in said}) == 1


def test_groups_are_listed_described_reset_and_deleted(pair: Pair) -> None:
    pair.same(TOPICS, "--create", "--topic", "grouped")
    pair.same(PRODUCER, "--topic", "grouped", input="one\ntwo\nthree\n")
    group, topic, patient = ("--group", "readers"), ("--topic", "grouped"), ("--timeout", "50000")

    assert pair.same(CONSUMER, *topic, *group, "--from-beginning", "--max-messages", "3").output == "one\ntwo\nthree\n"
    told = pair.run(GROUPS, *patient, "--list", "--state")
    assert [re.findall(r"^readers +(\w+)", said.output, re.MULTILINE) for said in told] == [["Empty"], ["Empty"]]
    assert "3               3               0" in pair.same(GROUPS, *patient, "--describe", *group).output
    assert "Empty" in pair.same(GROUPS, *patient, "--describe", *group, "--state").output
    pair.same(GROUPS, *patient, "--reset-offsets", *group, *topic, "--to-offset", "1", "--execute")
    assert pair.same(CONSUMER, *topic, *group, "--max-messages", "2").output == "two\nthree\n"
    pair.same(GROUPS, *patient, "--delete-offsets", *group, "--topic", "grouped:0")
    pair.same(GROUPS, *patient, "--delete", *group)
    pair.same(CONSUMER, *topic, *group, "--from-beginning", "--max-messages", "1")
    assert "successful" in pair.same(GROUPS, *patient, "--delete", *group).output
    pair.same(GROUPS, *patient, "--describe", *group)


def commit_at_the_end_of(bootstrap: str, topic: str, group: str, records: int) -> None:
    """A new topic with so many records, and a group that has read them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = 0
    while read < records:
        read += len(consumer.consume(records, 1.0))
    consumer.close()


def test_groups_are_listed_in_every_mode(pair: Pair) -> None:
    for bootstrap in (pair.ours.bootstrap, pair.theirs.bootstrap):
        commit_at_the_end_of(bootstrap, "listed", "listed", records=1)
    modes = ("", "--state Empty", "--state Stable,Dead", "--type classic --state Empty", "--type consumer")
    said = [pair.run(GROUPS, "--list", *mode.split()) for mode in modes]
    # Consoles left groups with random names, of which the longest makes the column's width.
    ours, theirs = [[re.findall("^(listed) *(.*)", each.output, re.MULTILINE) for each in of_one] for of_one in zip(*said, strict=True)]
    assert ours == theirs
    assert [bool(lines) for lines in ours] == [True, True, False, True, False]


def test_groups_are_administered_in_every_mode(pair: Pair, tmp_path: Path) -> None:
    for bootstrap in (pair.ours.bootstrap, pair.theirs.bootstrap):
        commit_at_the_end_of(bootstrap, "modes", "m", records=4)
    plan = tmp_path / "plan.csv"
    plan.write_text("modes,0,1\n")
    group = ("--group", "m")
    reset = (GROUPS, "--reset-offsets", *group, "--topic", "modes")
    modes = {
        "--to-earliest": "0",
        "--to-latest": "4",
        "--to-current": "4",
        "--to-offset 2": "2",
        "--to-offset 99": "4",
        "--shift-by -3": "1",
        "--shift-by 99": "4",
        "--to-datetime 2020-01-01T00:00:00.000": "0",
        "--by-duration PT1H": "0",
        f"--from-file {plan}": "1",
    }
    said = pair.same_each(
        *((*reset, *mode.split(), "--dry-run") for mode in modes),
        (*reset, "--to-offset", "3", "--export", "--dry-run"),
        (GROUPS, "--reset-offsets", *group, "--topic", "modes:0", "--to-offset", "3", "--execute"),
        (GROUPS, "--reset-offsets", *group, "--all-topics", "--shift-by", "-1", "--execute"),
        (GROUPS, "--reset-offsets", "--group", "nobody", "--topic", "modes", "--to-earliest", "--dry-run"),
        (GROUPS, "--reset-offsets", *group, "--topic", "no-such-topic", "--to-earliest", "--dry-run"),
        (GROUPS, "--describe", *group),
        (GROUPS, "--describe", *group, "--offsets", "--verbose"),
        (GROUPS, "--describe", *group, "--members", "--verbose"),
        (GROUPS, "--describe", *group, "--state", "--verbose"),
        (GROUPS, "--describe", "--group", "nobody"),
        (GROUPS, "--delete-offsets", *group, "--topic", "modes:0"),
        (GROUPS, "--delete-offsets", *group, "--topic", "no-such-topic"),
        (GROUPS, "--delete-offsets", "--group", "nobody", "--topic", "modes"),
        (GROUPS, "--delete", *group, "--group", "nobody"),
    )
    for (mode, offset), shown in zip(modes.items(), said, strict=False):
        assert re.search(rf"m +modes +0 +{offset}$", shown.output), (mode, shown)


@contextmanager
def a_member(bootstrap: str, topic: str, group: str) -> Iterator[None]:
    """A static member that reads the topic meanwhile, and is heard of by a thread of its client."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": "here",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 60_000,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    while not consumer.consume(1, 1.0):
        pass
    consumer.commit(asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


def test_a_group_with_members_is_described_and_keeps_its_offsets(pair: Pair) -> None:
    patient = ("--timeout", "50000")
    with ExitStack() as members:
        for bootstrap in (pair.ours.bootstrap, pair.theirs.bootstrap):
            commit_at_the_end_of(bootstrap, "alive", "alive", records=3)
            members.enter_context(a_member(bootstrap, "alive", "alive2"))
        group = ("--group", "alive2")
        said = pair.same_each(
            (GROUPS, *patient, "--describe", *group),
            (GROUPS, *patient, "--describe", *group, "--offsets", "--verbose"),
            (GROUPS, *patient, "--describe", *group, "--members"),
            (GROUPS, *patient, "--describe", *group, "--members", "--verbose"),
            (GROUPS, *patient, "--describe", *group, "--state"),
            (GROUPS, *patient, "--describe", *group, "--group", "alive", "--state"),
            (GROUPS, *patient, "--reset-offsets", *group, "--topic", "alive", "--to-earliest", "--execute"),
            (GROUPS, *patient, "--reset-offsets", *group, "--group", "alive", "--topic", "alive", "--to-earliest", "--dry-run"),
            (GROUPS, *patient, "--delete-offsets", *group, "--topic", "alive"),
            (GROUPS, *patient, "--delete", *group),
        )
    assert "here-UUID" in said[2].output
    assert re.search(r"reader +1 +\(0\)$", said[3].output, re.MULTILINE)
    assert "Stable" in said[4].output
    assert "GroupNotEmptyException" in said[9].output


def test_offsets_and_topics_are_asked_for_in_every_mode(pair: Pair) -> None:
    described = (TOPICS, "--describe", "--topic", "asked-a")
    pair.same_each(
        (TOPICS, "--create", "--topic", "asked-a", "--partitions", "3"),
        (OFFSETS, "--topic", "asked-a", "--partitions", "0,2", "--time", "earliest"),
        (OFFSETS, "--topic-partitions", "asked-a:0-1,asked-a:2", "--time", "-2"),
        (OFFSETS, "--topic", "asked-.*", "--exclude-internal-topics", "--time", "earliest"),
        (OFFSETS, "--topic", "no-such-topic"),
        (OFFSETS, "--topic", "asked-a", "--partitions", "9"),
        (*described, "--under-replicated-partitions"),
        (*described, "--unavailable-partitions"),
        (*described, "--under-min-isr-partitions"),
        (*described, "--at-min-isr-partitions"),
        (*described, "--topics-with-overrides"),
        (TOPICS, "--describe", "--topic", "no-such-topic"),
        (TOPICS, "--describe", "--topic", "no-such-topic", "--if-exists"),
        (TOPICS, "--create", "--topic", "asked-a", "--if-not-exists"),
        (TOPICS, "--create", "--topic", "asked-b", "--replica-assignment", "0,0"),
        (TOPICS, "--create", "--topic", "asked-c", "--replica-assignment", "0:7"),
        (TOPICS, "--alter", "--topic", "asked-b", "--partitions", "4", "--replica-assignment", "0,0,0,0"),
        (TOPICS, "--delete", "--topic", "no-such-topic", "--if-exists"),
        (TOPICS, "--delete", "--topic", "asked-b"),
    )


def test_levels_of_loggers_are_changed_and_described(pair: Pair) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "0")
    shown, changed, again, wrong, unknown = (
        run_tool(CONFIGS, "--bootstrap-server", pair.ours.bootstrap, *arguments)
        for arguments in (
            ("--describe", *loggers),
            ("--alter", *loggers, "--add-config", "ottla.broker.server=DEBUG,ottla.storage=WARN"),
            ("--describe", *loggers),
            ("--alter", *loggers, "--add-config", "ottla.broker.server=LOUD"),
            ("--alter", *loggers, "--add-config", "no.such.logger=DEBUG"),
        )
    )
    assert "ottla.broker.server=INFO" in shown.stdout
    assert "Completed updating" in changed.stdout
    assert "ottla.broker.server=DEBUG" in again.stdout
    assert "ottla.storage.manager.log_manager=WARN" in again.stdout
    assert wrong.returncode == unknown.returncode == 1


def test_kafkas_well_known_loggers_are_aliases_for_its_tool(pair: Pair) -> None:
    names = ("kafka.server.KafkaApis", "kafka.controller", "kafka.log.LogCleaner", "state.change.logger", "kafka.request.logger")
    loggers = ("--bootstrap-server", pair.ours.bootstrap, "--entity-type", "broker-loggers", "--entity-name", "0")
    changed = run_tool(CONFIGS, *loggers, "--alter", "--add-config", ",".join(f"{name}=ERROR" for name in names))
    assert "Completed updating" in changed.stdout, changed
    described = run_tool(CONFIGS, *loggers, "--describe").stdout
    assert [name for name in names if f"{name}=ERROR" not in described] == []
    for own in (
        "ottla.broker.handlers",
        "ottla.controller",
        "ottla.storage.cleaner",
        "ottla.controller.state",
        "ottla.broker.metrics.request_log",
    ):
        assert f" {own}=ERROR " in described, own
    unset = run_tool(CONFIGS, *loggers, "--alter", "--delete-config", ",".join(names))
    assert "Completed updating" in unset.stdout, unset


def test_versions_and_elections_are_told(pair: Pair) -> None:
    ours, theirs = pair.run(API_VERSIONS)
    told = [{line.split("(")[0].strip(): line.strip() for line in said.output.splitlines() if "usable" in line} for said in (ours, theirs)]
    assert told[0].items() <= told[1].items()
    assert len(told[0]) > 50

    pair.same(ELECTION, "--election-type", "preferred", "--all-topic-partitions")


@pytest.mark.soak
def test_the_performance_tool_loses_nothing(pair: Pair) -> None:
    records = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    props = (f"bootstrap.servers={pair.ours.bootstrap}", "acks=all", "compression.type=zstd")
    run_tool(TOPICS, "--bootstrap-server", pair.ours.bootstrap, "--create", "--topic", "perf", "--partitions", "1")

    done = run_tool(PERFORMANCE, "--topic", "perf", *records, "--producer-props", *props)

    assert done.stdout.splitlines()[-1].startswith("20000 records sent"), done
    counted = run_tool(OFFSETS, "--bootstrap-server", pair.ours.bootstrap, "--topic", "perf")
    assert counted.stdout == "perf:0:20000\n"
