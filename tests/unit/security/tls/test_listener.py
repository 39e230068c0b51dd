"""A listener's TLS is built from the configuration; what cannot be honoured is refused with the listener and the key."""

from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from ottla.broker.security.principals import ANONYMOUS
from ottla.broker.security.tls.cipher_suites import iana_name
from ottla.broker.security.tls.listener import ListenerTls, check_peers, tls_of
from ottla.broker.security.tls.stores import certificates_from_pem, certificates_from_store, key_from_store
from ottla.broker.security.tls.trial import shake_hands
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError
from ottla.config.listeners import EndPoint, SecurityProtocol
from tests.support.apache_kafka.java import KEYTOOL
from tests.support.certificates import Identity, java_key_store

SSL = EndPoint("IN", "127.0.0.1", 0, SecurityProtocol.SSL)
SASL_SSL = EndPoint("IN", "127.0.0.1", 0, SecurityProtocol.SASL_SSL)


@cache
def authority() -> Identity:
    return Identity("CN=authority")


@cache
def server() -> Identity:
    return Identity("CN=broker", authority())


def inline(**more: str) -> dict[str, str]:
    """Properties with a key in PEM; keyword arguments have underscores for dots."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server().key_pem(),
        "ssl.keystore.certificate.chain": server().certificate_pem + authority().certificate_pem,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def built(properties: dict[str, str], endpoint: EndPoint = SSL) -> ListenerTls:
    return tls_of(BrokerProperties(properties), endpoint)


def indifferent_client() -> ssl.SSLContext:
    """A client to which every certificate is right."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    return client


def certificate_shown_by(tls: ListenerTls, client: ssl.SSLContext | None = None) -> bytes:
    """The server's certificate after a handshake in memory."""
    if client is None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = tls.context.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (theirs, ours):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    return theirs.getpeercert(binary_form=True) or b""


@pytest.mark.parametrize("name", ["pem", "encrypted pem", "pkcs12", "jks", "pkcs12 as jks", "jks as pkcs12"])
def test_every_kind_of_key_store_gives_the_key(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store"
    properties = {"ssl.keystore.location": str(path), "ssl.keystore.type": name.rpartition(" ")[2].upper()}
    if name.endswith("pem"):
        password = "secret" if "encrypted" in name else None
        path.write_text(server().certificate_pem + server().key_pem(password))
        properties |= {} if password is None else {"ssl.key.password": password}
    elif name.startswith("pkcs12"):
        path.write_bytes(server().pkcs12("store-secret"))
        properties |= {"ssl.keystore.password": "store-secret"}
    else:
        path.write_bytes(java_key_store("store-secret", authority().jks_certificate(), server().jks_key("key-secret")))
        properties |= {"ssl.keystore.password": "store-secret", "ssl.key.password": "key-secret"}

    assert certificate_shown_by(built(properties)) == server().der


def test_the_alias_of_the_key_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "store").write_bytes(java_key_store("s", server().jks_key("s", "mine")))
    with caplog.at_level(logging.INFO):
        built({"ssl.keystore.location": str(tmp_path / "store"), "ssl.keystore.password": "s"})
    assert "listener IN: uses the key mine of its key store" in caplog.messages


@pytest.mark.parametrize("name", ["inline", "pem", "pkcs12", "jks"])
def test_every_kind_of_trust_store_gives_the_certificates(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trust"
    properties = {"ssl.client.auth": "required", "ssl.truststore.type": {"inline": "PEM"}.get(name, name.upper())}
    if name == "inline":
        properties["ssl.truststore.certificates"] = authority().certificate_pem
    else:
        properties["ssl.truststore.location"] = str(path)
        if name == "pem":
            path.write_text("# a comment\n" + authority().certificate_pem)
        else:
            path.write_bytes(authority().pkcs12("s") if name == "pkcs12" else java_key_store("s", authority().jks_certificate()))
            properties["ssl.truststore.password"] = "s"
    context = built({**inline(), **properties}).context
    assert context.get_ca_certs(binary_form=True) == [authority().der]
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_certificates_in_the_forms_of_openssl_are_trusted(tmp_path: Path) -> None:
    server().files(tmp_path, "server")
    command = ["openssl", "x509", "-in", "server.crt", "-trustout", "-addtrust", "serverAuth"]
    trusted = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert trusted.startswith("-----BEGIN TRUSTED CERTIFICATE-----")
    older = authority().certificate_pem.replace(" CERTIFICATE-", " X509 CERTIFICATE-")
    assert certificates_from_pem(trusted + older, "store") == (server().der, authority().der)


def test_of_the_chain_of_a_private_key_only_its_own_certificate_is_trusted() -> None:
    other = Identity("CN=other")
    chain = authority().named("CN=authority")  # as Java names it
    stores = {
        "openssl": (server().pkcs12("s"), {server().der}),
        "java": (server().pkcs12("s", others=[chain]), {server().der}),
        "java with aliases": (server().pkcs12("s", others=[chain, other.named("other")]), {server().der, other.der}),
        "the authority is trusted, too": (server().pkcs12("s", others=[chain, authority().named("ca")]), {server().der, authority().der}),
        "jks": (java_key_store("s", server().jks_key("s"), other.jks_certificate()), {server().der, other.der}),
    }
    for name, (content, trusted) in stores.items():
        assert set(certificates_from_store(content, "s", name)) == trusted, name


def test_a_jks_store_of_version_1_does_not_name_the_type_of_its_certificates() -> None:
    entries = [each.replace(b"\0\x05X.509", b"") for each in (authority().jks_certificate(), server().jks_key("s"))]
    store = java_key_store("s", *entries, version=1)
    assert certificates_from_store(store, "s", "store") == (authority().der, server().der)
    assert key_from_store(store, "s", None, "store").chain == (server().der, authority().der)


def test_without_a_private_key_all_certificates_are_trusted() -> None:
    certificates = [authority().named("CN=authority"), pkcs12.PKCS12Certificate(server().certificate, None)]
    store = pkcs12.serialize_key_and_certificates(None, None, None, certificates, serialization.BestAvailableEncryption(b"s"))
    assert set(certificates_from_store(store, "s", "store")) == {authority().der, server().der}


def test_of_several_entries_with_one_alias_the_last_counts() -> None:
    store = java_key_store("s", authority().jks_certificate("a"), server().jks_certificate("b"), server().jks_certificate("a"))
    assert set(certificates_from_store(store, "s", "store")) == {server().der}


def test_a_prefixed_key_precedes_and_another_listeners_key_does_not_count() -> None:
    properties = inline(ssl_client_auth="none")
    assert built({**properties, "listener.name.in.ssl.client.auth": "requested"}).context.verify_mode is ssl.CERT_OPTIONAL
    assert built({**properties, "listener.name.out.ssl.client.auth": "requested"}).context.verify_mode is ssl.CERT_NONE


def test_with_sasl_only_the_prefixed_client_auth_counts_and_the_certificate_is_no_principal(caplog: pytest.LogCaptureFixture) -> None:
    properties = inline(ssl_client_auth="required")
    tls = built(properties, SASL_SSL)
    assert tls.context.verify_mode is ssl.CERT_NONE
    complaint = "with SASL ssl.client.auth=required does not count; set listener.name.in.ssl.client.auth"
    assert caplog.messages == [f"listener IN asks clients for no certificate: {complaint}"]
    assert tls.principal_of(server().der) == ANONYMOUS
    assert built({**properties, "listener.name.in.ssl.client.auth": "required"}, SASL_SSL).context.verify_mode is ssl.CERT_REQUIRED
    built(inline(), SASL_SSL)
    assert len(caplog.messages) == 1


def test_the_principal_is_the_mapped_name_of_the_certificate() -> None:
    tls = built(inline(ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/U"))
    assert str(tls.principal_of(server().der)) == "User:BROKER"
    assert str(built(inline()).principal_of(server().der)) == "User:CN=broker"
    assert tls.principal_of(None) == ANONYMOUS


@pytest.mark.parametrize(("versions", "least", "most"), [("TLSv1.2", 2, 2), ("TLSv1.3", 3, 3), ("TLSv1.3,TLSv1.2", 2, 3), ("", 2, 3)])
def test_enabled_protocols_are_the_versions_of_the_context(versions: str, least: int, most: int) -> None:
    context = built(inline(ssl_enabled_protocols=versions)).context
    assert (context.minimum_version.name, context.maximum_version.name) == (f"TLSv1_{least}", f"TLSv1_{most}")


def test_cipher_suites_limit_suites_and_versions(caplog: pytest.LogCaptureFixture) -> None:
    older = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,TLS_DHE_RSA_WITH_AES_128_CCM_8"
    more = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,TLS_RSA_WITH_AES_128_GCM_SHA256"
    context = built(inline(ssl_cipher_suites=f"{older},{more}")).context
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    expected = {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-SHA256", "DHE-RSA-AES128-CCM8"}
    assert names == expected | {"ECDHE-RSA-CHACHA20-POLY1305", "AES128-GCM-SHA256"}
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert not caplog.messages
    assert built(inline(ssl_cipher_suites="TLS_AES_128_GCM_SHA256")).context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert "cannot select among the suites of TLS 1.3" in caplog.text


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ssl.keystore.key": None, "ssl.keystore.certificate.chain": None}, "no private key: set ssl.keystore.location or"),
        ({"ssl.keystore.key": None}, "ssl.keystore.key and ssl.keystore.certificate.chain have to be set together"),
        ({"ssl.keystore.certificate.chain": None}, "have to be set together"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.key needs ssl.keystore.type=PEM, but it is JKS"),
        ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS is not supported"),
        (
            {
                "ssl.keystore.key": None,
                "ssl.keystore.certificate.chain": None,
                "ssl.keystore.type": "JKS",
                "ssl.keystore.location": __file__,
            },
            f"ssl.keystore.location={__file__}: ssl.keystore.password is not set",
        ),
        ({"ssl.keystore.location": "/x"}, "only one of ssl.keystore.key and ssl.keystore.location"),
        ({"ssl.keystore.password": "hush"}, "ssl.keystore.password cannot be set with ssl.keystore.type=PEM"),
        (
            {"ssl.key.password": "hush"},
            "ssl.keystore.certificate.chain=[hidden]: the private key is not encrypted, yet ssl.key.password is set",
        ),
        ({"ssl.keystore.key": "nothing"}, "ssl.keystore.key: expected one private key in PEM, found 0"),
        ({"ssl.truststore.password": "hush"}, "ssl.truststore.password is set, but ssl.truststore.location is not"),
        ({"ssl.truststore.location": "/no/such/file"}, "ssl.truststore.location=/no/such/file: No such file"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, "ssl.truststore.certificates: no certificate in PEM"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 is not supported"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3 is not supported"),
        ({"ssl.cipher.suites": "TLS_NOT_A_SUITE"}, "ssl.cipher.suites: TLS_NOT_A_SUITE is not supported by OpenSSL"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"},
            "=TLS_AES_128_GCM_SHA256 has no suite for the versions",
        ),
        ({"ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class=a.B"),
        ({"ssl.provider": "BC"}, "ssl.provider=BC"),
        ({"security.providers": "BC"}, "security.providers=BC"),
        ({"principal.builder.class": "a.B"}, "Invalid value a.B for configuration principal.builder.class: only org.apache.kafka"),
        ({"ssl.principal.mapping.rules": "nonsense"}, "ssl.principal.mapping.rules=nonsense"),
    ],
)
def test_a_configuration_that_cannot_be_honoured_is_refused(changes: dict[str, str | None], complaint: str) -> None:
    properties = {name: value for name, value in {**inline(), **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as error:
        built(properties)
    assert str(error.value).startswith("listener IN: ")
    assert complaint in str(error.value)
    assert "hush" not in str(error.value)
    assert "\n" not in str(error.value)


def test_old_versions_beside_those_of_today_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    context = built(inline(ssl_enabled_protocols="TLSv1.2,TLSv1.1,TLSv1")).context
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert "listener IN: ssl.enabled.protocols: versions without security are left out: TLSv1.1, TLSv1" in caplog.messages


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_with_a_signature_by_sha_1_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text in (("key", server().key_pem()), ("ca.key", authority().key_pem()), ("ca", authority().certificate_pem)):
        (tmp_path / name).write_text(text)
    ask = "openssl req -new -key key -subj /CN=old -out request"
    sign = "openssl x509 -req -in request -sha1 -days 2 -CAcreateserial -CA ca -CAkey ca.key -out old"
    for command in (ask, sign):
        subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    old = (tmp_path / "old").read_text()

    tls = built(inline(ssl_keystore_certificate_chain=old + authority().certificate_pem))

    assert certificate_shown_by(tls, indifferent_client()) == ssl.PEM_cert_to_DER_cert(old)
    assert tls.context.get_ciphers() == built(inline()).context.get_ciphers()
    assert "has a signature by SHA-1" in caplog.text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_clients_of_an_authority_with_signatures_by_sha_1_are_let_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "key").write_text(server().key_pem())
    trust = "openssl req -x509 -sha1 -key key -subj /CN=old-authority -days 2 -out ca"
    ask = "openssl req -new -key key -subj /CN=old-client -out request"
    sign = "openssl x509 -req -in request -sha1 -days 2 -CAcreateserial -CA ca -CAkey key -out client"
    for command in (trust, ask, sign):
        subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    client = indifferent_client()
    client.load_cert_chain(tmp_path / "client", tmp_path / "key")
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": (tmp_path / "ca").read_text()}

    tls = built(inline() | trusted | {"ssl.client.auth": "required"})

    assert certificate_shown_by(tls, client) == server().der
    assert tls.context.get_ciphers() == built(inline()).context.get_ciphers()
    assert "has a signature by SHA-1" in caplog.text
    caplog.clear()
    built(inline() | trusted)
    assert "SHA-1" not in caplog.text


OFFERED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OFFERED.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
WEAK = ("NULL", "ADH", "AECDH", "EXP", "RC2", "RC4", "DES", "MD5", "PSK", "SRP")
"""Parts of OpenSSL's names of suites that give no security, or none to a server with a certificate."""


def accepts(tls: ListenerTls, suite: str) -> bool:
    """Whether a client gets through that offers this suite alone, by the name of OpenSSL."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(f"{suite}:@SECLEVEL=0")
    try:
        shake_hands(tls.context, client)
    except ssl.SSLError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (None, None),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", {"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},  # the key is of an elliptic curve
        ),
    ],
)
def test_a_scan_of_all_suites_finds_those_that_are_allowed_and_no_weak_one(configured: str | None, expected: set[str] | None) -> None:
    tls = built(inline() if configured is None else inline(ssl_cipher_suites=configured))
    names = [each["name"] for each in OFFERED.get_ciphers() if each["protocol"] != "TLSv1.3"]
    accepted = [name for name in names if accepts(tls, name)]
    assert len(names) > 50
    assert accepted
    assert not [name for name in accepted if any(weak in name for weak in WEAK)]
    assert expected is None or set(map(iana_name, accepted)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_brokers_with_the_same_stores_have_to_trust_each_other(client_auth: str) -> None:
    def between_brokers(*trusted: Identity) -> ListenerTls:
        certificates = "".join(each.certificate_pem for each in trusted)
        more = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": certificates} if trusted else {}
        return tls_of(BrokerProperties(inline(ssl_client_auth=client_auth, **more)), SSL, between_brokers=True)

    check_peers("IN", between_brokers(authority()))
    check_peers("IN", between_brokers(Identity("CN=other"), authority()))
    for untrusted, why in (
        (between_brokers(Identity("CN=other")), r"by ssl\.truststore\.certificates=\[hidden\]: "),
        (between_brokers(), r"by the system's certificates, which count since ssl\.truststore\.location is not set: "),
    ):
        with pytest.raises(ConfigError, match=rf"^listener IN: ssl\.keystore\.certificate\.chain=\[hidden\] is not accepted {why}"):
            check_peers("IN", untrusted)
    check_peers("IN", built(inline()))  # other brokers do not use it


def test_a_key_of_another_certificate_is_refused_and_an_encrypted_key_without_password(tmp_path: Path) -> None:
    key = r"^listener IN: ssl\.keystore\.certificate\.chain=\[hidden\]: the private key"
    with pytest.raises(ConfigError, match=f"{key} cannot be used with its certificate: .*MISMATCH"):
        built(inline(ssl_keystore_key=authority().key_pem()))
    with pytest.raises(ConfigError, match=rf"{key} is encrypted, but ssl\.key\.password is not set"):
        built(inline(ssl_keystore_key=server().key_pem("secret")))
    with pytest.raises(ConfigError, match=rf"{key} cannot be used .*; is ssl\.key\.password right\?$"):
        built(inline(ssl_keystore_key=server().key_pem("secret"), ssl_key_password="other"))
    (tmp_path / "store").write_text(authority().key_pem() + server().certificate_pem)
    with pytest.raises(ConfigError, match=r"^listener IN: ssl\.keystore\.location=.*/store: the private key cannot be used"):
        built({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "store")})


def test_a_trusted_certificate_that_is_none_is_refused_with_its_setting() -> None:
    wrong = ssl.DER_cert_to_PEM_cert(bytes.fromhex("30030c0161"))
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.certificates=\[hidden\]: a certificate of the trust store cannot be used"):
        built(inline(ssl_truststore_type="PEM", ssl_truststore_certificates=wrong))


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (b"", "no JKS file"),
        (bytes.fromhex("cececece"), "JCEKS"),
        (b"\x30\x03abc", "PKCS12"),
        (java_key_store("other"), "the password is wrong"),
        (java_key_store("s"), "no private key"),
        (java_key_store("s", b"\0\0\0\x09\0\0" + bytes(8)), "unknown kind 9"),
        (java_key_store("s", b"\0\0\0\x02\0\0" + bytes(8) + b"\0\x05X.509\x7f\xff\xff\xff"), "cut off"),
    ],
)
def test_a_damaged_store_is_refused(tmp_path: Path, store: bytes, complaint: str) -> None:
    (tmp_path / "store").write_bytes(store)
    with pytest.raises(ConfigError, match=complaint):
        built({"ssl.keystore.location": str(tmp_path / "store"), "ssl.keystore.password": "s"})


def test_a_jks_file_that_is_cut_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    whole = java_key_store("s", server().jks_key("s"))
    path = tmp_path / "store"
    for at in range(0, len(whole), 61):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(ConfigError):
                built({"ssl.keystore.location": str(path), "ssl.keystore.password": "s"})


@pytest.mark.java
@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs Java's keytool")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_made_by_keytool_are_read(tmp_path: Path, kind: str) -> None:
    """One has a key and a trusted certificate, the other a trusted certificate alone."""
    other = Identity("CN=other")
    server().files(tmp_path, "server")
    (tmp_path / "source").write_bytes(java_key_store("source-secret", other.jks_certificate(), server().jks_key("source-secret")))

    def keytool(*arguments: str) -> None:
        subprocess.run([*KEYTOOL, *arguments, "-noprompt"], cwd=tmp_path, check=True, capture_output=True)

    source = ["-srckeystore", "source", "-srcstoretype", "JKS", "-srcstorepass", "source-secret"]
    keytool("-importkeystore", *source, "-destkeystore", "keys", "-deststoretype", kind, "-deststorepass", "store-secret")
    keytool("-importcert", "-file", "server.crt", "-alias", "a", "-keystore", "trust", "-storetype", kind, "-storepass", "store-secret")
    tls = built(
        {
            "ssl.keystore.location": str(tmp_path / "keys"),
            "ssl.keystore.password": "store-secret",
            "ssl.key.password": "source-secret" if kind == "JKS" else "store-secret",
            "ssl.truststore.location": str(tmp_path / "trust"),
            "ssl.truststore.password": "store-secret",
        }
    )
    assert certificate_shown_by(tls) == server().der
    assert tls.context.cert_store_stats()["x509"] == 1
    trusted = certificates_from_store((tmp_path / "keys").read_bytes(), "store-secret", "keys")
    assert sorted(trusted) == sorted((server().der, other.der))
