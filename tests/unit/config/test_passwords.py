"""Encrypted passwords: Apache Kafka's stored form, and what is no such form."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.passwords import CBC, GCM, PasswordEncoder, UndecodablePassword, encoder_of, old_encoder_of

GOLDEN = Path(__file__).parents[2] / "golden" / "zookeeper" / "security.json"


def an_encoder(secret: str = "s3cret", cipher: str = CBC, key_length: int = 128, factory: str | None = None) -> PasswordEncoder:
    return PasswordEncoder(secret, factory, cipher, key_length, 1024, os.urandom)


def fields_of(stored: str) -> dict[str, str]:
    return dict(part.split(":", 1) for part in stored.split(","))


def recorded() -> str:
    (node,) = [node for node in json.loads(GOLDEN.read_text())["tree"] if node["path"] == "/config/brokers/0"]
    text: str = json.loads(node["data"])["config"]["listener.name.sasl.plain.sasl.jaas.config"]
    return text


def test_the_stored_form_is_that_of_apache_kafka() -> None:
    theirs = fields_of(recorded())
    encoder = encoder_of(BrokerConfig({"password.encoder.secret": "s3cret"}), os.urandom)
    assert encoder is not None
    ours = fields_of(encoder.encode("x" * 132))
    assert list(ours) == list(theirs)
    assert {name: len(value) for name, value in ours.items()} == {name: len(value) for name, value in theirs.items()}
    for name in ("keyLength", "keyFactoryAlgorithm", "cipherAlgorithm", "iterations", "passwordLength"):
        assert ours[name] == theirs[name]


@pytest.mark.parametrize("cipher", [CBC, GCM])
@pytest.mark.parametrize("key_length", [128, 192, 256])
@pytest.mark.parametrize("factory", [None, "PBKDF2WithHmacSHA1", "PBKDF2WithHmacSHA256"])
def test_what_was_encoded_is_decoded_by_an_encoder_with_other_settings(cipher: str, key_length: int, factory: str | None) -> None:
    stored = an_encoder(cipher=cipher, key_length=key_length, factory=factory).encode("pass, word: ü𝄞")
    assert "pass" not in stored.replace("passwordLength", "")
    assert fields_of(stored)["passwordLength"] == "15"
    assert an_encoder().decode(stored) == "pass, word: ü𝄞"


def test_the_same_password_is_stored_as_another_text_each_time() -> None:
    encoder = an_encoder()
    assert encoder.encode("p") != encoder.encode("p")


@pytest.mark.parametrize("cipher", [CBC, GCM])
def test_another_secret_decodes_nothing(cipher: str) -> None:
    stored = an_encoder(cipher=cipher).encode("password")
    for secret in ("other", "", "s3cret "):
        with pytest.raises(UndecodablePassword):
            an_encoder(secret).decode(stored)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_text_is_undecodable_and_nothing_else(data: st.DataObject) -> None:
    cipher = data.draw(st.sampled_from([CBC, GCM]))
    stored = an_encoder(cipher=cipher).encode("password")
    at = data.draw(st.integers(0, len(stored) - 1))
    damaged = stored[:at] + data.draw(st.text(max_size=3)) + stored[at + data.draw(st.integers(0, 40)) :]
    with suppress(UndecodablePassword):  # CBC does not notice each damage, so a wrong password may come out
        an_encoder().decode(damaged)


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_is_undecodable(text: str) -> None:
    with pytest.raises(UndecodablePassword):
        an_encoder().decode(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("password.encoder.cipher.algorithm", "Blowfish/CBC/PKCS5Padding"),
        ("password.encoder.keyfactory.algorithm", "PBEWithMD5AndDES"),
        ("password.encoder.key.length", "100"),
    ],
)
def test_an_algorithm_that_is_not_there_stops_the_start(key: str, value: str) -> None:
    config = BrokerConfig({"password.encoder.secret": "s", key: value})
    with pytest.raises(ConfigError, match=rf"{key}={value} is not available; use one of"):
        encoder_of(config, os.urandom)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.config.passwords.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[security\]'"):
        encoder_of(BrokerConfig({"password.encoder.secret": "s"}), os.urandom)


def test_without_secrets_there_are_no_encoders() -> None:
    assert encoder_of(BrokerConfig(), os.urandom) is None
    assert old_encoder_of(BrokerConfig(), os.urandom) is None
