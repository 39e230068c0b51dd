"""The names of cipher suites: those of OpenSSL and those of Java."""

import ssl

import pytest

from ottla.broker.security.tls.cipher_suites import TLS_1_3_SUITES, iana_name, openssl_name


def usable() -> list[str]:
    """The suites that need a certificate and no shared secret."""
    names = [cipher["name"] for cipher in ssl.create_default_context().get_ciphers()]
    return [name for name in names if "PSK" not in name and "SRP" not in name]


@pytest.mark.parametrize("name", usable())
def test_every_suite_of_openssl_has_an_iana_name_that_leads_back_to_it(name: str) -> None:
    found = iana_name(name)
    assert found.startswith("TLS_")
    assert (found if found in TLS_1_3_SUITES else openssl_name(found)) == name


@pytest.mark.parametrize(
    ("openssl", "iana"),
    [
        ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        ("DHE-RSA-AES256-SHA256", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
        ("ECDHE-ECDSA-AES256-CCM8", "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8"),
        ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_the_iana_name_is_that_of_java(openssl: str, iana: str) -> None:
    assert iana_name(openssl) == iana
