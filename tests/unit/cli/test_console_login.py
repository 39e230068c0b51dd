"""The console's login: sessions in cookies, hashed passwords, and limits that hold for every address."""

from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.client.errors import ClientError
from ottla.console.application import MAX_LOGIN_BYTES
from ottla.console.login.passwords import HashedPassword, Passwords, hashed, read_passwords
from ottla.console.login.sessions import (
    ATTEMPTS_AT_ONCE,
    COOKIE,
    MAX_SESSIONS,
    SESSION_SECONDS,
    Sessions,
    TooManyAttempts,
    WrongPassword,
    cookie_name,
)
from ottla.console.rates import MAX_KEYS, Buckets
from tests.support.console_requests import HOST, Answered, ConsoleUnderTest

PASSWORD = "correct horse"
USERS = {"alice": hashed(PASSWORD)}
ALICE = Passwords(USERS)


@pytest.fixture
def console() -> ConsoleUnderTest:
    return ConsoleUnderTest(ALICE)


def log_in(console: ConsoleUnderTest, password: str = PASSWORD, user: str = "alice") -> Answered:
    return console.change("POST", "session", {"user": user, "password": password})


def cookie_of(answer: Answered) -> dict[str, str]:
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return {"cookie": f"{cookie.key}={cookie.value}"}


def test_without_a_session_only_the_page_and_the_login_answer(console: ConsoleUnderTest) -> None:
    assert console.get("/").status == 200
    assert console.get("/static/console.js").status == 200
    assert console.get("/api/v1/session").json == {"user": None, "token": None, "needs_login": True, "read_only": False}
    for path in ("overview", "topics/t/records", "topics/t/live", "nothing"):
        answer = console.get(f"/api/v1/{path}")
        assert (answer.status, answer.error) == (401, "log in first")
    assert console.change("DELETE", "topics/t", {"confirm": "t"}).status == 401
    assert console.asked == 0


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(console: ConsoleUnderTest) -> None:
    answer = log_in(console)
    assert (answer.status, answer.json["user"]) == (200, "alice")
    cookie = SimpleCookie(answer.headers["set-cookie"])[cookie_name(HOST)]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "strict", "/", "")
    assert cookie.value not in answer.body.decode()
    secure = ConsoleUnderTest(ALICE, is_secure=True)
    assert SimpleCookie(log_in(secure).headers["set-cookie"])[cookie_name(HOST)]["secure"] is True


@pytest.mark.parametrize("others", ['theme={"a": [1]}; {}', '{}; b="', "=; ;{};c", f"x-{COOKIE}=other; {{}}"])
def test_cookies_of_other_servers_of_the_host_end_no_session(console: ConsoleUnderTest, others: str) -> None:
    own = cookie_of(log_in(console))["cookie"]
    assert console.get("/api/v1/session", {"host": HOST, "cookie": others.replace("{}", own)}).json["user"] == "alice"
    assert console.get("/api/v1/session", {"host": HOST, "cookie": others.replace("{}", "")}).json["user"] is None


def test_consoles_on_several_ports_of_a_host_keep_their_sessions_apart(console: ConsoleUnderTest) -> None:
    """Browsers send a cookie to every port of a host."""
    other = ConsoleUnderTest(ALICE)
    there = {"host": "127.0.0.1:8081", "origin": "http://127.0.0.1:8081"}
    answers = log_in(console), other.change("POST", "session", {"user": "alice", "password": PASSWORD}, more=there)
    both = SimpleCookie()
    for answer in answers:
        both.load(answer.headers["set-cookie"])
    cookie = {"cookie": "; ".join(f"{each.key}={each.value}" for each in both.values())}

    def shown() -> list[Any]:
        return [console.get("/api/v1/session", {"host": HOST, **cookie}).json, other.get("/api/v1/session", {**there, **cookie}).json]

    assert [each["user"] for each in shown()] == ["alice", "alice"]
    token = shown()[1]["token"]
    assert other.change("DELETE", "session", {}, more={**there, **cookie, "x-csrf-token": token}).status == 200
    assert [each["user"] for each in shown()] == ["alice", None]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8080", f"{COOKIE}-8080"),
        ("[::1]:80", f"{COOKIE}-80"),
        ("[::1]", COOKIE),
        ("console.example", COOKIE),
        ("localhost:a;b", COOKIE),
        ("localhost:\u0663", COOKIE),
    ],
)
def test_the_name_of_a_cookie_has_the_port(host: str, name: str) -> None:
    assert cookie_name(host) == name


def test_changes_have_the_token_of_their_session_and_the_log_says_who(console: ConsoleUnderTest) -> None:
    first, second = cookie_of(log_in(console)), cookie_of(log_in(console))
    tokens = [console.get("/api/v1/session", {"host": HOST, **each}).json["token"] for each in (first, second)]
    assert tokens[0] != tokens[1]
    assert console.change("DELETE", "topics/t", {"confirm": "t"}, more={**first, "x-csrf-token": tokens[1]}).status == 403
    assert console.change("DELETE", "topics/t", {"confirm": "t"}, more=first).status == 502
    assert [(line["user"], line["action"], line["outcome"]) for line in console.lines] == [
        ("alice", "log in", "done"),
        ("alice", "log in", "done"),
        ("alice", "DELETE /api/v1/topics/t", "refused"),
        ("alice", "delete topic", "failed"),
    ]


def test_a_session_ends_by_logging_out_and_by_time(console: ConsoleUnderTest) -> None:
    first, second = cookie_of(log_in(console)), cookie_of(log_in(console))
    assert console.change("DELETE", "session", {}, more=first).status == 200
    assert console.get("/api/v1/topics", {"host": HOST, **first}).status == 401
    assert console.get("/api/v1/topics", {"host": HOST, **second}).status == 502
    console.now += SESSION_SECONDS
    assert console.get("/api/v1/topics", {"host": HOST, **second}).status == 401


def test_another_site_cannot_log_in(console: ConsoleUnderTest) -> None:
    for header in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert console.change("POST", "session", {"user": "alice", "password": PASSWORD}, more=header).status == 403


@pytest.mark.slow
def test_dozens_of_wrong_passwords_cost_five_hashes_and_few_lines(console: ConsoleUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    monkeypatch.setattr(HashedPassword, "fits", lambda self, password: bool(hashes.append(password)) or password == PASSWORD)
    answers = [log_in(console, f"wrong {number}") for number in range(60)]
    assert [each.status for each in answers] == [401] * ATTEMPTS_AT_ONCE + [429] * (60 - ATTEMPTS_AT_ONCE)
    assert answers[0].error == "wrong user or password"
    assert answers[-1].headers["retry-after"] == "11"
    assert len(hashes) == ATTEMPTS_AT_ONCE
    assert len(console.lines) == 20
    assert log_in(console).status == 429, "the right password has to wait, too"
    console.now += 10.0
    assert log_in(console).status == 200
    assert log_in(console, "wrong").status == 401, "a right password has given all attempts back"


def test_attempts_are_counted_by_address_and_by_network_of_ipv6() -> None:
    sessions = Sessions(Passwords({}), lambda: 0.0)
    sessions._passwords = ALICE
    for at in range(ATTEMPTS_AT_ONCE):
        with pytest.raises(WrongPassword):
            sessions.log_in("alice", "x" * 2000, f"2001:db8::{at}")
    with pytest.raises(TooManyAttempts):
        sessions.log_in("alice", PASSWORD, "2001:db8::ffff")
    assert sessions.log_in("alice", PASSWORD, "2001:db8:0:1::1")[1].user == "alice"


def test_many_addresses_share_what_is_left() -> None:
    now = 0.0
    buckets = Buckets(2, 1.0, lambda: now)
    for at in range(MAX_KEYS + 100):
        buckets.take(str(at))
    assert len(buckets) == MAX_KEYS + 1
    assert buckets.seconds_until_free("another") > 0
    assert buckets.seconds_until_free("0") == 0
    now = 1e9
    assert buckets.seconds_until_free("another") == 0


def test_the_oldest_session_ends_for_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HashedPassword, "fits", lambda self, password: True)
    sessions = Sessions(ALICE, lambda: 0.0)
    keys = [sessions.log_in("alice", "x", "127.0.0.1")[0] for _ in range(MAX_SESSIONS + 1)]
    assert sessions.of([(b"cookie", f"{COOKIE}={keys[0]}".encode())]) is None
    assert sessions.of([(b"cookie", f"{COOKIE}={keys[1]}".encode())]) is not None
    assert sessions.of([(b"cookie", b"\0=;;;")]) is None


def test_an_unknown_user_is_refused_like_a_wrong_password(console: ConsoleUnderTest) -> None:
    answer = log_in(console, user="mallory")
    assert (answer.status, answer.error) == (401, "wrong user or password")
    assert "set-cookie" not in answer.headers


def test_a_login_is_small(console: ConsoleUnderTest) -> None:
    answer = console.change("POST", "session", {"user": "alice", "password": "x" * MAX_LOGIN_BYTES})
    assert (answer.status, answer.error) == (400, f"the body has more than {MAX_LOGIN_BYTES} bytes")


def test_a_console_without_passwords_has_no_login() -> None:
    assert log_in(ConsoleUnderTest()).error == "this console has no login"


@pytest.mark.slow
def test_the_line_of_a_user_is_printed_and_read_again(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["console", "--hash-password", "alice@x"], input="secret\n")
    assert printed.exit_code == 0
    file = tmp_path / "users"
    file.write_text(f"# users\n\n{printed.output}")
    passwords = read_passwords(file)
    assert passwords.are_right("alice@x", "secret")
    assert not passwords.are_right("alice@x", "Secret")
    assert not passwords.are_right("", "secret")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no user"),
        ("alice:secret", "line 1: it is not NAME:HASH"),
        ("al ice:LINE", "line 1: it is not NAME:HASH"),
        ("alice:LINE\nalice:LINE", "line 2: alice is in it twice"),
        ("alice:COSTLY", "line 1: it is not NAME:HASH"),
        ("alice:SHORT", "line 1: it is not NAME:HASH"),
        ("alice:BROKEN", "line 1: it is not NAME:HASH"),
    ],
)
def test_a_file_of_users_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "users"
    known = USERS["alice"]
    lines = {"LINE": str(known), "COSTLY": str(known._replace(cost=2**30)), "SHORT": str(known._replace(hash=b"")), "BROKEN": f"{known}*"}
    for name, line in lines.items():
        text = text.replace(name, line)
    file.write_text(text)
    with pytest.raises(ClientError, match=reason):
        read_passwords(file)
