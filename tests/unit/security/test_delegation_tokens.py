"""Delegation tokens in the metadata store: Apache Kafka's znodes, brokers that change one token, expiry, and bad nodes."""

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers.security.token_requests import tokens_of
from ottla.broker.request.context import RequestContext
from ottla.broker.security import rereading
from ottla.broker.security.delegation_tokens import (
    MAX_RENEWERS,
    DelegationTokens,
    Lifetimes,
    TokenExpired,
    TokenInformation,
    TokenNotFound,
    TokenOwnerMismatch,
    TokenRefused,
)
from ottla.broker.security.principals import ANONYMOUS, Principal
from ottla.broker.security.sasl.scram import ScramServer
from ottla.controller.errors import InvalidAdminRequest, StoreError, StoreUnavailable
from ottla.controller.store.memory_store import MemoryEnsemble, MemoryStore
from ottla.controller.store.metadata_store import Children, Request, Result
from ottla.controller.znodes.security import TOKENS
from ottla.protocol.errors import ErrorCode
from tests.support.clocks import ManualClock
from tests.support.controlled_cluster import until
from tests.support.pauses import every_pause_waits
from tests.support.scram_client import ScramClient

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper" / "security.json"
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "ca:rol*"))
HOUR = 3_600_000
LIFETIMES = Lifetimes(max_ms=7 * 24 * HOUR, expiry_ms=24 * HOUR)
NOW_MS = ManualClock().now_ms()


class Brokers:
    """Brokers of one cluster."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = MemoryEnsemble(self.clock)
        self.added: list[DelegationTokens] = []
        self.stores: list[MemoryStore] = []
        self.made = 0

    def random_bytes(self, size: int) -> bytes:
        self.made += 1
        return bytes([self.made]) * size

    async def add(self, secret: str = "secret") -> DelegationTokens:
        store = self.ensemble.store()
        await store.open_session()
        tokens = DelegationTokens(store, self.clock, secret, LIFETIMES, self.random_bytes, lambda: -2.0)  # retries do not wait
        self.added.append(tokens)
        self.stores.append(store)
        await tokens.load()
        return tokens

    def nodes(self) -> dict[str, str]:
        return {
            path: node.data.decode()
            for path, node in self.ensemble.dump().items()
            if path.startswith("/delegation_token/") and node.data is not None
        }


def run(scenario: Callable[[Brokers], Awaitable[None]]) -> None:
    async def play() -> None:
        brokers = Brokers()
        try:
            await scenario(brokers)
        finally:
            for tokens in brokers.added:
                await tokens.close()

    asyncio.run(play())


def test_the_nodes_are_those_that_apache_kafka_writes() -> None:
    recorded = {
        line["path"]: line
        for line in map(json.loads, (each.rstrip(",") for each in GOLDEN.read_text().splitlines() if each.startswith('{"path"')))
        if line["path"].startswith("/delegation_token")
    }
    (path,) = (path for path in recorded if path.startswith(f"{TOKENS}/"))
    token_id = path.rpartition("/")[2]
    body = json.loads(recorded[path]["data"])

    async def scenario(brokers: Brokers) -> None:
        wanted = base64.urlsafe_b64decode(token_id + "==")
        brokers.random_bytes = lambda size: wanted[:size]  # type: ignore[method-assign]  # the recorded id
        brokers.clock.set_back(NOW_MS - body["issueTimestamp"])
        tokens = await brokers.add()
        lifetime_ms = body["maxTimestamp"] - body["issueTimestamp"]
        made = await tokens.create(ALICE, ALICE, [BOB], lifetime_ms)
        assert brokers.nodes() == {path: recorded[path]["data"], "/delegation_token/token_changes/token_change_0000000000": token_id}
        assert await tokens.renew(BOB, tokens.hmac_of(made.token_id), -1) == made.max_timestamp_ms  # nothing changes: no node is written
        assert len(brokers.nodes()) == 2

    run(scenario)


def test_a_token_lives_as_asked_within_the_limits() -> None:
    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        for asked_ms, max_ms, expiry_ms in (
            (-1, 7 * 24 * HOUR, 24 * HOUR),
            (0, 7 * 24 * HOUR, 24 * HOUR),
            (HOUR, HOUR, HOUR),
            (2**63 - 1, 7 * 24 * HOUR, 24 * HOUR),
        ):
            token = await tokens.create(ALICE, BOB, [], asked_ms)
            times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
            assert times == (NOW_MS, NOW_MS + expiry_ms, NOW_MS + max_ms)
            token_hmac = tokens.hmac_of(token.token_id)
            brokers.clock.move(1000)
            assert await tokens.renew(ALICE, token_hmac, -1) == min(NOW_MS + max_ms, NOW_MS + 1000 + 24 * HOUR)
            assert await tokens.renew(ALICE, token_hmac, 2**63 - 1) == NOW_MS + max_ms
            assert await tokens.expire(ALICE, token_hmac, 5) == NOW_MS + 1005
            brokers.clock.set_back(1000)

    run(scenario)


async def refused(work: Awaitable[int]) -> type[TokenRefused]:
    with pytest.raises(TokenRefused) as error:
        await work
    return type(error.value)


def test_only_owner_and_renewers_change_a_token_and_not_after_its_end() -> None:
    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        token = await tokens.create(ALICE, CAROL, [BOB], -1)
        token_hmac = tokens.hmac_of(token.token_id)
        assert await refused(tokens.renew(CAROL, token_hmac, -1)) is TokenOwnerMismatch  # the requester
        assert await refused(tokens.expire(Principal("Group", "alice"), token_hmac, -1)) is TokenOwnerMismatch
        for wrong in (b"", token_hmac[:-1], token_hmac + b"\0", bytes(64)):
            assert await refused(tokens.renew(ALICE, wrong, -1)) is TokenNotFound
        brokers.clock.move(24 * HOUR + 1)
        assert await refused(tokens.renew(BOB, token_hmac, -1)) is TokenExpired
        assert await refused(tokens.expire(BOB, token_hmac, 0)) is TokenExpired
        assert await tokens.expire(BOB, token_hmac, -1) == NOW_MS + 24 * HOUR + 1
        assert await refused(tokens.expire(BOB, token_hmac, -1)) is TokenNotFound
        assert [*tokens.tokens] == []

    run(scenario)


def test_other_brokers_learn_of_a_token_and_of_its_end() -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.add(), await brokers.add()
        token = await one.create(CAROL, ALICE, [BOB, CAROL], -1)
        await until(lambda: [*two.tokens] == [token])
        await two.renew(BOB, two.hmac_of(token.token_id), HOUR)
        await until(lambda: one.tokens[0].expiry_timestamp_ms == NOW_MS + HOUR)
        three = await brokers.add()
        assert three.tokens == one.tokens
        await three.expire(CAROL, three.hmac_of(token.token_id), -1)
        await until(lambda: not one.tokens and not two.tokens)

    run(scenario)


def test_a_token_that_another_broker_has_just_removed_does_not_come_back() -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.add(), await brokers.add()
        token = await one.create(ALICE, ALICE, [], -1)
        await until(lambda: bool(two.tokens))
        token_hmac = one.hmac_of(token.token_id)
        outcomes = await asyncio.gather(one.expire(ALICE, token_hmac, -1), two.renew(ALICE, token_hmac, -1), return_exceptions=True)
        assert isinstance(outcomes[0], int)
        await until(lambda: not one.tokens and not two.tokens)
        assert [path for path in brokers.nodes() if path.startswith(f"{TOKENS}/")] == []

    run(scenario)


def test_expired_tokens_are_removed_and_no_others() -> None:
    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        short = await tokens.create(ALICE, ALICE, [], HOUR)
        long = await tokens.create(ALICE, ALICE, [], -1)
        brokers.clock.move(HOUR)
        await tokens.remove_expired()
        assert {*tokens.tokens} == {short, long}
        brokers.clock.move(1)
        tokens.begin_removal()
        tokens.begin_removal()
        await until(lambda: [*tokens.tokens] == [long])
        assert [path for path in brokers.nodes() if path.startswith(f"{TOKENS}/")] == [f"{TOKENS}/{long.token_id}"]

    run(scenario)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_hmac_in_base64_is_the_password_on_every_broker(mechanism: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.add(), await brokers.add()
        token = await one.create(CAROL, ALICE, [], -1)
        await until(lambda: bool(two.tokens))
        password = base64.b64encode(one.hmac_of(token.token_id)).decode()
        for tokens in (one, two, one):
            if (preparation := tokens.preparation(mechanism, token.token_id)) is not None:
                await preparation
            server = ScramServer(
                mechanism, lambda _: None, lambda token_id, tokens=tokens: tokens.credential_of(mechanism, token_id), "nonce", b"key"
            )
            client = ScramClient(mechanism, token.token_id, password, extensions=",tokenauth=true")
            assert client.is_server(server.evaluate(client.final(server.evaluate(client.first))))
            assert server.authorization_id == "ca:rol*"
            assert server.credential_expires_ms == token.expiry_timestamp_ms
        assert one.credential_of(mechanism, "unknown") is None

    run(scenario)


def test_a_thread_makes_the_credential_once_for_all_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    derive = hashlib.pbkdf2_hmac

    def recorded(*arguments: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return derive(*arguments)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", recorded)

    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        token = await tokens.create(CAROL, ALICE, [], -1)
        assert tokens.preparation("SCRAM-SHA-256", "unknown") is None
        waits = [tokens.preparation("SCRAM-SHA-256", token.token_id) for _ in range(3)]
        await asyncio.gather(*(each for each in waits if each is not None))
        assert None not in waits
        assert tokens.preparation("SCRAM-SHA-256", token.token_id) is None
        assert tokens.credential_of("SCRAM-SHA-256", token.token_id) is not None
        assert len(threads) == 1
        assert threading.current_thread().name not in threads
        assert tokens.preparation("SCRAM-SHA-512", token.token_id) is not None  # and the end does not wait for it

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"version":3,"tokenId":"bad","owner":"alice","renewers":[],"issueTimestamp":1}',
        b'{"tokenId":7,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"expiryTimestamp":2,"maxTimestamp":3}',
        b'{"tokenId":"bad","owner":7,"renewers":[],"issueTimestamp":1,"expiryTimestamp":2,"maxTimestamp":3}',
        b'{"tokenId":"bad","owner":"User%3Aa","renewers":[7],"issueTimestamp":1,"expiryTimestamp":2,"maxTimestamp":3}',
        b'{"tokenId":"bad","owner":"User%3Aa","renewers":[],"issueTimestamp":1,"expiryTimestamp":"2","maxTimestamp":3}',
    ],
)
def test_a_malformed_node_hides_no_other_token(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.add()
        token = await one.create(ALICE, ALICE, [], -1)
        store = brokers.ensemble.store()
        await store.open_session()
        await store.create(f"{TOKENS}/bad", data)
        two = await brokers.add()
        assert [*two.tokens] == [token]
        for body in (b"bad", b"\xff", b"", b"../x", b"missing"):
            await store.create("/delegation_token/token_changes/token_change_", body, sequential=True)
        more = await one.create(BOB, BOB, [], -1)
        await until(lambda: {*two.tokens} == {token, more})

    run(scenario)
    assert "a delegation token is ignored" in caplog.text
    assert "secret" not in caplog.text


def test_tokens_that_a_new_session_cannot_read_are_read_again_until_that_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "FIRST_PAUSE_SECONDS", 0.001)

    async def scenario(brokers: Brokers) -> None:
        one = await brokers.add()
        token = await one.create(ALICE, ALICE, [], -1)
        two = await brokers.add()
        store = brokers.stores[1]
        pipeline, failures = store.pipeline, 3

        async def failing(requests: Sequence[Request]) -> list[Result | StoreError]:
            nonlocal failures
            if failures and isinstance(requests[0], Children) and requests[0].path == TOKENS:
                failures -= 1
                raise StoreUnavailable("zk:2181", "no answer")
            return await pipeline(requests)

        monkeypatch.setattr(store, "pipeline", failing)
        brokers.ensemble.expire(store.session_id)
        await brokers.stores[0].delete(f"{TOKENS}/{token.token_id}")  # its notification is gone, too
        await store.open_session()
        await two.on_new_session()
        assert [*two.tokens] == [token]
        await until(lambda: not two.tokens)
        assert failures == 0

    run(scenario)


def test_no_hmac_is_computed_again_for_tokens_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.add(), await brokers.add()
        kept, gone = [await one.create(ALICE, ALICE, [], -1) for _ in range(2)]
        await until(lambda: len(two.tokens) == 2)
        await brokers.stores[0].delete(f"{TOKENS}/{gone.token_id}")  # its notification is gone, too
        computed: list[str] = []
        hmac_of = two.hmac_of

        def noted(token_id: str) -> bytes:
            computed.append(token_id)
            return hmac_of(token_id)

        monkeypatch.setattr(two, "hmac_of", noted)
        await two._read_all()  # as in a new session
        assert (two.tokens, computed) == ([kept], [gone.token_id])

    run(scenario)


def test_other_work_goes_on_while_many_tokens_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.add()
        every_pause_waits()
        for _ in range(20):
            await one.create(ALICE, ALICE, [], -1)
        in_this_turn, most = 0, 0
        keep = DelegationTokens._keep

        def counted(tokens: DelegationTokens, token: TokenInformation) -> None:
            nonlocal in_this_turn, most
            in_this_turn += tokens is not one  # it reads the notifications of its own tokens
            most = max(most, in_this_turn)
            keep(tokens, token)

        async def take_turns() -> None:
            nonlocal in_this_turn
            while True:
                in_this_turn = 0
                await asyncio.sleep(0)

        monkeypatch.setattr(DelegationTokens, "_keep", counted)
        other = asyncio.create_task(take_turns())
        two = await brokers.add()
        other.cancel()
        assert len(two.tokens) == 20
        assert most == 1

    run(scenario)


class Checked(Principal):
    """A principal that counts its checks."""

    checks = 0

    def check(self) -> None:
        """See `Principal`."""
        Checked.checks += 1
        super().check()


@pytest.mark.parametrize(
    ("name", "number", "checks", "text"),
    [
        ("bob", 400_000, 0, "^a delegation token has 400000 renewers; at most 1000 are possible$"),
        ("bob", 1001, 0, "^a delegation token has 1001 renewers; at most 1000 are possible$"),
        ("x" * 1000, 1000, 0, "^the names of the 1000 renewers of a delegation token are too long$"),
        ("\u00fc" * 200, 1000, 1000, "^a delegation token with 1000 renewers is too large$"),
    ],
    ids=["very many", "too many", "too long", "too long for a node"],
)
def test_a_token_with_too_many_renewers_is_refused_at_once_and_not_kept(name: str, number: int, checks: int, text: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        Checked.checks = 0
        with pytest.raises(InvalidAdminRequest, match=text):
            await tokens.create(ALICE, ALICE, [Checked("User", name)] * number, -1)
        assert Checked.checks == checks
        assert [*tokens.tokens] == []
        assert brokers.nodes() == {}

    run(scenario)


def test_other_work_goes_on_while_a_token_with_many_renewers_is_made() -> None:
    async def scenario(brokers: Brokers) -> None:
        tokens = await brokers.add()
        every_pause_waits()
        before, most, turns = 0, 0, 0
        Checked.checks = 0

        async def take_turns() -> None:
            nonlocal before, most, turns
            while True:
                most, before, turns = max(most, Checked.checks - before), Checked.checks, turns + 1
                await asyncio.sleep(0)

        other = asyncio.create_task(take_turns())
        token = await tokens.create(ALICE, ALICE, [Checked("User", f"bob{number}") for number in range(MAX_RENEWERS)], -1)
        other.cancel()
        assert len(token.renewers) == MAX_RENEWERS == Checked.checks
        assert most == 1
        assert turns > 2 * MAX_RENEWERS  # the names are encoded in turns of their own

    run(scenario)


def test_holders_are_owner_requester_and_renewers() -> None:
    token = TokenInformation("id", ALICE, BOB, (CAROL,), 0, 0, 0)
    assert token.holders == {ALICE, BOB, CAROL}
    assert token.holders is token.holders
    assert [token.may_be_renewed_by(each) for each in (ALICE, BOB, CAROL)] == [True, False, True]


NOT_ALLOWED, DISABLED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(
    ("protocol", "principal", "code"),
    [
        ("PLAINTEXT", ALICE, NOT_ALLOWED),
        ("SSL", ANONYMOUS, NOT_ALLOWED),
        ("SSL", ALICE, DISABLED),
        ("SASL_PLAINTEXT", ALICE, DISABLED),
        ("SASL_SSL", ALICE, DISABLED),
        ("SASL_SSL", Principal("User", "alice", token_authenticated=True), NOT_ALLOWED),
    ],
)
def test_clients_without_a_credential_of_their_own_are_refused_and_all_others_without_a_secret(
    protocol: str, principal: Principal, code: ErrorCode
) -> None:
    client = SimpleNamespace(security_protocol=protocol, principal=principal)
    broker = SimpleNamespace(administration=SimpleNamespace(delegation_tokens=None))
    assert tokens_of(cast("RequestContext", SimpleNamespace(client=client, broker=broker))) is code
