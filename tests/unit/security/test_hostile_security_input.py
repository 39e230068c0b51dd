"""Damaged SASL messages, key stores and names are refused by the expected errors, and authenticate nobody."""

from __future__ import annotations

import base64
import contextlib
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.sasl.mechanism import AuthenticationRefused, InvalidCredentials, SaslServer
from ottla.broker.security.sasl.plain import PlainServer
from ottla.broker.security.tls import stores
from ottla.broker.security.tls.der import MalformedDer
from ottla.broker.security.tls.distinguished_names import alternative_names_of, name_of, subject_of
from ottla.broker.security.tls.listener import source_of
from ottla.broker.security.tls.stores import certificates_from_pem, certificates_from_store, key_from_pem, key_from_store, read_store
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError
from tests.support.certificates import Identity, java_key_store
from tests.support.scram_client import ScramClient
from tests.unit.security.test_sasl_mechanisms import PASSWORDS, bearer, oauthbearer, scram, token_of

REFUSALS = (InvalidCredentials, AuthenticationRefused)
PASSWORD = "store-secret"


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes that differ from the whole in one to three places, or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    found = whole
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found)))
        found = found[:at] + draw(st.binary(max_size=4)) + found[at + draw(st.integers(0, 4)) :]
    return found


def evaluated(server: SaslServer, message: bytes) -> bytes | None:
    """The answer; None if the message is refused."""
    try:
        return server.evaluate(message)
    except REFUSALS:
        assert server.authorization_id is None
        return None


FIRST_MESSAGES: dict[str, tuple[Callable[[], SaslServer], bytes]] = {
    "PLAIN": (lambda: PlainServer(PASSWORDS.get), b"\0alice\0alice-secret"),
    "SCRAM": (scram, ScramClient("SCRAM-SHA-256", "alice", "alice-secret", extensions=",tokenauth=true").first),
    "OAUTHBEARER": (oauthbearer, bearer(token_of(scope="a b"), extensions="trace=x\x01")),
}


@pytest.mark.parametrize("mechanism", FIRST_MESSAGES)
@given(data=st.data())
def test_a_damaged_first_message_is_refused_or_answered(mechanism: str, data: st.DataObject) -> None:
    begin, whole = FIRST_MESSAGES[mechanism]
    message = data.draw(damaged(whole))
    server = begin()
    evaluated(server, message)
    if mechanism == "SCRAM":
        assert server.authorization_id is None
    if mechanism == "PLAIN" and server.authorization_id is not None:
        assert message in {b"\0alice\0alice-secret", b"alice\0alice\0alice-secret"}


@given(data=st.data())
def test_a_damaged_proof_authenticates_nobody(data: st.DataObject) -> None:
    server, client = scram(), ScramClient("SCRAM-SHA-256", "alice", "alice-secret")
    whole = client.final(server.evaluate(client.first))
    message = data.draw(damaged(whole).filter(lambda found: found != whole))
    evaluated(server, message)
    assert server.authorization_id is None


@cache
def identity() -> Identity:
    return Identity("CN=broker,O=x+OU=y", Identity("CN=authority"))


@cache
def jks() -> bytes:
    return java_key_store(PASSWORD, identity().jks_key(PASSWORD), identity().jks_certificate())


@cache
def pkcs12() -> bytes:
    return identity().pkcs12(PASSWORD)


@cache
def pem() -> bytes:
    return (identity().key_pem() + identity().certificate_pem).encode()


@pytest.mark.parametrize("password", [PASSWORD, None])
@given(data=st.data())
def test_a_damaged_jks_store_is_refused(password: str | None, data: st.DataObject) -> None:
    """Without a password its digest is not checked, so that certificates may come out damaged."""
    whole = jks()
    store = data.draw(damaged(whole).filter(lambda found: found != whole))
    if password is None:
        try:
            certificates = certificates_from_store(store, None, "store")
        except ConfigError:
            return
        assert all(len(each) < len(store) for each in certificates)
        return
    with pytest.raises(ConfigError):
        key_from_store(store, password, None, "store")
    with pytest.raises(ConfigError):
        certificates_from_store(store, password, "store")


@given(data=st.data())
def test_a_damaged_pkcs12_store_is_refused_or_has_the_same_key(data: st.DataObject) -> None:
    store = data.draw(damaged(pkcs12()))
    try:
        found = key_from_store(store, PASSWORD, None, "store")
    except ConfigError:
        return
    assert found.chain[0] == identity().der


@given(data=st.data())
def test_a_damaged_pem_file_is_refused_or_read(data: st.DataObject) -> None:
    text = data.draw(damaged(pem())).decode("ascii", "replace")
    for read in (lambda: key_from_pem(text, text, "store"), lambda: certificates_from_pem(text, "store")):
        with contextlib.suppress(ConfigError):
            read()


def test_only_files_are_read_and_only_so_much_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may propose a path: a device may have no end, and a pipe without a writer never has a byte."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"12345")
    for path in ("/dev/zero", str(pipe), str(tmp_path)):
        with pytest.raises(ConfigError, match="store: it is not a regular file"):
            read_store(path, "store")
    for path in ("\0", str(tmp_path / "none")):
        with pytest.raises(ConfigError, match="store: "):
            read_store(path, "store")
    assert source_of(BrokerProperties({"listener.name.x.ssl.keystore.location": "\0"}), "X") != source_of(BrokerProperties({}), "X")
    monkeypatch.setattr(stores, "MAX_STORE_BYTES", 5)
    assert read_store(str(file), "store") == b"12345"
    file.write_bytes(b"123456")
    with pytest.raises(ConfigError, match="store: it is larger than 5 bytes"):
        read_store(str(file), "store")


LONG = 32_767
"""Length of the longest text that a request may propose for a key of TLS."""


@pytest.mark.parametrize(
    "text",
    [
        "-" * LONG,
        "-----BEGIN CERTIFICATE-----" + "\n" * LONG,
        "-----BEGIN CERTIFICATE-----\n" + "A" * LONG + " " * LONG,
        "-----BEGIN " + "A" * LONG,
        "-----BEGIN A-----\nAAAA\n" * (LONG // 20),
    ],
)
def test_a_long_text_that_is_no_pem_is_refused_at_once(text: str) -> None:
    begin = time.thread_time()
    with pytest.raises(ConfigError):
        certificates_from_pem(text, "ssl.truststore.certificates")
    assert time.thread_time() - begin < 1


@pytest.mark.parametrize("blanks", ["\n", " \r\n\t"])
def test_blanks_in_and_around_pem_do_not_count(blanks: str) -> None:
    der = identity().der
    body = base64.b64encode(der).decode()
    text = f"x-----BEGIN CERTIFICATE-----{blanks}{body[:64]}{blanks}{body[64:]}{blanks}-----END CERTIFICATE-----{blanks}y"
    assert certificates_from_pem(text + text, "store") == (der, der)


@given(data=st.data())
def test_a_damaged_certificate_has_a_name_or_is_malformed(data: st.DataObject) -> None:
    certificate = data.draw(damaged(identity().der))
    for read in (subject_of, alternative_names_of, name_of):
        with contextlib.suppress(MalformedDer):
            read(certificate)
