"""The console answers its own page only, explains what it cannot answer, and refuses what it must not change."""

import gzip
import json
import re
import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.client.cluster import Cluster, UnknownTopic
from ottla.client.errors import ClientError, ConnectionLost, DoesNotFit, Refused, Unreachable
from ottla.console import views
from ottla.console.answers import error_answer, json_answer
from ottla.console.application import CHANGES, KEPT, READS, STATIC
from ottla.console.audit import MAX_LINE_BYTES
from ottla.console.parameters import MAX_BODY_BYTES, BadParameter, Body, number, signed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.support.console_requests import HOST, ConsoleUnderTest

OWN = {"host": HOST}
TOPIC = {"confirm": "t"}


@pytest.fixture
def console() -> ConsoleUnderTest:
    return ConsoleUnderTest()


def address_of(path: str) -> str:
    return path.replace("{name}", "t").replace("{name:any}", "a/b").replace("{broker}", "0")


@pytest.mark.parametrize("path", [*READS, *KEPT, "topics/{name}/records", "topics/{name}/records?value_form=avro&contains=x"])
def test_a_dead_cluster_is_one_line(console: ConsoleUnderTest, path: str) -> None:
    answer = console.get(f"/api/v1/{address_of(path)}{'?group=g&to=earliest' if path == 'group-reset' else ''}{PARAMETERS.get(path, '')}")
    assert (answer.status, answer.error) == (502, "no broker can be reached")


PARAMETERS = {"reassignment-plan": "?topic=t", "group-records": "?group=g"}


@pytest.mark.parametrize("path", ["/", "/api/v1/topics", "/static/console.js", "/nothing"])
def test_every_answer_has_the_headers_that_protect_the_page(console: ConsoleUnderTest, path: str) -> None:
    headers = console.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_answers_are_compressed_for_clients_that_ask_for_it(console: ConsoleUnderTest) -> None:
    plain, packed = (console.get("/static/table.js", {**OWN, **accepted}) for accepted in ({}, {"accept-encoding": "gzip"}))
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body == (STATIC / "table.js").read_bytes()
    assert len(packed.body) < len(plain.body) // 2


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "", "[::2]:8080", "localhost@evil.example"])
def test_another_host_name_is_refused(console: ConsoleUnderTest, host: str) -> None:
    assert console.get("/api/v1/overview", {"host": host}).status == 421
    assert console.get("/", {"host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1", "[::1]:8080", "[::1]"])
def test_the_names_of_this_host_are_accepted(console: ConsoleUnderTest, host: str) -> None:
    assert console.get("/", {"host": host}).status == 200


def test_requests_of_other_sites_are_refused_and_links_to_the_page_are_not(console: ConsoleUnderTest) -> None:
    for site in ("cross-site", "same-site"):
        assert console.get("/api/v1/topics", {**OWN, "sec-fetch-site": site}).status == 403
        assert console.get("/", {**OWN, "sec-fetch-site": site}).status == 200
    assert console.get("/api/v1/topics", {**OWN, "sec-fetch-site": "same-origin"}).status == 502


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.action)
def test_a_change_needs_the_token_its_own_origin_and_json(console: ConsoleUnderTest, change: object) -> None:
    method, path = change.method, address_of(change.path)  # type: ignore[attr-defined]  # of a parameter
    refusals = [
        console.change(method, path, TOPIC, without="x-csrf-token"),
        console.change(method, path, TOPIC, more={"x-csrf-token": "guess"}),
        console.change(method, path, TOPIC, more={"origin": "https://evil.example"}),
        console.change(method, path, TOPIC, more={"origin": "null"}),
        console.change(method, path, TOPIC, more={"origin": "http://127.0.0.1:9999"}),
        console.change(method, path, TOPIC, more={"sec-fetch-site": "same-site"}),
    ]
    assert [each.status for each in refusals] == [403] * 6
    assert console.change(method, path, TOPIC, more={"content-type": "text/plain"}).status == 415
    assert console.asked == 0
    assert [line["outcome"] for line in console.lines] == ["refused"] * 7


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.action)
def test_a_read_only_console_refuses_every_change(change: object) -> None:
    console = ConsoleUnderTest(is_read_only=True)
    answer = console.change(change.method, address_of(change.path), TOPIC)  # type: ignore[attr-defined]  # of a parameter
    assert (answer.status, answer.error) == (403, "this console is read-only")
    assert console.asked == 0
    (line,) = console.lines
    assert (line["user"], line["address"], line["outcome"]) == ("local", "127.0.0.1", "refused")
    assert console.get("/api/v1/session").json["read_only"] is True


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.action)
def test_no_change_ignores_a_field(change: object) -> None:
    console = ConsoleUnderTest()
    answer = console.change(change.method, address_of(change.path), {"surplus": 1})  # type: ignore[attr-defined]  # of a parameter
    assert (answer.status, console.asked) == (400, 0)
    assert answer.error.startswith("the field 'surplus' is unknown; known are ")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_there_are_no_other_changes(console: ConsoleUnderTest, method: str) -> None:
    answer = console.change(method, "topics/t", {})
    assert (answer.status, answer.error) == (405, "Method Not Allowed")


def test_a_failed_change_leaves_a_line_without_passwords_and_records(console: ConsoleUnderTest) -> None:
    assert console.change("PUT", "users/alice", {"password": "secret"}).status == 502
    assert console.change("POST", "topics/t/records", {"value": "secret", "partition": 3}).status == 502
    assert console.change("PATCH", "brokers/0/configs", {"set": {"ssl.key.password": "secret"}}).status == 502
    assert "secret" not in str(console.lines)
    assert [(line["action"], line["outcome"], line["what"]) for line in console.lines] == [
        ("set user", "failed", {"name": "alice", "password": "(hidden)"}),
        ("produce", "failed", {"name": "t", "value": "(hidden)", "partition": 3}),
        ("change broker configs", "failed", {"broker": "0", "set": {"ssl.key.password": "(hidden)"}}),
    ]


@pytest.mark.parametrize("broker", ["x", "-1", "2147483648", "9" * 5000])
def test_what_is_no_id_of_a_broker_is_one_line(console: ConsoleUnderTest, broker: str) -> None:
    for answer in (
        console.get(f"/api/v1/brokers/{broker}/configs"),
        console.change("PATCH", f"brokers/{broker}/configs", {"delete": ["a"]}),
    ):
        assert (answer.status, answer.error) == (400, "a broker is an id, or default for all")


def test_a_parameter_gives_a_name_that_no_path_can_have(console: ConsoleUnderTest) -> None:
    for path in ("groups/", "users/"):
        assert console.change("DELETE", f"{path}?name=..", {"confirm": ".."}).status == 502
        assert console.change("DELETE", f"{path}a?name=..", {"confirm": "a"}).status == 502
    assert [line["what"]["name"] for line in console.lines] == ["..", "a"] * 2


@pytest.mark.slow
def test_lines_about_refusals_are_limited_and_counted(console: ConsoleUnderTest) -> None:
    for _ in range(100):
        console.change("DELETE", "topics/t", TOPIC, without="x-csrf-token")
    assert len(console.lines) == 20
    console.now = 10.0
    console.change("DELETE", "topics/t", TOPIC, without="x-csrf-token")
    assert console.lines[-1]["omitted_before"] == 80


def test_a_long_change_is_cut_in_its_line(console: ConsoleUnderTest) -> None:
    console.change("POST", "topics", {"name": "x" * 100_000})
    assert len(console.lines[0]["what_cut"]) == MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "name is missing"),
        (b"no", "the body is not JSON"),
        (b'{"name": NaN}', "the body is not JSON"),
        (b"[1]", "the body is not a JSON object"),
        (b"[" * 1_000_000, "the body is nested too deeply"),
        (b'{"name":' * 130_000 + b"1" + b"}" * 130_000, "the body is nested too deeply"),
        (b" " * (MAX_BODY_BYTES + 1), f"the body has more than {MAX_BODY_BYTES} bytes"),
        (b'{"name": 1}', "name is not text"),
        (b'{"name": "\\ud800"}', "name has half of a surrogate pair, which is no character"),
        (b'{"name": "t", "partitions": 1.5}', "partitions is not an integer"),
        (b'{"name": "t", "partitions": true}', "partitions is not an integer"),
        (b'{"name": "t", "partitions": 99999999999999999999}', "partitions is out of range"),
        (b'{"name": "t", "configs": {"a": 1}}', "configs is not text"),
        (b'{"name": "t", "assignment": [1]}', "assignment is not a list"),
        (b'{"name": "t", "assignment": [[0]], "partitions": 1}', "assignment determines the numbers of partitions and replicas; omit both"),
    ],
)
def test_a_bad_body_is_one_line_and_asks_no_broker(console: ConsoleUnderTest, body: bytes, error: str) -> None:
    answer = console.change("POST", "topics", body)
    assert (answer.status, answer.error) == (400, error)
    assert [line["error"] for line in console.lines] in ([], [error])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "topics/t", {}),
        ("DELETE", "topics/t", {"confirm": "T"}),
        ("DELETE", "topics/t/records", {"confirm": "", "offsets": [{"partition": 0, "offset": 1}]}),
        ("DELETE", "groups/a/b", {"confirm": "a"}),
        ("DELETE", "group-offsets", {"group": "g", "topic": "t"}),
        ("DELETE", "users/u", {}),
        ("POST", "transaction-abort", {"topic": "t", "partition": 0, "start_offset": 1}),
        ("POST", "transaction-forget", {"transactional_id": "x"}),
    ],
)
def test_a_deletion_wants_the_name(console: ConsoleUnderTest, method: str, path: str, body: object) -> None:
    answer = console.change(method, path, body)
    assert (answer.status, answer.error) == (400, "nothing was changed: the field confirm must repeat the name")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unreachable("no broker can be reached"), 502),
        (ConnectionLost("the connection broke"), 502),
        (Refused("t-0", ErrorCode.LEADER_NOT_AVAILABLE), 502),
        (ClientError("topic t has no partition 7: its last one is 1"), 409),
        (Refused("topic t", ErrorCode.TOPIC_ALREADY_EXISTS), 409),
        (Refused("topic t", ErrorCode.TOPIC_AUTHORIZATION_FAILED), 403),
        (UnknownTopic("t"), 404),
        (DoesNotFit("a number is out of its range"), 400),
    ],
    ids=str,
)
def test_the_status_of_an_error_tells_who_can_do_something(error: ClientError, status: int) -> None:
    assert error_answer(error).status_code == status


def test_a_plan_with_an_infinite_number_is_one_line(console: ConsoleUnderTest) -> None:
    plan = b'{"plan": {"partitions": [{"topic": "t", "partition": 1e999, "replicas": [0]}]}}'
    answer = console.change("POST", "reassignments", plan)
    assert (answer.status, console.asked) == (400, 0)
    assert answer.error.startswith("this is not a plan in the format of `generate`")


@pytest.mark.parametrize("topics", ["", "&topic=a&topic=b"])
def test_a_reset_takes_no_other_partitions_than_those_that_are_named(console: ConsoleUnderTest, topics: str) -> None:
    answer = console.get(f"/api/v1/group-reset?group=g&to=earliest{topics}&partition=3")
    assert (answer.status, answer.error, console.asked) == (400, "partition needs exactly one topic", 0)


@pytest.mark.parametrize("path", ["/static/../application.py", "/static/%2e%2e/views.py", "/static//etc/passwd", "/../../pyproject.toml"])
def test_no_other_file_is_served(console: ConsoleUnderTest, path: str) -> None:
    assert console.get(path).status == 404


def test_parameters_that_are_no_numbers_are_refused() -> None:
    assert (number(None, "offset"), number("", "offset"), number("17", "offset"), signed("-17", "shift")) == (None, None, 17, -17)
    for text in ("-1", "1e3", "٣", "9" * 20, "x", "1\n"):
        with pytest.raises(BadParameter, match="offset is not a number"):
            number(text, "offset")
    for text in ("-", "--1", "-x"):
        with pytest.raises(BadParameter, match="shift is not a number"):
            signed(text, "shift")


def test_amounts_are_finite() -> None:
    assert Body.parse(b'{"set": {"a": 1, "b": 0.5}}').amount_by_name("set") == {"a": 1.0, "b": 0.5}
    for text in (b"1e999", b"1" + b"0" * 400, b'"1"', b"true", b"null"):
        with pytest.raises(BadParameter, match="set has a "):
            Body.parse(b'{"set": {"a": ' + text + b"}}").amount_by_name("set")


def test_the_page_has_no_code_or_style_that_its_policy_forbids_and_nothing_from_another_host() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    scripts = {file.name: file.read_text(encoding="utf-8") for file in STATIC.glob("*.js")}
    code = "".join(scripts.values())
    assert not re.search(r"<script(?![^>]*src=\"/static/)|<style|style=|\son\w+=|javascript:", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\(\"style", code)
    assert not re.search(r"https?://|//[a-z0-9-]+\.[a-z]", page + code + (STATIC / "console.css").read_text(encoding="utf-8"))
    for name in re.findall(r"/static/([\w./]+)", page):
        assert (STATIC / name).is_file()
    assert set(re.findall(r"from \"\./([\w./]+)\"", code)) | {"console.js"} == {*scripts, "vendor/libraries.js"}
    libraries = (STATIC / "vendor" / "libraries.js").read_text(encoding="utf-8")
    assert not re.search(r"\beval\(|new Function|document\.write|setAttribute\(\"style|createElement\(\"style|import\(", libraries)


def test_the_page_loads_less_than_it_may() -> None:
    """The bytes of one visit, as they are sent."""
    sent = [len(gzip.compress(file.read_bytes(), 4)) for file in STATIC.rglob("*") if file.is_file() and file.name != "LICENCES"]
    assert sum(sent) < 300 * 1024


def test_each_library_has_its_licence_and_its_pinned_version() -> None:
    libraries = json.loads((STATIC.parent / "libraries" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    locked = json.loads((STATIC.parent / "libraries" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    licences = (STATIC / "vendor" / "LICENCES").read_text(encoding="utf-8")
    for name, version in libraries.items():
        assert f"{name} {version}\n" in licences
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all(each["integrity"].startswith("sha512-") and "resolved" not in each for name, each in locked.items() if name)


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "192.0.2.1:80", "[::]:8080"])
def test_an_address_that_others_reach_needs_passwords_and_tls(listen: str) -> None:
    for options in ((), ("--passwords", "x"), ("--tls-certificate", "x", "--tls-key", "y")):
        refused = CliRunner().invoke(main, ["console", "--listen", listen, *options])
        assert refused.exit_code == 2
        assert "others reach this address, so it needs --passwords, --tls-certificate and --tls-key" in refused.output


def test_all_addresses_need_a_name() -> None:
    refused = CliRunner().invoke(
        main, ["console", "--listen", "0.0.0.0:80", "--passwords", "x", "--tls-certificate", "x", "--tls-key", "y"]
    )
    assert (refused.exit_code, "give the host names for browsers by --name" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--listen", "8080"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1:x"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--listen", f"127.0.0.1:{'9' * 5000}"), "is not HOST:PORT"),
        (("--listen", "example.com:80"), "has no IP address"),
        (("--tls-key", "x"), "need each other"),
        (("--schema-registry", "file:///etc"), "is not an http(s) URL"),
        (("--hash-password", "a:b"), "is not a name of a user"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: tuple[str, ...], error: str) -> None:
    refused = CliRunner().invoke(main, ["console", *options])
    assert (refused.exit_code, error in refused.output) == (2, True), refused.output


def test_an_address_in_use_is_one_line_that_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        refused = CliRunner().invoke(main, ["console", "-b", "127.0.0.1:1", "--listen", address])
    assert refused.exit_code == 1
    assert refused.output.startswith(f"ottla: the console cannot use {address} (Address already in use): name another address by --listen")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--passwords", "{dir}/none"), "the users of the console cannot be read: {dir}/none: No such file"),
        (("--audit-log", "{dir}/none/log"), "the audit log {dir}/none/log cannot be written: No such file"),
        (
            ("--tls-certificate", "{dir}/none", "--tls-key", "{dir}/none"),
            "the TLS certificate {dir}/none and its key {dir}/none cannot be used",
        ),
    ],
)
def test_files_that_cannot_be_used_are_one_line(options: tuple[str, ...], error: str, tmp_path: object) -> None:
    given = [each.format(dir=tmp_path) for each in options]
    refused = CliRunner().invoke(main, ["console", "--listen", "127.0.0.1:0", *given])
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert refused.output.startswith("ottla: " + error.format(dir=tmp_path))


def test_every_request_uses_the_cluster_of_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profiles, properties = tmp_path / "profiles.toml", tmp_path / "client.properties"
    properties.write_text("security.protocol=SSL\n")
    profiles.write_text(f'[secured]\nbootstrap-server = "broker.example:9093"\ntimeout = 7\ncommand-config = "{properties}"\n')
    monkeypatch.setenv("OTTLA_PROFILES", str(profiles))
    made: list[Cluster] = []
    monkeypatch.setattr("ottla.console.application.application", lambda clusters, _: made.extend(each.connect() for each in clusters))
    monkeypatch.setattr("ottla.console.command._serve", lambda *_: None)
    assert CliRunner().invoke(main, ["console", "--profile", "secured"]).exit_code == 0
    (cluster,) = made
    assert (cluster.timeout_seconds, cluster.security.protocol.name) == (7.0, "SSL")
    with pytest.raises(Unreachable, match=r"broker\.example:9093"), cluster.until(0.0):
        cluster.any_connection()


def test_the_documentation_has_every_path_of_the_api_and_every_field_of_a_change() -> None:
    page = (Path(__file__).parents[3] / "docs" / "console.md").read_text(encoding="utf-8")
    reads, _, changes = page.partition("| change | fields |")
    for path in (*READS, *KEPT):
        assert re.search(rf"^\| `{documented(path)}` \|", reads, flags=re.MULTILINE), path
    for change in CHANGES:
        row = rf"^\| (?:[A-Z]+, )*{change.method}(?:, [A-Z]+)* [^|]*`{documented(change.path)}`"
        assert re.search(row, changes, flags=re.MULTILINE), change
        error = ConsoleUnderTest().change(change.method, address_of(change.path), {"surplus": 1}).error
        for field in error.partition("known are ")[2].split(", "):
            assert f"`{field}`" in page, (change.action, field)


def documented(path: str) -> str:
    """The pattern of a path in the documentation, where parameters are words in capitals."""
    return re.sub(r"\{[^}]*\}", "[A-Z]+", path)


@pytest.mark.slow
def test_ten_thousand_topics_are_a_list_in_less_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    partitions = [MetadataResponsePartition(partition_index=number, **part) for number in range(10)]
    topics = [MetadataResponseTopic(name=f"topic-{number:05}", partitions=partitions) for number in range(10_000)]
    frame = bytes(MetadataResponse(topics=topics).encode(12))
    cluster = Cluster("127.0.0.1:1")
    monkeypatch.setattr(cluster, "refresh", lambda _: MetadataResponse.decode(frame, 12)[0])
    began = time.process_time()
    answer = json_answer(views.topics(cluster))
    assert time.process_time() - began < 1.0
    assert len(json.loads(bytes(answer.body))["topics"]) == 10_000
