"""A console with several clusters: a path names one of them, and a change goes there and nowhere else."""

import asyncio
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, Unreachable
from ottla.console.application import CHANGES, KEPT, READS
from ottla.console.clusters import Clusters, Served
from ottla.console.decoding import Decoder
from tests.support.console_requests import FIRST, HOST, SECOND, ConsoleUnderTest
from tests.unit.cli.test_console import PARAMETERS, address_of


@pytest.fixture
def console() -> ConsoleUnderTest:
    return ConsoleUnderTest()


def test_the_clusters_are_listed_without_asking_them(console: ConsoleUnderTest) -> None:
    assert console.get("/api/v1/clusters").json == {"clusters": [{"name": FIRST}, {"name": SECOND}]}
    assert console.asked == 0


@pytest.mark.parametrize("path", [*READS, *KEPT, "topics/{name}/records", "topics/{name}/live", "topics/{name}/export"])
def test_a_path_names_the_cluster_and_without_a_name_it_is_the_first(console: ConsoleUnderTest, path: str) -> None:
    query = "?group=g&to=earliest" if path == "group-reset" else PARAMETERS.get(path, "")
    for prefix, name in (("", FIRST), (f"clusters/{FIRST}/", FIRST), (f"clusters/{SECOND}/", SECOND)):
        console.asked_clusters.clear()
        assert b"no broker can be reached" in console.get(f"/api/v1/{prefix}{address_of(path)}{query}").body
        assert set(console.asked_clusters) == {name}


def test_requests_for_findings_share_one_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[Cluster] = []

    def findings(cluster: Cluster) -> dict[str, object]:
        examined.append(cluster)
        return {"findings": [], "not_examined": [], "examined_at_ms": len(examined)}

    async def answers(console: ConsoleUnderTest) -> list[int]:
        paths = ["/api/v1/findings"] * 3 + [f"/api/v1/clusters/{SECOND}/findings"] * 2
        return [(await console.sent("GET", path, b"", {"host": HOST})).json["examined_at_ms"] for path in paths]

    monkeypatch.setattr("ottla.console.clusters.findings", findings)
    assert asyncio.run(answers(ConsoleUnderTest())) == [1, 1, 1, 2, 2]


def test_a_change_goes_to_the_named_cluster_and_its_line_says_which(console: ConsoleUnderTest) -> None:
    for prefix, name in (("", FIRST), (f"clusters/{SECOND}/", SECOND)):
        console.asked_clusters.clear()
        assert console.change("DELETE", f"{prefix}topics/t", {"confirm": "t"}).status == 502
        assert set(console.asked_clusters) == {name}
        assert (console.lines[-1]["cluster"], console.lines[-1]["what"]) == (name, {"name": "t", "confirm": "t"})


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.action)
def test_the_rules_hold_for_every_cluster(change: object) -> None:
    method, path = change.method, f"clusters/{SECOND}/{address_of(change.path)}"  # type: ignore[attr-defined]  # of a parameter
    console, reader = ConsoleUnderTest(), ConsoleUnderTest(is_read_only=True)
    assert console.change(method, path, {"confirm": "t"}, without="x-csrf-token").status == 403
    assert console.change(method, path, {"surplus": 1}).error.startswith("the field 'surplus' is unknown")
    assert reader.change(method, path, {"confirm": "t"}).error == "this console is read-only"
    assert console.asked == reader.asked == 0


@pytest.mark.parametrize("name", ["third", "<b>", "..", "First", "x" * 10_000])
def test_an_unknown_cluster_is_one_line(console: ConsoleUnderTest, name: str) -> None:
    for answer in (
        console.get(f"/api/v1/clusters/{name}/topics"),
        console.get(f"/api/v1/clusters/{name}/topics/t/records"),
        console.change("DELETE", f"clusters/{name}/topics/t", {"confirm": "t"}),
    ):
        assert (answer.status, answer.error) == (404, f"this console has no cluster {name[:100]}; it has {FIRST}, {SECOND}")
        assert answer.headers["content-type"] == "application/json"
    assert console.asked == 0


def test_the_session_belongs_to_no_cluster(console: ConsoleUnderTest) -> None:
    assert console.get(f"/api/v1/clusters/{SECOND}/session").status == 404
    assert console.get("/api/v1/session").status == 200


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "\u202e"])
def test_a_name_that_a_path_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ClientError, match="names no cluster of a console"):
        Clusters([Served(name, lambda: Cluster("127.0.0.1:1"), Decoder())])


PROFILES = """
[staging]
bootstrap-server = "staging.invalid:9092"
timeout = 7

[secured]
bootstrap-server = "secured.invalid:9093"
command-config = "{properties}"
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Clusters]:
    """The clusters of consoles that were started, which serve nothing."""
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=SSL\n")
    (tmp_path / "profiles.toml").write_text(PROFILES.format(properties=properties))
    monkeypatch.setenv("OTTLA_PROFILES", str(tmp_path / "profiles.toml"))
    for variable in ("OTTLA_BOOTSTRAP_SERVER", "OTTLA_PROFILE", "OTTLA_COMMAND_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    found: list[Clusters] = []
    monkeypatch.setattr("ottla.console.application.application", lambda clusters, _: found.append(clusters))
    monkeypatch.setattr("ottla.console.command._serve", lambda *_: None)
    return found


def start(*options: str) -> Result:
    return CliRunner().invoke(main, ["console", *options])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), ["127.0.0.1:9092"]),
        (("-b", "127.0.0.1:1"), ["127.0.0.1:1"]),
        (("--profile", "secured"), ["secured"]),
        (("--cluster", "staging"), ["staging"]),
        (("-b", "127.0.0.1:1", "--cluster", "staging"), ["127.0.0.1:1", "staging"]),
        (("--profile", "secured", "--cluster", "staging", "--cluster", "secured"), ["secured", "staging"]),
        (("--all-profiles",), ["staging", "secured"]),
        (("--all-profiles", "--cluster", "secured"), ["secured", "staging"]),
    ],
)
def test_the_options_choose_the_clusters_and_their_order(served: list[Clusters], options: tuple[str, ...], names: list[str]) -> None:
    done = start(*options)
    assert done.exit_code == 0, done.output
    assert [each.name for each in served[0]] == names


def test_every_request_uses_the_servers_the_timeout_and_the_security_of_its_cluster(served: list[Clusters], tmp_path: Path) -> None:
    (tmp_path / "other.properties").write_text("security.protocol=SSL\n")
    options = ("-b", "first.invalid:9092", "--command-config", str(tmp_path / "other.properties"), "--timeout", "3", "--all-profiles")
    assert start(*options).exit_code == 0
    made = {each.name: each.connect() for each in served[0]}
    assert {name: (each.timeout_seconds, each.security.protocol.name) for name, each in made.items()} == {
        "first.invalid:9092": (3.0, "SSL"),
        "staging": (7.0, "PLAINTEXT"),  # the credential of the options goes to no other cluster
        "secured": (3.0, "SSL"),
    }
    for name, host in (("first.invalid:9092", "first"), ("staging", "staging"), ("secured", "secured")):
        with pytest.raises(Unreachable, match=rf"{host}\.invalid:909"), made[name].until(0.0):
            made[name].any_connection()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--cluster", "none"), "there is no profile none in "),
        (("--cluster", "empty"), "profile empty in {file} has no bootstrap-server"),
        (("--cluster", "wrong"), "profile wrong in {file}: 'a:b' is not an address of a broker; write host:port"),
        (("--cluster", "a/b"), "'a/b' names no cluster of a console"),
        (("--cluster", "registry"), "the address of the schema registry is not an http(s) URL"),
        (("--cluster", "login"), "the login for the schema registry cannot be read: /none: No such file"),
    ],
)
def test_a_profile_that_cannot_be_shown_is_one_line(served: list[Clusters], tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    file = tmp_path / "profiles.toml"
    good = 'bootstrap-server = "127.0.0.1:1"\n'
    registry = f'{good}schema-registry = "http://127.0.0.1:1"\nschema-registry-login = "/none"\n'
    profiles = (
        "[empty]\ntimeout = 1\n",
        '[wrong]\nbootstrap-server = "a:b"\n',
        f'["a/b"]\n{good}',
        f'[registry]\n{good}schema-registry = "x"\n',
        f"[login]\n{registry}",
    )
    file.write_text("".join(profiles))
    refused = start(*options)
    assert (refused.exit_code, refused.output.count("\n"), served) == (1, 1, [])
    assert refused.output.startswith(f"ottla: {reason.format(file=file)}")


def test_the_registry_of_the_options_is_for_no_other_profile(served: list[Clusters]) -> None:
    refused = start("--cluster", "staging", "--schema-registry", "http://127.0.0.1:1")
    assert (refused.exit_code, served) == (2, [])
    assert "are for the cluster of -b or --profile" in refused.output


def test_a_cluster_that_hangs_keeps_no_request_to_another_one_waiting(console: ConsoleUnderTest) -> None:
    answers_come = console.hanging[FIRST] = threading.Event()
    headers = {"host": HOST}

    async def scenario() -> list[int]:
        waiting = [asyncio.create_task(console.sent("GET", "/api/v1/overview", b"", headers)) for _ in range(200)]
        try:
            other = await asyncio.wait_for(console.sent("GET", f"/api/v1/clusters/{SECOND}/overview", b"", headers), 20)
            assert not any(each.done() for each in waiting)
        finally:
            answers_come.set()
        return [other.status, *(each.status for each in await asyncio.gather(*waiting))]

    assert asyncio.run(scenario()) == [502] * 201
