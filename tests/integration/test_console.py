"""`ottla console` with a real broker: everything it shows and changes. `make judge` runs it on Apache Kafka, too."""

import base64
import csv
import io
import json
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

import pytest

from ottla.console.handshakes import MOST_HANDSHAKES
from ottla.console.login.passwords import hashed
from ottla.console.streams import MAX_STREAMS
from tests.support.broker_process import eventually
from tests.support.certificates import Identity
from tests.support.command_line import CommandLine
from tests.support.hostile_records import GROUP, HOSTILE, a_broker_of_hostile_records
from tests.support.judged_broker import JudgedBroker, a_judged_broker, needs_its_broker, only_ottla
from tests.support.running_console import Console, a_console

pytestmark = [pytest.mark.slow, *needs_its_broker]

NESTED = "[" * 1_000_000
VALUES = (HOSTILE, NESTED, '{"large":12345678901234567890}', '{"a":[1]}')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    with a_broker_of_hostile_records(tmp_path_factory.mktemp("console"), VALUES) as running:
        yield running


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def console(broker: JudgedBroker, audit_log: Path) -> Iterator[Console]:
    with a_console(broker.bootstrap, "--audit-log", str(audit_log)) as running:
        yield running


@pytest.fixture(scope="module")
def ottla(broker: JudgedBroker) -> CommandLine:
    return CommandLine(broker.bootstrap)


def test_the_api_shows_the_cluster(console: Console) -> None:
    overview = console.get("overview")
    assert (overview["controller"], len(overview["brokers"]), overview["offline"]) == (0, 1, 0)
    line = {"name": "t", "internal": False, "partitions": 2, "replicas": 1, "under_replicated": 0, "offline": 0}
    assert line in console.get("topics")["topics"]
    topic = console.get("topics/t")
    assert [(each["leader"], each["start"], each["end"]) for each in topic["partitions"]] == [(0, 0, 0), (0, 0, 4)]
    assert topic["partitions"][1]["bytes"] > len(NESTED)
    policy = {"name": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG", "default": "delete"}
    assert {**policy, "read_only": False, "sensitive": False} in topic["configs"]
    assert GROUP in [each["group"] for each in console.get("groups")["groups"]]
    group = console.get(f"groups/{urllib.parse.quote(GROUP, safe='')}")
    assert [(each["offset"], each["end"], each["lag"]) for each in group["partitions"] if each["partition"] == 1] == [(2, 4, 2)]
    assert console.get("findings")["not_examined"] == []
    (broker,) = console.get("brokers")["brokers"]
    assert broker["error"] is None
    assert broker["log_dirs"][0]["replica_bytes"] > len(NESTED)
    assert (broker["protocol_version"], overview["missing"]) == ("3.9-IV0", [])
    sizes = console.get("topic-sizes")
    (of_t,) = (each for each in sizes["topics"] if each["name"] == "t")
    assert of_t["bytes"] == of_t["replica_bytes"] > len(NESTED)
    assert sizes["errors"] == []
    sources = {each["name"]: each["source"] for each in console.get("brokers/0/configs")["configs"]}
    assert (sources["listeners"], sources["log.cleaner.threads"]) == ("STATIC_BROKER_CONFIG", "DEFAULT_CONFIG")
    assert len(console.get("topics/t/producers?partition=1")["producers"]) == 4
    readers = console.get("topics/t/groups")
    assert readers["not_examined"] == 0
    assert [(each["state"], each["members"], each["lag"]) for each in readers["groups"] if each["group"] == GROUP] == [("Empty", 0, 2)]
    assert console.get("topics/__consumer_offsets/groups")["groups"] == []


def test_records_are_found_by_offset_by_time_and_from_the_end(console: Console) -> None:
    def offsets(query: str) -> list[int]:
        return [record["offset"] for record in console.get(f"topics/t/records?{query}")["records"]]

    assert offsets("partition=1") == offsets("") == offsets("partition=0,1") == [0, 1, 2, 3]
    assert offsets("partition=0") == []
    assert offsets("partition=1&limit=1") == [3]
    assert offsets("partition=1&offset=1&limit=2") == [1, 2]
    assert offsets("partition=1&offset=99") == []
    assert offsets("partition=1&timestamp=0&limit=1") == [0]
    assert offsets("timestamp=99999999999999") == []
    assert offsets("path=a[0]&equals=1&isolation=read_committed") == [3]
    assert offsets("contains=LARGE") == [2]
    assert offsets(f"key={urllib.parse.quote(HOSTILE)}&header={urllib.parse.quote(HOSTILE)}%3Dx&limit=2") == [2, 3]
    first, second = console.get("topics/t/records?partition=1&limit=2&offset=0")["records"]
    assert first["value"] == {"form": "text", "text": HOSTILE, "bytes": len(HOSTILE.encode())}
    assert (len(second["value"]["text"]), second["value"]["bytes"]) == (16 * 1024, len(NESTED))
    found = console.get("topics/t/records?partition=1&offset=0&limit=1&value_form=json")
    assert (found["stopped_by"], found["partitions"]) == ("limit", [{"partition": 1, "start": 0, "end": 4, "next": 1, "older": None}])
    assert found["records"][0]["value"]["error"] == "this is not json"


def test_an_export_is_what_the_command_line_reads(console: Console, ottla: CommandLine) -> None:
    with console.open("GET", "topics/t/export?partition=1") as answer:
        assert answer.headers["content-disposition"] == 'attachment; filename="t.ndjson"'
        exported = answer.read()
    assert [json.loads(line) for line in exported.splitlines()] == ottla("consume", "-J", "-e", "t:1").json_lines
    with console.open("GET", "topics/t/export?partition=1&format=csv") as answer:
        assert answer.headers["content-disposition"] == 'attachment; filename="t.csv"'
        text = answer.read().decode()
    before = csv.field_size_limit(len(text))
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    finally:
        csv.field_size_limit(before)
    assert [(int(row["offset"]), row["key_form"], row["value_form"]) for row in rows] == [
        (0, "base64", "base64"),  # they have a NUL, which is no text of CSV
        (1, "base64", "text"),
        (2, "base64", "text"),
        (3, "base64", "text"),
    ]
    assert base64.b64decode(rows[0]["value"]).decode() == HOSTILE
    assert [row["value"] for row in rows[2:]] == ['{"large":12345678901234567890}', '{"a":[1]}']
    assert {(row["topic"], row["headers"], row["error"]) for row in rows} == {("t", json.dumps([[HOSTILE, "x"]], ensure_ascii=False), "")}


def test_a_live_view_shows_every_new_record_and_ends_with_its_reader(console: Console, ottla: CommandLine) -> None:
    ottla("topics", "create", "live", "-p", "1")
    with console.open("GET", "topics/live/live") as answer:
        assert answer.readline() == b"event: begun\n"
        ottla("produce", "live", input="".join(f"{number}\n" for number in range(500)))
        seen: list[int] = []
        while len(seen) < 500:
            line = answer.readline()
            if line.startswith(b'data: {"records":'):
                seen += [record["offset"] for record in json.loads(line[6:])["records"]]
        assert seen == list(range(500))
    views: list[HTTPResponse] = []

    def has_one_more() -> bool:
        try:
            views.append(console.open("GET", "topics/live/live"))
        except HTTPError as error:  # the first view has not ended yet
            error.close()
            return False
        return True

    try:
        for _ in range(MAX_STREAMS):
            eventually(has_one_more)
            assert views[-1].readline() == b"event: begun\n"
        refused = console.get("topics/live/records", 503)
        assert refused == {"error": f"there are {MAX_STREAMS} searches, live views and exports already; end one"}
    finally:
        for view in views:
            view.close()

    def is_free_again() -> bool:
        with suppress(AssertionError):
            return bool(console.get("topics/live/records?limit=1")["records"])
        return False

    eventually(is_free_again)


def test_what_does_not_exist_is_one_line(console: Console) -> None:
    assert "there is no such topic" in console.get("topics/none", 404)["error"]
    assert "there is no such group" in console.get("groups/none", 404)["error"]
    assert "there is no such topic" in console.get("topics/none/records", 404)["error"]
    assert "there is no such transactional id" in console.get("transactions/none", 404)["error"]
    assert console.get("topics/t/records?limit=-1", 400) == {"error": "limit is not a number"}
    assert "no partition 7" in console.get("topics/t/records?partition=7", 409)["error"]
    with console.open("GET", "topics/none/live") as answer:
        assert "there is no such topic" in answer.read().decode()


def test_topics_are_created_changed_and_deleted(console: Console, ottla: CommandLine, audit_log: Path) -> None:
    console.change("POST", "topics", {"name": "made", "partitions": 1, "configs": {"retention.ms": "1000000"}})
    assert "TOPIC_ALREADY_EXISTS" in console.change("POST", "topics", {"name": "made"}, 409)["error"]
    console.change("POST", "topics", {"name": "checked", "validate_only": True})
    console.change("POST", "topics/made/partitions", {"count": 2})
    console.change("PATCH", "topics/made/configs", {"set": {"max.message.bytes": "2000"}, "delete": ["retention.ms"]})
    assert "INVALID_CONFIG" in console.change("PATCH", "topics/made/configs", {"set": {"nonsense": "1"}}, 409)["error"]
    described = ottla("topics", "describe", "made", "--json").json[0]
    assert (len(described["partitions"]), described["configs"]) == (2, {"max.message.bytes": "2000"})
    record = {"key": "k", "value": {"a": [1]}, "headers": [["h", "v"]], "partition": 1, "timestamp": 7}
    assert console.change("POST", "topics/made/records", record)["offset"] == 0
    assert "MESSAGE_TOO_LARGE" in console.change("POST", "topics/made/records", {"value": "x" * 3000, "partition": 1}, 409)["error"]
    console.change("POST", "topics/made/records", {"value_base64": "/w==", "partition": 1})
    found = console.get("topics/made/records?partition=1")["records"]
    assert [(each["key"]["text"], each["value"]["text"]) for each in found] == [("k", '{"a":[1]}'), (None, "ff")]
    offsets = [{"partition": 1, "offset": 1}]
    assert console.change("DELETE", "topics/made/records", {"confirm": "made", "offsets": offsets})["partitions"] == [
        {"partition": 1, "start": 1}
    ]
    assert "OFFSET_OUT_OF_RANGE" in str(
        console.change("DELETE", "topics/made/records", {"confirm": "made", "offsets": [{"partition": 1, "offset": 9}]}, 409)
    )
    console.change("DELETE", "topics/made", {"confirm": "mad"}, 400)
    console.change("DELETE", "topics/__consumer_offsets", {"confirm": "__consumer_offsets"}, 400)
    console.change("DELETE", "topics/made", {"confirm": "made"})
    console.change("DELETE", "topics/made", {"confirm": "made"}, 404)
    lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
    assert {"create topic", "change topic configs", "produce", "delete records", "delete topic"} <= {each["action"] for each in lines}
    assert {each["user"] for each in lines} == {"local"}
    assert audit_log.stat().st_mode & 0o777 == 0o600


def test_a_reset_does_what_its_preview_has_shown(console: Console, ottla: CommandLine) -> None:
    group = "reset <i>"
    quoted = urllib.parse.quote(group)

    def preview(query: str) -> list[dict[str, object]]:
        shown = console.get(f"group-reset?group={quoted}&{query}")
        assert shown["can_be_applied"]
        return [{name: each[name] for name in ("topic", "partition", "before", "offset")} for each in shown["offsets"]]

    latest = preview("to=latest&topic=t&partition=1")
    assert latest == [{"topic": "t", "partition": 1, "before": None, "offset": 4}]
    assert console.get(f"group-reset?group={quoted}&to=latest", 400)["error"] == "the group has no offsets; name the topics"
    console.change("POST", "group-reset", {"group": group, "offsets": latest})
    assert "and no longer None" in console.change("POST", "group-reset", {"group": group, "offsets": latest}, 409)["error"]
    back = preview("to=shift&value=-3")
    assert back == [{"topic": "t", "partition": 1, "before": 4, "offset": 1}]
    console.change("POST", "group-reset", {"group": group, "offsets": back})
    assert ottla("groups", "offsets", group, "--json").json == [{"topic": "t", "partition": 1, "offset": 1, "metadata": ""}]
    console.change("POST", "topics", {"name": "other", "partitions": 1})
    several = preview("to=latest&topic=t&topic=other")
    assert [(each["topic"], each["partition"], each["offset"]) for each in several] == [("t", 0, 0), ("t", 1, 4), ("other", 0, 0)]
    wanted = [("to=earliest", 0), ("to=current", 1), ("to=offset&value=2", 2), ("to=time&value=-1h", 0), ("to=ago&value=1h", 0)]
    assert [preview(query)[0]["offset"] for query, _ in wanted] == [offset for _, offset in wanted]
    assert "beyond the end" in console.get(f"group-reset?group={quoted}&to=offset&value=99")["remarks"][0]
    console.change("DELETE", "group-offsets", {"group": group, "topic": "t", "partitions": [1], "confirm": group})
    console.change("POST", "group-reset", {"group": group, "offsets": latest})
    console.change("DELETE", f"groups/{quoted}", {"confirm": group})
    console.change("DELETE", f"groups/{quoted}", {"confirm": group}, 404)


def test_a_group_with_members_keeps_its_offsets(console: Console, ottla: CommandLine) -> None:
    member = ottla.start("consume", "-G", "busy", "t")
    try:
        eventually(lambda: console.get("group-reset?group=busy&to=latest&topic=t")["state"] == "Stable")
        readers = console.get("topics/t/groups")["groups"]
        assert [(each["state"], each["members"]) for each in readers if each["group"] == "busy"] == [("Stable", 1)]
        described = console.get("groups/busy")
        (only,) = described["members"]
        assert (described["state"], only["client"], only["host"], only["partitions"]) == ("Stable", "ottla", "/127.0.0.1", 2)
        assert [each["members"] for each in described["partitions"]] == [[only["id"]]] * 2
        shown = console.get("group-reset?group=busy&to=latest&topic=t&partition=1")
        assert not shown["can_be_applied"]
        offsets = [{"topic": "t", "partition": 1, "before": None, "offset": 4}]
        assert "Stop its consumers" in console.change("POST", "group-reset", {"group": "busy", "offsets": offsets}, 409)["error"]
    finally:
        member.kill()
        member.communicate()


def test_elections_and_reassignments(console: Console) -> None:
    assert console.change("POST", "elections", {"type": "preferred", "partitions": [{"topic": "t", "partition": 0}]})["elections"] == [
        {"topic": "t", "partition": 0, "result": "not needed", "failed": False}
    ]
    assert console.change("POST", "elections", {"type": "unclean", "all": True})["elections"] == []
    plan = console.get("reassignment-plan?topic=t&broker=0")
    assert [(each["now"], each["planned"]) for each in plan["partitions"]] == [([0], [0])] * 2
    assert console.get("reassignment-plan?topic=t&broker=7", 400)["error"] == "there is no broker 7; alive are 0"
    assert console.change("POST", "reassignments", {"plan": plan["plan"], "throttle": 1_000_000})["plan_back"] == plan["plan"]
    assert console.change("POST", "reassignments", {"plan": {"partitions": [{"topic": "t"}]}}, 400)
    eventually(lambda: console.get("reassignments")["reassignments"] == [])
    assert console.change("DELETE", "reassignments", {"all": True}) == {"cancelled": []}
    console.change("DELETE", "replication-throttles", {"topics": ["t"]})
    assert "throttled" not in str([each for each in console.get("topics/t")["configs"] if each["source"] == "DYNAMIC_TOPIC_CONFIG"])


def test_acls_users_and_quotas(console: Console, ottla: CommandLine) -> None:
    acl = {"principal": "User:alice", "operation": "READ", "resource_type": "TOPIC", "name": "t", "pattern_type": "PREFIXED"}
    added = console.change("POST", "acls", acl)
    assert added == {**acl, "host": "*", "permission_type": "ALLOW"}
    assert console.get("acls?resource_type=TOPIC&name=tt&pattern_type=match")["acls"] == [added]
    assert ottla("acls", "list", "--json").json == [added]
    assert "MATCH is for filters" in console.change("POST", "acls", {**acl, "pattern_type": "MATCH"}, 400)["error"]
    assert console.change("DELETE", "acls", added) == added
    assert "there is no such ACL" in console.change("DELETE", "acls", added, 404)["error"]

    console.change("PUT", "users/alice", {"password": "secret", "mechanisms": ["SCRAM-SHA-256"], "iterations": 5000})
    eventually(lambda: console.get("users")["users"] == [{"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 5000}])
    console.change("DELETE", "users/alice", {"confirm": "alice"})
    eventually(lambda: console.get("users")["users"] == [])

    entity = {"user": "alice", "client-id": None}
    console.change("PATCH", "quotas", {"entity": entity, "set": {"producer_byte_rate": 1000}})
    eventually(lambda: console.get("quotas")["quotas"] == [{"entity": entity, "values": {"producer_byte_rate": 1000.0}}])
    assert console.change("PATCH", "quotas", {"entity": entity, "set": {"nonsense": 1}}, 409)
    console.change("PATCH", "quotas", {"entity": entity, "remove": ["producer_byte_rate"]})
    eventually(lambda: console.get("quotas")["quotas"] == [])


def test_transactions_are_listed_described_and_ended(console: Console, broker: JudgedBroker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x/1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush(30)
    assert [(each["transactional_id"], each["state"]) for each in console.get("transactions?state=Ongoing")["transactions"]] == [
        ("x/1", "Ongoing")
    ]
    described = console.get("transactions/x%2F1")
    assert described["partitions"] == [{"topic": "t", "partition": 0}]
    assert described["open_for_ms"] >= 0
    held = console.get("hanging-transactions?max_timeout_ms=0")
    assert held == {"held_back": [{"topic": "t", "partition": 0, "stable": 0, "end": 1}], "hanging": []}
    assert console.get("topics/t/records?partition=0&isolation=read_committed")["records"] == []
    body = {"topic": "t", "partition": 0, "start_offset": 0, "confirm": "t"}
    aborted = console.change("POST", "transaction-abort", body)
    assert aborted == {"topic": "t", "partition": 0, "producer_id": described["producer_id"]}
    assert console.get("hanging-transactions")["held_back"] == []
    console.change("POST", "transaction-forget", {"transactional_id": "x/1", "confirm": "x/1"})
    eventually(lambda: console.get("transactions/x%2F1")["partitions"] == [])
    assert console.get("hanging-transactions")["held_back"] == []
    assert "no open transaction" in console.change("POST", "transaction-abort", body, 409)["error"]


@only_ottla
def test_a_dead_cluster_is_one_line_and_the_console_goes_on() -> None:
    with a_console("127.0.0.1:1") as console:
        for _ in range(3):
            assert "no broker can be reached at 127.0.0.1:1" in console.get("topics", 502)["error"]
        with console.open("GET", "topics/t/live") as answer:
            assert b"no broker can be reached at 127.0.0.1:1" in answer.read()


@only_ottla
def test_malformed_requests_leave_nothing_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    with a_console("127.0.0.1:1") as console:
        address = urllib.parse.urlsplit(console.address)
        for request in (b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
            with socket.create_connection((address.hostname or "", address.port or 0), 60.0) as client:
                client.sendall(request)
                assert client.recv(1000).startswith(b"HTTP/1.1 400")
        assert console.get("session")["user"] == "local"
    assert capfd.readouterr().err == ""


@only_ottla
def test_several_clusters_are_shown_by_one_console_and_a_dead_one_disturbs_no_other(broker: JudgedBroker, tmp_path: Path) -> None:
    with a_judged_broker(tmp_path / "second") as second:
        (tmp_path / "profiles.toml").write_text(
            f'[second]\nbootstrap-server = "{second.bootstrap}"\n[dead]\nbootstrap-server = "127.0.0.1:1"\n', encoding="utf-8"
        )
        options = ("--all-profiles", "--audit-log", str(tmp_path / "audit.log"))
        with a_console(broker.bootstrap, *options, variables={"OTTLA_PROFILES": str(tmp_path / "profiles.toml")}) as console:
            first = urllib.parse.quote(broker.bootstrap, safe="")
            assert [each["name"] for each in console.get("clusters")["clusters"]] == [broker.bootstrap, "second", "dead"]
            ids = {name: console.get(f"clusters/{name}/overview")["cluster_id"] for name in (first, "second")}
            assert console.get("overview")["cluster_id"] == ids[first] != ids["second"]
            assert "no broker can be reached at 127.0.0.1:1" in console.get("clusters/dead/topics", 502)["error"]
            console.change("POST", "clusters/second/topics", {"name": "there", "partitions": 1})
            console.change("POST", "clusters/second/topics/there/records", {"value": "x", "partition": 0})
            assert console.get("clusters/second/topics/there/records")["records"][0]["value"]["text"] == "x"
            assert "there is no such topic" in console.get("topics/there", 404)["error"]
            assert console.get("clusters/none/topics", 404)["error"].startswith("this console has no cluster none; it has ")
        lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
        assert [(each["action"], each["cluster"]) for each in lines] == [("create topic", "second"), ("produce", "second")]


@only_ottla
def test_a_login_over_tls(broker: JudgedBroker, tmp_path: Path) -> None:
    authority = Identity("CN=authority")
    certificate, key = Identity("CN=127.0.0.1", authority).files(tmp_path, "console")
    (tmp_path / "authority.crt").write_text(authority.certificate_pem)
    (tmp_path / "users").write_text(f"alice:{hashed('secret')}\n")
    options = ("--passwords", str(tmp_path / "users"), "--tls-certificate", str(certificate), "--tls-key", str(key), "--read-only")
    with ExitStack() as silent, a_console(broker.bootstrap, *options, trusted=tmp_path / "authority.crt") as console:
        assert console.address.startswith("https://")
        port = int(console.address.rstrip("/").rpartition(":")[2])
        first, *_ = [silent.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(MOST_HANDSHAKES)]
        assert console.get("overview", 401) == {"error": "log in first"}
        assert first.recv(1) == b""  # the one that has been silent for the longest time has yielded
        console.log_in("alice", "secret")
        assert console.get("overview")["controller"] == 0
        assert console.change("DELETE", "topics/t", {"confirm": "t"}, 403) == {"error": "this console is read-only"}
