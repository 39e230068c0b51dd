"""The console's login by a proxy: it names the user in a header, and proves itself by a secret."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.client.errors import ClientError
from ottla.console.login.proxy_login import MAX_USER_LENGTH, SECRET_HEADER, ProxyLogin, read_proxy_login
from ottla.console.login.sessions import MAX_SESSIONS, SESSION_SECONDS, Sessions
from tests.support.console_requests import HOST, ConsoleUnderTest

SECRET = "a secret of the proxy"
USER_HEADER = "X-Forwarded-User"
ALICE = {USER_HEADER.lower(): "alice", SECRET_HEADER: SECRET}
PROXY = ProxyLogin(USER_HEADER, SECRET)


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def test_the_proxy_names_the_user_of_each_request_and_of_its_audit_line() -> None:
    console = ConsoleUnderTest(proxy=PROXY)
    session = console.get("/api/v1/session", {"host": HOST, **ALICE}).json
    assert (session["user"], session["needs_login"]) == ("alice", False)
    assert console.get("/api/v1/topics", {"host": HOST, **ALICE}).status == 502, "the cluster is dead, and the user may ask it"
    changed = console.change("DELETE", "topics/t", {"confirm": "t"}, more={**ALICE, "x-csrf-token": session["token"]})
    assert changed.status == 502
    assert [(line["user"], line["action"]) for line in console.lines] == [("alice", "delete topic")]


def test_a_proxy_may_speak_tls_before_a_console_that_does_not() -> None:
    console = ConsoleUnderTest(proxy=PROXY)
    token = console.get("/api/v1/session", {"host": HOST, **ALICE}).json["token"]

    def deleted_from(origin: str) -> int:
        more = {**ALICE, "x-csrf-token": token, "origin": origin, "sec-fetch-site": "same-origin"}
        return console.change("DELETE", "topics/t", {"confirm": "t"}, more=more).status

    assert deleted_from(f"https://{HOST}") == 502, "the cluster is dead, and the user may change it"
    assert {deleted_from(origin) for origin in ("https://evil.example", "https://127.0.0.1", f"ftp://{HOST}", "null")} == {403}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {USER_HEADER.lower(): "alice"},
        {SECRET_HEADER: SECRET},
        {**ALICE, SECRET_HEADER: SECRET[:-1]},
        {**ALICE, USER_HEADER.lower(): " "},
        {**ALICE, USER_HEADER.lower(): "a\tb"},
        {**ALICE, USER_HEADER.lower(): "a" * (MAX_USER_LENGTH + 1)},
    ],
    ids=["nothing", "no secret", "no user", "wrong secret", "empty user", "control character", "long user"],
)
def test_a_request_that_does_not_come_from_the_proxy_is_refused(headers: dict[str, str]) -> None:
    console = ConsoleUnderTest(proxy=PROXY)
    answer = console.get("/api/v1/topics", {"host": HOST, **headers})
    assert (answer.status, answer.error) == (401, "the proxy does not name a user, or does not send its secret")
    assert console.get("/", {"host": HOST, **headers}).status == 200, "the page itself has no data"
    assert console.asked == 0


@pytest.mark.parametrize("name", ALICE)
def test_a_header_that_a_client_has_added_is_not_believed(name: str) -> None:
    sessions = Sessions(None, lambda: 0.0, PROXY)
    found = sessions.of(raw(ALICE))
    assert found is not None
    assert found.user == "alice"
    assert sessions.of([*raw(ALICE), (name.encode(), b"mallory")]) is None


def test_the_token_of_one_user_is_not_that_of_another_and_ends() -> None:
    now = 0.0
    sessions = Sessions(None, lambda: now, PROXY)
    alice, bob = (sessions.of(raw({**ALICE, USER_HEADER.lower(): user})) for user in ("alice", "bob"))
    assert alice is not None
    assert bob is not None
    assert not bob.has_token(alice.token)
    assert sessions.of(raw(ALICE)) is alice
    now = SESSION_SECONDS
    assert sessions.of(raw(ALICE)) is not alice
    for at in range(MAX_SESSIONS + 1):
        sessions.of(raw({**ALICE, USER_HEADER.lower(): f"user {at}"}))
    assert len(sessions._sessions) == MAX_SESSIONS


def test_nobody_logs_in_by_a_password() -> None:
    console = ConsoleUnderTest(proxy=PROXY)
    assert console.change("POST", "session", {"user": "alice", "password": "x"}).error == "this console has no login"


def test_the_secret_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\nignored\n")
    assert read_proxy_login(USER_HEADER, file).user_of(raw(ALICE)) == "alice"
    file.write_text("short")
    with pytest.raises(ClientError, match="at least 16 characters"):
        read_proxy_login(USER_HEADER, file)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(ClientError, match="not text"):
        read_proxy_login(USER_HEADER, file)
    with pytest.raises(ClientError, match="No such file"):
        read_proxy_login(USER_HEADER, tmp_path / "missing")
    for name in ("", "a b", SECRET_HEADER.upper()):
        with pytest.raises(ClientError, match="cannot be the name"):
            read_proxy_login(name, file)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user-header", USER_HEADER], "need each other"),
        (["--proxy-secret", "secret"], "need each other"),
        (["--user-header", USER_HEADER, "--proxy-secret", "secret", "--passwords", "users"], "exclude each other"),
        (["--listen", "192.0.2.1:0", "--user-header", USER_HEADER, "--proxy-secret", "secret"], "others reach this address"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["console", *options])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
