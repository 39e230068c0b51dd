"""`ottla topics`, `groups` and `configs` against a broker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import a_broker
from tests.support.command_line import CommandLine


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    directory = tmp_path_factory.mktemp("cli")
    with a_broker(directory, broker_id=7, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1) as broker:
        yield CommandLine(broker.bootstrap)


def test_the_life_of_a_topic(ottla: CommandLine) -> None:
    assert ottla("topics", "create", "life", "-p", "2", "-c", "retention.ms=1234567").out == "life: created\n"
    assert "TOPIC_ALREADY_EXISTS" in ottla("topics", "create", "life", status=1).err
    assert ottla("topics", "create", "life", "--if-not-exists").out == "life: exists already\n"
    assert ["life", "2", "1"] in ottla("topics", "list").rows
    (described,) = ottla("topics", "describe", "life", "--json").json
    assert described["configs"] == {"retention.ms": "1234567"}
    assert [part["leader"] for part in described["partitions"]] == [7, 7]
    assert ottla("topics", "describe", "life").lines[0].endswith("  retention.ms=1234567")
    assert ottla("topics", "describe", "life", "--under-replicated").out == ""
    assert ottla("topics", "alter", "life", "-p", "4").out == "life: 4 partitions\n"
    assert "INVALID_PARTITIONS" in ottla("topics", "alter", "life", "-p", "3", status=1).err
    assert ottla("topics", "delete", "life").out == "life: deleted\n"
    assert "there is no such topic" in ottla("topics", "delete", "life", status=1).err
    assert "'here:there' is not an address of a broker" in ottla("topics", "list", "-b", "here:there", status=2).err
    assert ottla("topics", "delete", "life", "--if-exists").out == "life: does not exist\n"
    assert "there is no such topic" in ottla("topics", "describe", "life", status=1).err


def test_topics_are_named_by_patterns(ottla: CommandLine) -> None:
    ottla("topics", "create", "app-a", "app-b", "other")
    assert [row[0] for row in ottla("topics", "list", "app-*").rows] == ["app-a", "app-b"]
    assert [row[0] for row in ottla("topics", "list", "app-[b-z]", "other").rows] == ["app-b", "other"]
    assert [row[:2] for row in ottla("topics", "offsets", "app-?:0").rows] == [["app-a", "0"], ["app-b", "0"]]
    missing = ottla("topics", "list", "app-a", "missing", status=1)
    assert ([row[0] for row in missing.rows], missing.err) == (["app-a"], "ottla: there is no topic missing\n")
    assert ottla("topics", "list", "x*", status=1).err == "ottla: no topic matches 'x*'\n"
    assert all(not name.startswith("__") for (name, *_) in ottla("topics", "list", "*").rows)
    assert ottla("topics", "delete", "app-*").lines == ["app-a: deleted", "app-b: deleted"]
    assert "Did you mean 'list'?" in ottla("topics", "lst", status=2).err


@pytest.mark.parametrize(
    "arguments", [("create", "huge", "-p", "2147483648"), ("create", "huge", "-r", "32768"), ("alter", "huge", "-p", "99999999999")]
)
def test_a_number_that_no_request_can_carry_is_one_line(ottla: CommandLine, arguments: tuple[str, ...]) -> None:
    (line,) = ottla("topics", *arguments, status=1).err.splitlines()
    assert line.startswith("ottla: a given value does not fit into the request: Create")


def test_replicas_are_placed_by_hand(ottla: CommandLine) -> None:
    ottla("topics", "create", "placed", "--replica-assignment", "7,7,7")
    assert ottla("topics", "elect", "--all").err == "no partition needs an election\n"
    assert len(ottla("topics", "describe", "placed").rows) == 4
    assert "INVALID_REPLICA_ASSIGNMENT" in ottla("topics", "create", "wrong", "--replica-assignment", "7:7", status=1).err
    assert "is not an assignment" in ottla("topics", "create", "wrong", "--replica-assignment", "x", status=2).err
    nobody = ottla("topics", "create", "wrong", "--replica-assignment", "7,8:7", status=1).err
    assert nobody == "ottla: there is no broker 8; alive are 7\n"
    assert ottla("topics", "alter", "placed", "-p", "4", "--replica-assignment", "9", status=1).err == nobody.replace("8", "9")
    assert "there is no such topic" in ottla("topics", "describe", "wrong", status=1).err
    assert ottla("topics", "create", "only-asked", "--validate-only").out == "only-asked: could be created\n"
    assert "there is no such topic" in ottla("topics", "describe", "only-asked", status=1).err


def test_offsets_and_deleted_records(ottla: CommandLine) -> None:
    ottla("topics", "create", "counted", "-p", "2")
    lines = "".join(f'{{"value": "{n}", "partition": 0, "timestamp": {1_700_000_000_000 + n}}}\n' for n in range(10))
    ottla("produce", "--json", "counted", input=lines)
    found = ottla("topics", "offsets", "counted", "--time", "1700000000004", "--time", "max-timestamp")
    assert found.rows == [["counted", "0", "0", "10", "10", "4", "9"], ["counted", "1", "0", "0", "0", "-", "-"]]
    assert ottla("topics", "delete-records", "counted:0", "-o", "3").rows == [["counted", "0", "3"]]
    assert ottla("topics", "delete-records", "counted:0", "-o", "@1700000000006").rows == [["counted", "0", "6"]]
    assert "OFFSET_OUT_OF_RANGE" in ottla("topics", "delete-records", "counted:0", "-o", "99", status=1).err
    assert ottla("topics", "delete-records", "counted", "-o", "end", "--json").json[0]["low_watermark"] == 10
    assert ottla("topics", "offsets", "counted:0", "--json").json[0]["earliest"] == 10


def test_configurations(ottla: CommandLine) -> None:
    ottla("topics", "create", "configured")
    nothing = ottla("configs", "describe", "topic", "configured")
    assert (nothing.rows, nothing.err) == ([], "no dynamic configuration; --all shows static configurations and defaults\n")
    ottla("configs", "alter", "topic", "configured", "--set", "retention.ms=1000000", "--append", "cleanup.policy=compact")
    assert ottla("configs", "describe", "topic", "configured").rows == [
        ["cleanup.policy", "delete,compact", "DYNAMIC_TOPIC_CONFIG"],
        ["retention.ms", "1000000", "DYNAMIC_TOPIC_CONFIG"],
    ]
    ottla("configs", "alter", "topic", "configured", "--delete", "retention.ms", "--subtract", "cleanup.policy=delete")
    assert ottla("configs", "describe", "topic", "configured", "--json").json[0]["value"] == "compact"
    everything = ottla("configs", "describe", "topic", "configured", "--all", "--synonyms").out
    assert "DEFAULT_CONFIG log.retention.bytes=-1" in everything
    assert "INVALID_CONFIG" in ottla("configs", "alter", "topic", "configured", "--set", "retention.ms=soon", status=1).err
    assert "there is no such topic" in ottla("configs", "describe", "topic", "nowhere", status=1).err
    assert "Nothing to change" in ottla("configs", "alter", "topic", "configured", status=2).err


def test_a_pattern_changes_and_shows_the_configurations_of_all_topics_that_match(ottla: CommandLine) -> None:
    ottla("topics", "create", "tuned-1", "tuned-2", "untuned")
    changed = ottla("configs", "alter", "topic", "tuned-*", "--set", "retention.ms=1000000", "--json").json
    assert [each["name"] for each in changed] == ["topic tuned-1", "topic tuned-2"]
    rows = [[topic, "retention.ms", "1000000", "DYNAMIC_TOPIC_CONFIG"] for topic in ("tuned-1", "tuned-2")]
    assert ottla("configs", "describe", "topic", "*tuned*").rows == rows
    described = ottla("configs", "describe", "topic", "tuned-*", "--json").json
    assert [(each["topic"], each["value"]) for each in described] == [("tuned-1", "1000000"), ("tuned-2", "1000000")]
    assert "no topic matches 'nothing-*'" in ottla("configs", "alter", "topic", "nothing-*", "--set", "retention.ms=1", status=1).err


def test_the_key_is_named_that_may_be_meant_by_a_mistyped_one(ottla: CommandLine) -> None:
    ottla("topics", "create", "mistyped")
    meant = "retentoin.ms is no key: did you mean retention.ms?"
    assert meant in ottla("configs", "alter", "topic", "mistyped", "--set", "retentoin.ms=1", status=1).err
    assert meant in ottla("topics", "create", "another", "--config", "retentoin.ms=1", status=1).err
    assert "did you mean" not in ottla("configs", "alter", "topic", "mistyped", "--set", "retention.ms=soon", status=1).err
    of_broker = ottla("configs", "alter", "broker", "default", "--set", "log.retention.mss=1", "--dry-run").err
    assert of_broker == "without effect; log.retention.mss is no key: did you mean log.retention.ms?\n"
    assert ottla("configs", "alter", "broker", "default", "--delete", "log.retention.mss", "--dry-run").err == of_broker
    quota = "producer_byte_rat is no key: did you mean producer_byte_rate?"
    assert quota in ottla("configs", "alter", "user", "alice", "--set", "producer_byte_rat=1", status=1).err
    assert quota in ottla("quotas", "set", "producer_byte_rat=1", "--user", "alice", status=1).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "--json"),
        ("add", "User:a", "User:b", "--operation", "read", "--topic", "t"),
        ("remove", "--all"),
        ("remove", "--all", "--dry-run"),
    ],
)
def test_acls_of_brokers_without_an_authorizer_are_one_line_with_the_keys_to_set(ottla: CommandLine, arguments: tuple[str, ...]) -> None:
    refused = ottla("acls", *arguments, status=1)
    assert (refused.out, refused.err) == (
        "",
        "ottla: the ACLs: the brokers have no authorizer; set authorizer.class.name=kafka.security.authorizer.AclAuthorizer and "
        "super.users in the properties of each, and restart them (SECURITY_DISABLED)\n",
    )


def test_the_deletion_of_a_mistyped_key_that_is_stored_is_not_called_without_effect(ottla: CommandLine) -> None:
    default = ("configs", "alter", "broker", "default")
    ottla(*default, "--set", "log.retention.mss=1")
    deleted = ottla(*default, "--delete", "log.retention.mss")
    assert (deleted.out, deleted.err) == ("broker default: changed\n", "")
    assert "without effect" in ottla(*default, "--delete", "log.retention.mss").err


def test_a_list_without_entries_says_what_is_not_there(ottla: CommandLine) -> None:
    assert ottla("groups", "list", "--state", "Dead").err == "no groups\n"
    assert ottla("topics", "reassign", "list").err == "no moves\n"
    assert ottla("transactions", "list").err == "no transactions\n"
    assert ottla("quotas", "list").err == "no quotas\n"
    assert ottla("transactions", "list", "--json").err == ""
    assert "no topic of this cluster has had tiered storage" in ottla("remote", "list", status=1).err


def test_configurations_of_brokers_and_loggers(ottla: CommandLine) -> None:
    ottla("configs", "alter", "broker", "default", "--set", "log.retention.ms=7654321")
    ottla("configs", "alter", "broker", "7", "--set", "log.cleaner.threads=2", "--validate-only")
    assert ottla("configs", "describe", "broker", "default").rows == [["log.retention.ms", "7654321", "DYNAMIC_DEFAULT_BROKER_CONFIG"]]
    described = ottla("configs", "describe", "broker", "7", "--all", "--key", "log.retention.ms", "--json").json
    assert described[0]["synonyms"][0] == {"name": "log.retention.ms", "value": "7654321", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"}
    assert ottla("configs", "describe", "broker-logger", "7").rows
    ottla("configs", "alter", "group", "shared", "--set", "share.auto.offset.reset=earliest")
    assert ottla("configs", "describe", "group", "shared").rows == [["share.auto.offset.reset", "earliest", "DYNAMIC_GROUP_CONFIG"]]
    assert "INVALID_CONFIG" in ottla("configs", "alter", "group", "shared", "--set", "share.auto.offset.reset=soon", status=1).err
    ottla("configs", "alter", "client-metrics", "all", "--set", "interval.ms=1000", "--set", "metrics=*")
    assert ["interval.ms", "1000", "DYNAMIC_CLIENT_METRICS_CONFIG"] in ottla("configs", "describe", "client-metrics", "all").rows
    ottla("configs", "alter", "client-metrics", "all", "--delete", "interval.ms", "--delete", "metrics")
    assert "there is no broker 8; alive are 7" in ottla("configs", "describe", "broker", "8", status=1).err
    assert "is not a broker id" in ottla("configs", "describe", "broker", "all", status=2).err


@pytest.fixture
def group(ottla: CommandLine) -> str:
    """A group that has read all of `read`: ten records of partition 0, an hour apart."""
    ottla("topics", "create", "read", "-p", "2", "--if-not-exists")
    if not ottla("consume", "-e", "read").out:
        now = int(time.time() * 1000)
        lines = "".join(f'{{"value": "{n}", "partition": 0, "timestamp": {now - (10 - n) * 3_600_000}}}\n' for n in range(10))
        ottla("produce", "--json", "read", input=lines)
    ottla("consume", "-G", "g", "-e", "read")
    ottla("groups", "reset-offsets", "g", "--topic", "read:0", "--to-latest", "--execute")
    return "g"


def test_groups_are_listed_and_described(ottla: CommandLine, group: str) -> None:
    assert [group, "consumer", "Empty", "Classic", "7"] in ottla("groups", "list").rows
    assert ottla("groups", "list", "--state", "Stable").rows == []
    assert ottla("groups", "list", "--type", "classic").rows
    described = ottla("groups", "describe", group)
    assert described.lines[0].startswith("g  state Empty  type Classic")
    assert ["read", "0", "10", "10", "0", "-", "-", "-"] in described.rows
    assert ottla("groups", "offsets", group, "--json").json[0] == {"topic": "read", "partition": 0, "offset": 10, "metadata": ""}
    assert "there is no group nobody" in ottla("groups", "describe", "nobody", status=1).err
    everything = ottla("groups", "describe", "--json").json
    assert group in [each["group"] for each in everything]
    assert group in [row[0] for row in ottla("groups", "list", "--state", "empty", "--type", "classic").rows]
    assert "is not one of" in ottla("groups", "list", "--state", "sleeping", status=2).err


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--to-current",), "10"),
        (("--to-offset", "4"), "4"),
        (("--to-offset", "99"), "10"),
        (("--shift-by", "-3"), "7"),
        (("--shift-by", "-99"), "0"),
        (("--by-duration", "PT5H30M"), "5"),
        (("--by-duration", "3h30m"), "7"),
        (("--to-datetime", "-90m"), "9"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
    ],
)
def test_offsets_are_reset_in_every_mode(ottla: CommandLine, group: str, mode: tuple[str, ...], expected: str) -> None:
    shown = ottla("groups", "reset-offsets", group, "--topic", "read:0", *mode)
    assert shown.rows == [["read", "0", "10", expected]]
    assert "nothing was changed" in shown.err
    assert ["read", "0", "10", "-"] in ottla("groups", "offsets", group).rows
    ottla("groups", "reset-offsets", group, "--topic", "read:0", *mode, "--execute")
    assert ["read", "0", expected, "-"] in ottla("groups", "offsets", group).rows


def test_offsets_are_reset_from_what_was_exported(ottla: CommandLine, group: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(ottla("groups", "reset-offsets", group, "--topic", "read", "--to-earliest", "--export", "--dry-run").out)
    assert plan.read_text() == "read,0,0\nread,1,0\n"
    ottla("groups", "reset-offsets", group, "--from-file", str(plan), "--execute")
    assert ["read", "0", "0", "-"] in ottla("groups", "offsets", group).rows
    plan.write_text("other,read,0,1\ng,read,0,2\n")
    assert ottla("groups", "reset-offsets", group, "--from-file", str(plan)).rows == [["read", "0", "0", "2"]]
    plan.write_text("read,zero,0\n")
    assert "line 1 of the file is not" in ottla("groups", "reset-offsets", group, "--from-file", str(plan), status=1).err


def test_what_is_no_reset_is_said(ottla: CommandLine, group: str) -> None:
    assert "Give exactly one of" in ottla("groups", "reset-offsets", group, "--topic", "read", status=2).err
    assert "Give exactly one of" in ottla("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--to-earliest", status=2).err
    assert "Give either --topic" in ottla("groups", "reset-offsets", group, "--to-latest", status=2).err
    assert "cannot shift" in ottla("groups", "reset-offsets", "newcomer", "--topic", "read:1", "--shift-by", "1", status=1).err


def test_a_group_with_members_keeps_its_offsets(ottla: CommandLine, group: str) -> None:
    reading = ottla.start("consume", "-G", group, "read")
    try:
        assert reading.stderr is not None
        assert b"assigned" in reading.stderr.readline()
        assert (
            "has no members; it is" in ottla("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute", status=1).err
        )
        assert "NON_EMPTY_GROUP" in ottla("groups", "delete", group, status=1).err
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in ottla("groups", "delete-offsets", group, "--topic", "read:0", status=1).err
        (described,) = ottla("groups", "describe", group, "--json").json
        assert [member["client_id"] for member in described["members"]] == ["ottla"]
    finally:
        reading.terminate()
        reading.communicate(timeout=90)


def test_offsets_and_groups_are_forgotten(ottla: CommandLine) -> None:
    ottla("topics", "create", "short")
    ottla("groups", "reset-offsets", "brief", "--topic", "short", "--to-latest", "--execute")
    assert ottla("groups", "delete-offsets", "brief", "--topic", "short:0").out == "short-0: offset deleted\n"
    ottla("groups", "reset-offsets", "brief", "--topic", "short", "--to-latest", "--execute")
    assert ottla("groups", "delete", "brief").out == "brief: deleted\n"
    assert "GROUP_ID_NOT_FOUND" in ottla("groups", "delete", "brief", status=1).err
